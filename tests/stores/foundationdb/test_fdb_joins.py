"""Joins in the keys: bounded parts, tenants in turn, and many ends at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from tests.foundationdb_engine import Engine, Faults
from tests.stores.foundationdb.test_fdb_journal import keys_of, leftovers
from tests.stores.foundationdb.test_fdb_signal import stores_at

from holdfast.core.bounds import EDGES_MAX, PAGE_MAX, RELEASE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, EventKind, Failed, Outcome, Reason, State
from holdfast.core.journal import Edge, Join
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Claim
from holdfast.stores.foundationdb import binding, joins, maintenance
from holdfast.stores.foundationdb.ack import ack_jobs
from holdfast.stores.foundationdb.errors import NOT_COMMITTED, code_of
from holdfast.stores.foundationdb.journal import JOIN_FEW
from holdfast.stores.foundationdb.layout import Space, after
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    GLOBEX,
    LEASE,
    changing,
    finding,
    ids,
    job,
    rules,
    tenant_of,
)
from holdfast.testing.contract.joins import RUN, join, node

WASTED_MAX = 0.35
SEEDS = range(25)


async def wide(bench: Bench, number: int, tenant: str = ACME, id: str = "top") -> None:
    """A job that so many others await."""
    targets = [f"{id}-{n}" for n in range(number)]
    for start in range(0, number, 500):
        some = targets[start : start + 500]
        await bench.add(*(node(each, after=1, tenant=tenant) for each in some))
    await bench.add(node(id, *targets, tenant=tenant))


async def waiting(bench: Bench, tenant: str = ACME) -> int:
    return (await bench.tally(tenant_of(tenant))).counts.get(State.WAITING, 0)


# -- bounded parts ---------------------------------------------------------------------------------


async def test_each_call_follows_so_many_edges(bench: Bench, engine: Engine) -> None:
    """P15: the ack a part, each claim another; then nothing is left of them."""
    await wide(bench, 3 * RELEASE_MAX)
    [lease] = await bench.claim(1)

    await bench.end(lease, Completed())
    assert await waiting(bench) == 2 * RELEASE_MAX
    for left in (RELEASE_MAX, 0):
        await bench.claim(1)
        assert await waiting(bench) == left

    keys = keys_of(bench)
    for space in (Space.RELEASING, Space.REOPEN):
        prefix = keys.all(space)
        assert list(engine.database().get_range(prefix, after(prefix))) == []


async def test_a_wide_release_does_not_delay_that_of_another_tenant(bench: Bench) -> None:
    """P19: tenants with edges left are in turn, whoever was first."""
    await wide(bench, 3 * RELEASE_MAX, ACME)
    await wide(bench, RELEASE_MAX + 100, GLOBEX)
    for lease in await bench.claim(2):
        await bench.end(lease, Completed())
    assert await waiting(bench, GLOBEX) == 100

    await bench.claim(1)

    assert await waiting(bench, GLOBEX) == 0
    assert await waiting(bench, ACME) > 0


async def test_ends_of_one_call_are_followed_in_turn(bench: Bench) -> None:
    """P19: one ack that ends jobs of both tenants."""
    await wide(bench, 2 * RELEASE_MAX, ACME)
    await wide(bench, 100, GLOBEX)
    leases = await bench.claim(2)

    await bench.store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])

    assert await waiting(bench, GLOBEX) == 0
    assert await waiting(bench, ACME) == RELEASE_MAX + 100


async def test_a_deleted_job_is_followed_to_its_last_edge(bench: Bench, engine: Engine) -> None:
    """P17: its edges stay until then, whether it lived or had ended; a job of its id is another."""
    await wide(bench, RELEASE_MAX + 200, id="x")
    await wide(bench, RELEASE_MAX + 200, id="y")
    first, _ = await bench.claim(2)
    await bench.end(first, Completed())
    await bench.cancel("y" if first.job.id == "x" else "x")
    await bench.store.change(changing(Act.DELETE, ids=("x", "y")))
    await bench.add(node("x"), node("y"))

    for _ in range(4):
        await bench.claim(10)

    assert await waiting(bench) == 0
    prefix = keys_of(bench).own(ACME, Space.EDGES)
    assert list(engine.database().get_range(prefix, after(prefix))) == []


async def test_ten_thousand_edges_lead_nowhere(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: bounded steps, also of prune, and nothing stays."""
    monkeypatch.setattr(maintenance, "TARGETS_MAX", 1000)
    edges = tuple(Edge(f"nobody-{n}-{'ü' * 100}", "ü" * 100) for n in range(EDGES_MAX))
    await bench.add(job("a", edges=edges, rules=rules(keep_us=0)))
    await bench.end(await bench.one(), Completed())
    for _ in range(EDGES_MAX // RELEASE_MAX):
        assert await bench.claim(1) == []

    for _ in range(3):
        bench.clock.advance(61)
        await bench.store.prune(PAGE_MAX, SECOND)

    assert await bench.peek("a") is None
    assert leftovers(bench, engine) == []


async def test_a_result_is_looked_at_again_where_one_child_lives(bench: Bench) -> None:
    """P17: prune remembers which of many have ended."""
    await wide(bench, 200)
    [lease] = await bench.claim(1)
    await bench.end(lease, Completed(b"7"))
    leases = await bench.claim(200)
    await bench.store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases[:-1]])
    bench.clock.advance(3 * 3600)
    again = await bench.one()
    await bench.store.prune(1000, SECOND)
    assert (await bench.get("top")).result == b"7"

    await bench.end(again, Completed())
    bench.clock.advance(61)
    await bench.store.prune(1000, SECOND)

    assert await bench.peek("top") is None


