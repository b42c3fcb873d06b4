"""Limits of the platform through a remote store: with the right platform, and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.errors import InvalidInput, StoreError, StoreUnsupported
from holdfast.core.scope import PLATFORM, BlockerKind, Scope, ScopeKind
from holdfast.dispatch import Dispatcher
from holdfast.explain import explain
from holdfast.operate import platform, scopes
from holdfast.scopes import ScopeHandle
from holdfast.service.rights import Caller, Right, rights
from holdfast.store import Claim, Put, Ref
from holdfast.stores.remote.store import RemoteStore
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, MAIL, job

CALLERS = (
    Caller(name="root", tenant=None, rights=rights([Right.ADMIN])),
    Caller(name="platform", tenant=None, rights=rights([Right.PLATFORM])),
    Caller(name="operator of all", tenant=None, rights=rights([Right.OPERATE, Right.WORK])),
    Caller(name="acme", tenant=ACME, rights=rights([Right.ADMIN], ACME)),
)
OTHERS = ("operator of all", "acme")
each_platform = pytest.mark.parametrize("token", ["root", "platform"])
each_other = pytest.mark.parametrize("token", OTHERS)


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("platform", auth=Tokens(*CALLERS))


async def filled(root: RemoteStore) -> None:
    """Globex runs a job, acme waits; the type of both is published."""
    await root.settings([Put("type/send", b'{"queue": "mail"}', 0)])
    await root.enqueue([job("theirs", tenant=GLOBEX)])
    await root.claim(Claim(worker="w", nonce="n", limit=1, lease_us=LEASE))
    await root.enqueue([job("mine", tenant=ACME)])


def handles(store: Dispatcher) -> list[ScopeHandle]:
    top = platform(store)
    return [top, top.queue(MAIL), top.type("send")]


@each_platform
async def test_the_platform_sets_its_limits_through_a_service(
    place: Place, opened: Opened, token: str
) -> None:
    """The capability is that of the service's store, and types are known as it publishes them."""
    store = Dispatcher(await opened(place, token))
    await filled(await opened(place, "root"))
    assert store.capabilities.platform

    for handle in handles(store):
        assert (await handle.set(max_running=1)).version == 1
        assert (await handle.pause("down", "ann")).settings.paused is not None
        assert (await handle.resume("ann")).settings.max_running == 1
        [running] = (await handle.counts()).counts.values()
        assert running == 1
    with pytest.raises(InvalidInput, match="Did you mean 'send'"):
        await platform(store).type("sent").set(max_running=1)
    assert set(await scopes(store, "")) == {handle.scope for handle in handles(store)}

    found = await explain(store, Ref(ACME, "mine"))
    gates = [gate for gate in found.gates if gate.kind is BlockerKind.LIMIT]
    assert [gate.holders for gate in gates] == [(f"{GLOBEX}: 1",)] * 3


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(StoreError, match="not allowed"):
        await call


@each_other
async def test_others_are_refused_through_a_service(
    place: Place, opened: Opened, token: str
) -> None:
    """P7, P19: they neither read nor change what limits all tenants."""
    root, store = Dispatcher(await opened(place, "root")), Dispatcher(await opened(place, token))
    await filled(await opened(place, "root"))
    for handle in handles(root):
        await handle.set(max_running=1, rate="1/d")
    before = await scopes(root, "")

    for handle in handles(store):
        acts: list[Callable[[], Awaitable[Any]]] = [handle.get, handle.counts]
        for act in acts:
            await refused(act())
        await refused(handle.set(max_running=5))
        await refused(handle.pause("mine", "me"))
        await refused(handle.resume("me"))
    await refused(store.count(None, by=ScopeKind.TYPE))
    await refused(store.count("", by=ScopeKind.QUEUE))

    assert await scopes(root, "") == before
    assert not {scope for scope in await scopes(root) if not scope.of_platform}
    found = await explain(store, Ref(ACME, "mine"))
    limits = [gate for gate in found.gates if gate.kind is BlockerKind.LIMIT]
    assert [(gate.words, gate.holders, gate.until) for gate in limits] == [
        ("the platform's limit", (), None)
    ] * 3
    assert {gate.scope for gate in limits if gate.scope} == {
        PLATFORM,
        Scope("", ScopeKind.QUEUE, MAIL),
        Scope("", ScopeKind.TYPE, "send"),
    }


async def test_events_of_the_platform_reach_no_tenant(place: Place, opened: Opened) -> None:
    """P7, P14: but those who read the log of all tenants."""
    root = Dispatcher(await opened(place, "root"))
    await platform(root).set(max_running=1)

    for token, sees in (("root", True), ("operator of all", True), ("acme", False)):
        page = await (await opened(place, token)).events(None, 0, 1000)
        assert (PLATFORM.name in {event.job_id for event in page.events}) is sees, token


async def test_a_service_whose_store_has_no_such_limits_says_so(
    place: Place, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sent."""
    inner = place.service.store.inner
    less = msgspec.structs.replace(inner.capabilities, platform=False)
    monkeypatch.setattr(inner, "capabilities", less)
    store = Dispatcher(await opened(place, "root"))

    assert not store.capabilities.platform
    with pytest.raises(StoreUnsupported, match="limits of the platform"):
        await platform(store).set(max_running=1)
