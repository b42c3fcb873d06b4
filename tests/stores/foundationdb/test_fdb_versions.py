"""The format of the keys: who works with another one is told so, and `migrate` brings it up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import ConfigError, SchemaTooNew, SchemaTooOld
from holdfast.core.job import Completed, Lease
from holdfast.core.journal import Signal
from holdfast.core.lifecycle import decide
from holdfast.core.scope import ScopeSettings, encode
from holdfast.store import Act, Claim, Extension, Put, Ref, Take
from holdfast.stores.foundationdb import limits_caps, migrate
from holdfast.stores.foundationdb.layout import FORMAT, Space, after
from holdfast.stores.foundationdb.options import Options, parse
from holdfast.stores.foundationdb.rows import Row, pack
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    LEASE,
    changing,
    finding,
    group_of,
    job,
    queue_of,
    tenant_of,
)

OLD = 1


class Place:
    """An installation, and stores on it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Engine(self.clock)

    def store(self, **options: Any) -> FoundationStore:
        database = self.engine.database()
        return FoundationStore(Options(prefix="c", **options), self.clock, database)

    async def open(self, **options: Any) -> FoundationStore:
        store = self.store(**options)
        await store.open()
        return store

    async def set_format(self, store: FoundationStore, format: int) -> None:
        """As a process of another version would."""
        database = self.engine.database()
        key = store._open().keys.all(Space.META)
        database[key] = bytes([format]) + bytes(database[key])[1:]

    def all(self, store: FoundationStore) -> dict[bytes, bytes]:
        """Every key but the marks of calls."""
        marks = store._open().keys.all(Space.MARKS)
        pairs = self.engine.database().get_range(b"", b"\xfe")
        return {bytes(key): bytes(value) for key, value in pairs if not key.startswith(marks)}

    async def make_second(self, store: FoundationStore) -> None:
        """As the second format left it: its rows end with `aside`."""
        database, keys = self.engine.database(), store._open().keys
        last = Row.__struct_fields__.index("aside") + 1
        for tenant in (ACME, GLOBEX):
            rows = keys.own(tenant, Space.ROWS)
            for key, value in list(database.get_range(rows, after(rows))):
                database[bytes(key)] = pack(msgspec.msgpack.decode(bytes(value))[:last])
        await self.set_format(store, 2)

    async def make_old(self, store: FoundationStore) -> None:
        """As the first format left it: without what the second one keeps besides."""
        database, keys = self.engine.database(), store._open().keys
        database.clear_range(keys.all(Space.TENANTS), after(keys.all(Space.TENANTS)))
        counts = keys.all(Space.COUNTS)
        for key, _ in database.get_range(counts, after(counts)):
            if bytes(key)[-1:] in (limits_caps.SLOTS, limits_caps.QUEUES, limits_caps.GROUPS):
                database.clear(key)
        await self.set_format(store, OLD)


def wish(nonce: str) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=10, lease_us=LEASE)


def settled(lease: Lease) -> Any:
    return decide(Completed(), lease.job, lease.token, 0.0)


VERBS: dict[str, Callable[[FoundationStore, Lease], Awaitable[Any]]] = {
    "enqueue": lambda store, held: store.enqueue([job("new")]),
    "claim": lambda store, held: store.claim(wish("other")),
    "extend": lambda store, held: store.extend(
        [Extension(tenant=ACME, id=held.job.id, token=held.token, lease_us=LEASE)]
    ),
    "ack": lambda store, held: store.ack([settled(held)]),
    "signal": lambda store, held: store.signal([Signal(ACME, "b", "go", b"1")]),
    "cancel": lambda store, held: store.cancel([Ref(ACME, "b")]),
    "change": lambda store, held: store.change(changing(Act.DELETE, ids=("b",))),
    "expired": lambda store, held: store.expired(10),
    "prune": lambda store, held: store.prune(10, SECOND),
    "find": lambda store, held: store.find(finding()),
    "count": lambda store, held: store.count(None),
    "explain": lambda store, held: store.explain(Ref(ACME, "b")),
    "events": lambda store, held: store.events(None, 0, PAGE_MAX),
    "settings": lambda store, held: store.settings([Put("a", b"1", 0)]),
    "hold": lambda store, held: store.hold([Take("a", "w", SECOND)]),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("format", "error"), [(OLD, SchemaTooOld), (FORMAT + 1, SchemaTooNew)])