async def test_what_cannot_be_read_stops_nobody(bench: Bench, engine: Engine) -> None:
    """P15: edges, a job in RELEASING, a join; the others are followed."""
    await wide(bench, 60, id="x")
    await wide(bench, RELEASE_MAX + 50, id="y")
    await wide(bench, 2, id="z")
    keys, database = keys_of(bench), engine.database()
    [x] = (await bench.store.find(finding(ids=("x",)))).jobs
    database[keys.edges(ACME, x.seq) + b"\0\0"] = b"\xc1"
    database[keys.journal(ACME, "z-0") + b"\4\0"] = b"\xc1"
    leases = {lease.job.id: lease for lease in await bench.claim(3)}
    await bench.end(leases["y"], Completed())
    prefix = keys.all(Space.RELEASING)
    [(key, _)] = database.get_range(prefix, after(prefix))
    database[bytes(key)] = b"\xc1"

    await bench.end(leases["x"], Completed())
    await bench.end(leases["z"], Completed())

    found = set(ids(await bench.claim(2 * RELEASE_MAX)))
    assert {"x-50", "x-59", "z-1"} <= found
    assert not {"x-0", "z-0"} & found
    assert list(database.get_range(prefix, after(prefix))) == []


# -- many at once ----------------------------------------------------------------------------------


async def ended(store: FoundationStore, id: str) -> list[EventKind]:
    page = await store.events(ACME, 0, 100_000, id)
    return [event.kind for event in page.events]


