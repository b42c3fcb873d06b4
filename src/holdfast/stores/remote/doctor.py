"""What `holdfast doctor` can say of a remote store: the service, the token, and what is behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast.core.finding import Finding, Level
from holdfast.store import Store
from holdfast.stores.remote.store import RemoteStore
from holdfast.stores.remote.wire import FORMAT, Hello

SLOW_S = 0.25


async def examine(store: Store) -> list[Finding]:
    """Looks at an open store, its service and its token."""
    assert isinstance(store, RemoteStore), "operate.examine picks the doctor by the URL"
    started = time.monotonic()
    await store.migrate()
    took_s = time.monotonic() - started
    words = f"answers in {took_s * 1000:.0f} ms, speaks format {store.hello.format} of {FORMAT}"
    level = Level.WARNING if took_s > SLOW_S else Level.OK
    return [Finding(level, "service", words), *_token(store), *_behind(store.hello)]


def _token(store: RemoteStore) -> Iterator[Finding]:
    caller = store.hello.caller
    if caller is None:
        words = "there is none; set HOLDFAST_TOKEN, or name a variable with token_env"
        yield Finding(Level.WARNING, "token", words)
        return
    whose = "any tenant" if caller.tenant is None else f"tenant {caller.tenant!r}"
    rights = ", ".join(sorted(caller.rights)) or "nothing"
    yield Finding(Level.OK, "token", f"{caller.name!r} acts for {whose} and may {rights}")
    if store.options.in_clear:
        words = "the token travels unencrypted: use https://, or a service on this machine"
        yield Finding(Level.WARNING, "encryption", words)
    if not store.options.verify:
        words = "verify=off: anybody in between can read the token"
        yield Finding(Level.WARNING, "encryption", words)


def _behind(hello: Hello) -> Iterator[Finding]:
    if hello.capabilities.durable:
        yield Finding(Level.OK, "durability", "the service's store keeps what it confirmed")
    else:
        words = "jobs end with the service or its server: its store is not durable"
        yield Finding(Level.WARNING, "durability", words)