async def test_no_verb_works_on_keys_of_another_format(
    verb: str, format: int, error: type[Exception]
) -> None:
    """P4: a process of another version stops at once, before it writes; and goes on afterwards."""
    place = Place()
    store = await place.open()
    await store.enqueue([job("a"), job("b")])
    [held] = await store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=LEASE))
    await place.set_format(store, format)
    before = place.engine.keys

    with pytest.raises(error, match=f"version {format}"):
        await VERBS[verb](store, held)

    assert place.engine.keys == before
    await place.set_format(store, FORMAT)
    await VERBS[verb](store, held)
    await store.close()


async def test_a_migration_stops_a_step_that_is_under_way() -> None:
    """P4: the format is read with a conflict, so that nothing of an older version is committed
    behind it.
    """
    place = Place()
    store = await place.open()

    async def slow(step: Step) -> None:
        step.put(step.keys.all(Space.HOLDS, b"late\0"), b"")
        await place.set_format(store, FORMAT + 1)

    before = place.engine.keys
    with pytest.raises(SchemaTooNew):
        await store._write(slow)

    assert place.engine.keys == before
    await place.set_format(store, FORMAT)
    await store.close()


async def test_an_older_installation_is_opened_by_who_is_told_to() -> None:
    """`open` refuses it, unless the URL says migrate=auto; `migrate` works although it does."""
    place = Place()
    first = await place.open()
    await place.make_old(first)

    with pytest.raises(SchemaTooOld, match="holdfast migrate"):
        await place.store().open()
    assert await place.store().migrate() == FORMAT
    await (await place.open()).close()

    await place.make_old(first)
    await (await place.open(migrate="auto")).close()
    assert await first.count(None) == []
    await first.close()


async def test_jobs_of_the_second_format_go_on_in_the_newest() -> None:
    """Their rows say nothing of journals and edges: they have none, and can have a journal."""
    place = Place()
    store = await place.open()
    await store.enqueue([job("a"), job("b", tenant=GLOBEX), job("big", body=b"x" * 5000)])
    whole = place.all(store)
    await place.make_second(store)

    with pytest.raises(SchemaTooOld, match="holdfast migrate"):
        await place.store().open()
    assert await place.store().migrate() == FORMAT

    assert place.all(store).keys() == whole.keys()
    assert [one.stored for one in await store.signal([Signal(ACME, "a", "go", b"1")])] == [True]
    leases = {lease.job.id: lease for lease in await store.claim(wish("n"))}
    assert [len(leases[id].journal) for id in ("a", "b", "big")] == [1, 0, 0]
    await store.ack([settled(lease) for lease in leases.values()])
    await store.close()


@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_a_migrated_installation_is_as_a_new_one(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Every key is there that the newest format has, however many steps it took."""
    monkeypatch.setattr(migrate, "KEYS_MAX", step)
    place = Place()
    store = await place.open()
    for tenant in (ACME, GLOBEX):
        await store.enqueue(
            [job(f"{n}", tenant=tenant, queue=f"q{n % 3}", group=f"g{n % 4}") for n in range(8)]
        )
        for scope in (tenant_of(tenant), group_of("g", tenant)):
            await store.hold([Take(scope.slot(f"s{n}"), "w", SECOND) for n in range(3)])
    await store.settings([Put(queue_of().name, encode(ScopeSettings(max_running=9)), 0)])
    await store.claim(Claim(worker="w", nonce="n", limit=5, lease_us=LEASE))
    whole = place.all(store)
    await place.make_old(store)

    assert await place.store().migrate() == FORMAT

    assert place.all(store) == whole
    assert len(await store.claim(wish("rest"))) == 10
    await store.close()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("migrate=maybe", "migrate is 'maybe', must be auto or never"),
        ("grace_s=59", "grace_s is 59, must be at least twice skew_s"),
        ("skew_s=31", "at least twice skew_s"),
        ("skew_s=nan", "skew_s is 'nan'"),
    ],
)
def test_a_bad_option_is_refused_by_name(query: str, words: str) -> None:
    """ConfigError names it, and says what it may be."""
    with pytest.raises(ConfigError, match=words):
        parse(f"fdb://?{query}")


def test_the_clocks_may_differ_by_what_the_url_says() -> None:
    """`grace_s` follows from it."""
    assert parse("fdb://?skew_s=45&grace_s=90").grace_s == 90