async def test_many_ends_of_one_join_rarely_meet(
    record_property: Callable[[str, object], None],
) -> None:
    """P17: sixteen stores ack 1,600 jobs that one awaits. It is released once, by the last."""
    number, stores_n, each = 1600, 16, 10
    engine = Engine(ManualClock(), faults=Faults(seed=1, delay=0.8))
    stores = await stores_at(engine, stores_n)
    jobs = [job(f"p{n}", edges=(Edge("end", "", RUN),)) for n in range(number)]
    await stores[0].enqueue([job("end", parents=number)])
    for start in range(0, number, 400):
        await stores[0].enqueue(jobs[start : start + 400])
    leases = []
    for call in range(number // 400):
        claim = Claim(worker="w", nonce=f"n{call}", limit=400, lease_us=LEASE)
        leases += await stores[0].claim(claim)
    assert len(leases) == number
    before = engine.counts

    async def finish(place: int) -> None:
        mine = leases[place::stores_n]
        for start in range(0, len(mine), each):
            some = mine[start : start + each]
            acks = [decide(Completed(), one.job, one.token, 0.0) for one in some]
            answers = await stores[place].ack(acks)
            assert all(answer.error is None for answer in answers)

    await asyncio.gather(*map(finish, range(stores_n)))

    after_ = engine.counts
    tries, done = after_.attempts - before.attempts, after_.commits - before.commits
    wasted = 1 - done / tries
    record_property("wasted", round(wasted, 4))
    print(f"joins: {tries} tries, {tries - done} in vain ({wasted:.1%})")
    [lease] = await stores[1].claim(Claim(worker="w", nonce="last", limit=10, lease_us=LEASE))
    assert lease.job.id == "end"
    assert (await ended(stores[0], "end")).count(EventKind.READY) == 1
    assert wasted <= WASTED_MAX
    for store in stores:
        await store.close()


class Chosen:
    """Chooses the parts in their order, or always the same place."""

    def __init__(self, place: int | None = None) -> None:
        self._place = place
        self._calls = 0

    def choice(self, parts: list[bytes]) -> bytes:
        self._calls += 1
        return parts[(self._calls if self._place is None else self._place) % len(parts)]


@pytest.mark.parametrize("last", [2, 3, 4])
async def test_of_steps_that_empty_the_last_parts_at_once_one_is_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """P17: each in a part of its own. Otherwise each took the others for witnesses that more ends
    are awaited, and the child would wait for ever.
    """
    store = bench.store
    assert isinstance(store, FoundationStore)
    number = JOIN_FEW
    monkeypatch.setattr(joins, "_chance", Chosen())
    await bench.add(job("end", parents=number))
    await bench.add(*(job(f"p{n}", edges=(Edge("end"),)) for n in range(number)))
    acks = [decide(Completed(), one.job, one.token, 0.0) for one in await bench.claim(number)]
    for each in acks[:-last]:
        await store.ack([each])
    steps = []
    for place, each in enumerate(acks[-last:]):
        monkeypatch.setattr(joins, "_chance", Chosen(place))
        step = await store._open().step()
        await ack_jobs(step, [each])
        step.flush()
        steps.append(step)

    codes = []
    for step in steps:
        try:
            await binding.ready(step.tr.commit())
        except Exception as error:
            codes.append(code_of(error))

    assert set(codes) == {NOT_COMMITTED}
    assert await bench.state("end") is State.WAITING
    await store.ack(acks)
    assert await join(bench, "end") == Join(number, 0)
    assert (await bench.kinds("end")).count(EventKind.READY) == 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_last_parents_end_at_once_while_the_cluster_fails(seed: int) -> None:
    """P17: however commits conflict or are lost, each counts once, and the child is released once;
    one that is deleted meanwhile leaves nothing.
    """
    number = (2, 15, 16, 40)[seed % 4]
    faults = Faults(seed, conflict=0.05, unknown=0.1, delay=0.6)
    engine = Engine(ManualClock(), faults=faults)
    stores = await stores_at(engine, 4)
    edges = (Edge("end", "", RUN), Edge("gone", "", RUN))
    await stores[0].enqueue([job("end", parents=number), job("gone", parents=number)])
    await stores[0].enqueue([job(f"p{n}", edges=edges) for n in range(number)])
    leases = await stores[0].claim(Claim(worker="w", nonce="n", limit=100, lease_us=LEASE))
    outcomes: list[Outcome] = [Completed(), Failed("no", retryable=False)]
    acks = [decide(outcomes[n % 2], lease.job, lease.token, 0.0) for n, lease in enumerate(leases)]
    delete = changing(Act.DELETE, ids=("gone",), states=(State.WAITING,))

    await asyncio.gather(
        *(stores[n % 4].ack([each]) for n, each in enumerate(acks)), stores[3].change(delete)
    )

    faults.heal()
    bench = Bench(lambda: stores[0], engine.clock)  # type: ignore[arg-type]
    assert await join(bench, "end") == Join(number, 0, number // 2)
    assert (await ended(stores[0], "end")).count(EventKind.READY) == 1
    claim = Claim(worker="w", nonce="m", limit=100, lease_us=LEASE)
    assert "end" in ids(await stores[1].claim(claim))
    if await bench.peek("gone") is None:
        prefix = keys_of(bench).journal(ACME, "gone")
        assert list(engine.database().get_range(prefix, after(prefix))) == []
    for store in stores:
        await store.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_claims_follow_what_is_left_once_while_the_cluster_fails(seed: int) -> None:
    """P17: several stores at once; each child is released once and claimed once."""
    number = RELEASE_MAX + 300
    faults = Faults(seed, conflict=0.05, unknown=0.1, delay=0.3)
    engine = Engine(ManualClock(), faults=faults)
    stores = await stores_at(engine, 3)
    targets = [f"c{n}" for n in range(number)]
    for start in range(0, number, 650):
        await stores[0].enqueue([job(id, parents=1) for id in targets[start : start + 650]])
    await stores[0].enqueue([job("a", edges=tuple(Edge(id) for id in targets))])
    [lease] = await stores[0].claim(Claim(worker="w", nonce="n", limit=1, lease_us=LEASE))
    await stores[0].ack([decide(Completed(), lease.job, lease.token, 0.0)])
    taken: Counter[str] = Counter()

    async def work(place: int) -> None:
        for call in range(20):
            nonce = f"{place}-{call}"
            claim = Claim(worker="w", nonce=nonce, limit=200, lease_us=LEASE)
            taken.update(ids(await stores[place].claim(claim)))

    await asyncio.gather(*map(work, range(3)))

    assert taken == Counter(targets)
    for store in stores:
        await store.close()


# -- chains ----------------------------------------------------------------------------------------


async def test_a_long_chain_fails_in_bounded_steps(bench: Bench, engine: Engine) -> None:
    """P15, P17: each call a part of it, to its end; then nothing is left to follow."""
    number = 4000
    for start in range(0, number, 400):
        await bench.add(
            *(
                node(f"n{n}", *([f"n{n + 1}"] if n + 1 < number else []), after=min(n, 1))
                for n in range(start, start + 400)
            )
        )
    await bench.cancel("n0")
    failed = number - 1 - await waiting(bench)
    assert failed <= RELEASE_MAX

    for _ in range(number // 100):
        await bench.claim(1)
        if await waiting(bench) == 0:
            break

    last = await bench.get(f"n{number - 1}")
    assert (last.state, last.reason) == (State.FAILED, Reason.PARENT_FAILED)
