"""Joins: bounded releases, tenants in turn, several shards, and texts that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.copies import one_of_each, sharded
from tests.stores.redis.spoil import spoil

from holdfast.core.bounds import EDGES_MAX, KEEP_AGAIN_S, RELEASE_MAX
from holdfast.core.job import EDGE_BYTES, Completed, Failed, NewJob, Reason, State
from holdfast.core.journal import Edge
from holdfast.core.lifecycle import completion
from holdfast.core.scope import Scope
from holdfast.store import Act, Claim, Ref
from holdfast.stores.redis.enqueue import SCRIPT_BYTES_MAX
from holdfast.stores.redis.journal import EDGES_PART, ROW_EDGES_MAX
from holdfast.stores.redis.rows import name_of
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    LEASE,
    changing,
    finding,
    ids,
    job,
    rules,
)
from holdfast.testing.contract.joins import RUN, flow, run
from holdfast.testing.contract.joins import node as linked

Open = Callable[..., Awaitable[RedisStore]]

NOBODY = ("nobody",)
"""Queues of a claim that takes no job, and so only follows edges."""


def key(store: Any, name: str) -> str:
    return f"{{{store.options.prefix}0}}:{name}"


def left(node: RedisNode, store: Any) -> dict[str, list[int]]:
    """How many edges of the jobs that are not done yet were followed, by tenant."""
    tenants = [each.decode() for each in node.ask("ZRANGE", key(store, "releasing"), 0, -1)]
    return {
        tenant: [
            int.from_bytes(text[1:5])
            for text in node.ask("LRANGE", key(store, f"releasing:{tenant}"), 0, -1)
        ]
        for tenant in tenants
    }


def keys(node: RedisNode, store: Any) -> set[str]:
    """Those that do not go by themselves."""
    found = node.ask("KEYS", f"{{{store.options.prefix}*")
    return {each.decode().partition("}:")[2] for each in found if node.ask("PTTL", each) < 0}


def dead(id: str, number: int, tenant: str = ACME, **options: Any) -> NewJob:
    """A job with so many edges to jobs that are not there."""
    return linked(id, *(f"no{each}" for each in range(number)), tenant=tenant, **options)


async def children(bench: Bench, number: int) -> list[str]:
    """Jobs that each await one parent."""
    found = [f"c{n}" for n in range(number)]
    for start in range(0, number, 500):
        await bench.add(*(linked(id, after=1) for id in found[start : start + 500]))
    return found


async def ready(bench: Bench) -> int:
    [tally] = await bench.store.count(ACME)
    return tally.counts.get(State.ENQUEUED, 0)


# -- bounded, in turn ------------------------------------------------------------------------------


async def test_each_call_follows_so_many_edges(bench: Bench, node: RedisNode) -> None:
    """P15, P17: the ack and each of the next claims; then nothing is left behind."""
    targets = await children(bench, 2 * RELEASE_MAX + 500)
    await bench.add(*[linked("a", *targets)])

    await run(bench, "a")

    assert await ready(bench) == RELEASE_MAX
    assert left(node, bench.store) == {ACME: [RELEASE_MAX]}
    await bench.claim(1, queues=NOBODY)
    assert await ready(bench) == 2 * RELEASE_MAX
    await bench.claim(1, queues=NOBODY)
    assert await ready(bench) == len(targets)
    assert left(node, bench.store) == {}
    assert node.ask("HGET", key(bench.store, "heads"), "releasing") == b"0"


async def test_claims_follow_the_edges_of_tenants_in_turn(bench: Bench, node: RedisNode) -> None:
    """P19: a wide release of one tenant does not delay that of another."""
    await bench.add(dead("a", EDGES_MAX, "wide"), dead("a", RELEASE_MAX + 200, "small"))
    await bench.store.cancel([Ref("wide", "a")])
    await bench.store.cancel([Ref("small", "a")])
    assert left(node, bench.store) == {"wide": [RELEASE_MAX], "small": [RELEASE_MAX]}

    await bench.claim(1, queues=NOBODY)

    assert left(node, bench.store) == {"wide": [2 * RELEASE_MAX - 200]}


async def test_many_ends_of_one_call_share_its_edges(bench: Bench, node: RedisNode) -> None:
    """P19: those of tenants that ended jobs together are followed in turn as well."""
    wide, small = dead("a", EDGES_MAX, "wide"), [linked("p", "q", tenant="small", how=RUN)]
    await bench.add(wide, *small, linked("q", after=1, tenant="small"))

    await bench.store.cancel([Ref("wide", "a"), Ref("small", "p")])

    assert left(node, bench.store) == {"wide": [RELEASE_MAX - 1]}
    assert ids(await bench.claim(10, tenants=("small",))) == ["q"]


async def test_more_tenants_than_a_claim_can_serve_are_served_by_the_next(
    bench: Bench, node: RedisNode
) -> None:
    """P19: whoever has more edges than a turn does not keep those after it from theirs."""
    tenants = [f"t{number:02}" for number in range(25)]
    for tenant in tenants:
        await bench.add(dead("a", RELEASE_MAX + 60, tenant))
        await bench.store.cancel([Ref(tenant, "a")])

    await bench.claim(1, queues=NOBODY)
    await bench.claim(1, queues=NOBODY)
    assert len(left(node, bench.store)) < len(tenants)
    await bench.claim(1, queues=NOBODY)

    assert left(node, bench.store) == {}


async def test_an_idle_claim_does_nothing_for_flows(bench: Bench, node: RedisNode) -> None:
    """P17: what waits and what was followed costs idle claims no command."""
    await bench.put("later", delay_us=LEASE)
    await bench.claim(10)
    node.ask("CONFIG", "RESETSTAT")
    await bench.claim(10)
    before = _calls(node)
    await flow(bench, dead("x", RELEASE_MAX + 10), linked("b", after=1), linked("a", "b"))
    await bench.store.cancel([Ref(ACME, "x")])
    await bench.claim(2)

    node.ask("CONFIG", "RESETSTAT")
    await bench.claim(10)

    assert _calls(node) == before


def _calls(node: RedisNode) -> dict[str, int]:
    found = node.ask("INFO", "commandstats")
    return {name: each["calls"] for name, each in found.items() if "config" not in name}


# -- races -----------------------------------------------------------------------------------------


async def test_two_last_parents_at_once_release_their_child_once(bench: Bench) -> None:
    """P17: whichever connection comes first."""
    other = bench._make()
    await other.open()
    for number in range(20):
        child = f"c{number}"
        first, second = linked(f"a{number}", child), linked(f"b{number}", child)
        await flow(bench, first, second, linked(child, after=2))
        ends = [completion(ACME, one.job.id, one.token) for one in await bench.claim(10)]

        [mine], [others] = await asyncio.gather(bench.store.ack(ends[:1]), other.ack(ends[1:]))

        assert (mine.error, others.error) == (None, None)
        await run(bench, child)
        assert await bench.kinds(child) == ["enqueued", "ready", "leased", "completed"]
    await other.close()


# -- keeping ---------------------------------------------------------------------------------------


async def test_a_flow_that_was_pruned_leaves_nothing_behind(bench: Bench, node: RedisNode) -> None:
    """P17: neither edges nor joins nor journals, however its jobs ended."""
    await flow(
        bench,
        linked("a", "b", "c", rules=rules(keep_us=0)),
        linked("b", "d", after=1, rules=rules(keep_us=0)),
        linked("c", "d", after=1, how=RUN),
        dead("wide", 3 * EDGES_PART),
        dead("gone", RELEASE_MAX + 1),
        linked("d", after=2),
    )
    leases = {lease.job.id: lease for lease in await bench.claim(10)}
    await bench.step(leases["a"], "s")
    await bench.end(leases["wide"], Failed("no", retryable=False))
    await bench.end(leases["gone"], Failed("no", after_us=LEASE))
    await bench.end(leases["a"], Completed())
    for lease in await bench.claim(10):
        await bench.send(lease.job.id, "go")
        await bench.end(lease, Completed())
    await bench.store.change(changing(Act.DELETE, ids=("gone",)))
    await bench.cancel("d")
    for _ in range(3):
        await bench.claim(1, queues=NOBODY)
        bench.clock.advance(8 * 24 * 3600)
        await bench.store.prune(1000, 0)

    assert keys(node, bench.store) <= {"heads", "meta", "events"}


async def test_a_record_may_go_before_its_edges_are_followed(bench: Bench, node: RedisNode) -> None:
    """P17: they are followed all the same, and then nothing of it is left."""
    edges = (*dead("a", RELEASE_MAX).edges, Edge("last"))
    await flow(bench, job("a", edges=edges), linked("last", after=1))
    await bench.cancel("a")
    await bench.store.change(changing(Act.DELETE, ids=("a",)))
    assert await bench.peek("a") is None
    assert await bench.state("last") is State.WAITING

    await bench.claim(1, queues=NOBODY)

    assert (await bench.get("last")).reason is Reason.PARENT_FAILED
    assert (await bench.get("last")).error == "its parent a was canceled"
    assert "edges" not in keys(node, bench.store)


async def test_prune_looks_at_jobs_with_living_targets_again_later(bench: Bench) -> None:
    """P15, P19: they hold up nobody else's, and a call looks at a bounded number of edges."""
    keep = rules(keep_us=0)
    await flow(bench, *(linked(f"a{n}", "b", rules=keep) for n in range(20)), linked("b", after=21))
    await bench.add(*(dead(f"d{n}", 1000, rules=keep) for n in range(10)))
    await bench.put("z", rules=rules(keep_us=1))
    for lease in await bench.claim(100):
        await bench.end(lease, Completed())
    bench.clock.advance(1)

    first = await bench.store.prune(500, LEASE)
    assert first.more
    assert first.jobs < 10
    again = await bench.store.prune(500, LEASE)

    found = {one.id for one in (await bench.store.find(finding())).jobs}
    assert first.jobs + again.jobs == 11
    assert found == {"b", *(f"a{n}" for n in range(20))}
    await bench.cancel("b")
    bench.clock.advance(KEEP_AGAIN_S)
    await bench.store.prune(10_000, LEASE)
    assert [one.id for one in (await bench.store.find(finding())).jobs] == ["b"]


async def test_edges_count_for_the_cap_of_their_tenant(bench: Bench) -> None:
    """P13, P19: while their job has not ended; a replay has none."""
    await bench.configure(Scope(ACME), max_bytes=1000)
    wide = tuple(Edge(f"t{n}") for n in range(10))
    size = sum(len(edge.target) + EDGE_BYTES for edge in wide)
    for number in range(3):
        [answer] = await bench.add(job(f"a{number}", edges=wide))
        assert answer.created
    [refused] = await bench.add(job("big", edges=wide * (1000 // size)))
    assert refused.error is not None
    for lease in await bench.claim(10):
        await bench.end(lease, Failed("no", retryable=False))

    await bench.store.change(changing(Act.REPLAY))

    assert (await bench.store.count(ACME, recount=True))[0].correction == 0
    tiny = await bench.add(job("late", edges=wide * (900 // size)))
    assert tiny[0].created


# -- what is hostile, what cannot be read ----------------------------------------------------------


@pytest.mark.parametrize("name", ["1:2:x", "\u00e9\u2603", "x" * 200, "f:0", "%", "a,b|c", "'q'"])
async def test_a_name_is_a_name_whatever_is_in_it(bench: Bench, name: str) -> None:
    """P7: of a job, of a tenant, and of a join."""
    await bench.add(linked(name, name + "!", tenant=name), linked(name + "!", after=1, tenant=name))
    await bench.put(name)

    [lease] = await bench.claim(10, tenants=(name,))
    await bench.end(lease, Completed())

    assert ids(await bench.claim(10, tenants=(name,))) == [name + "!"]


async def test_a_parent_that_cannot_be_read_tells_its_children(bench: Bench) -> None:
    """P17, P19: the claim that makes a dead letter of it follows its edges."""
    await flow(bench, linked("a", "b"), linked("b", after=1))
    await spoil(bench.store, Ref(ACME, "a"))

    assert await bench.claim(10) == []

    assert (await bench.get("a")).reason is Reason.DECODE
    assert (await bench.get("b")).reason is Reason.PARENT_FAILED


@pytest.mark.parametrize("text", [b"", b"\0", b"\xff\xff", b"\0\1f\xff\xff", b"\0\1x\0\1b"])
async def test_edges_that_cannot_be_read_stop_no_other_flow(
    bench: Bench, node: RedisNode, text: bytes
) -> None:
    """P19: neither an ack, nor a page, a claim or a prune."""
    nobody = [f"no{number}" for number in range(ROW_EDGES_MAX)]
    children = [linked(id, after=1) for id in ("b", "y")]
    await flow(bench, linked("a", "b", *nobody), linked("x", "y"), *children)
    seq = f"{(await bench.get('a')).seq:016}"
    assert node.ask("HGET", key(bench.store, "edges"), seq)
    node.ask("HSET", key(bench.store, "edges"), seq, text)
    leases = await bench.claim(10)

    for lease in leases:
        await bench.end(lease, Completed())

    assert "y" in ids(await bench.claim(10))
    assert (
        len((await bench.store.find(msgspec.structs.replace(finding(), journals=True))).jobs) == 4
    )
    bench.clock.advance(48 * 3600)
    await bench.store.prune(100, LEASE)
    assert await bench.peek("a") is None


@pytest.mark.parametrize("text", [b"", b"\0" * 11, b"\xff" * 13])
async def test_a_join_that_cannot_be_read_stops_no_other(
    bench: Bench, node: RedisNode, text: bytes
) -> None:
    """P19: its job waits; it can be canceled, and others go on."""
    both = ("b", "c")
    await flow(bench, linked("a", *both), linked("x", *both), *(linked(id, after=2) for id in both))
    node.ask("HSET", key(bench.store, "parents"), name_of(ACME, "b"), text)

    for lease in await bench.claim(2):
        await bench.end(lease, Completed())

    await run(bench, "c")
    assert (await bench.cancel("b")).canceled


async def test_what_is_left_cannot_be_read_and_stops_no_other(
    bench: Bench, node: RedisNode
) -> None:
    """P19: it is dropped."""
    await flow(bench, dead("a", RELEASE_MAX + 5), linked("x", "y"), linked("y", after=1))
    await bench.cancel("a")
    node.ask("LPUSH", key(bench.store, f"releasing:{ACME}"), b"rubbish")

    await bench.claim(1, queues=NOBODY)

    assert left(node, bench.store) == {}
    await run(bench, "x")
    await run(bench, "y")


async def test_a_flow_is_enqueued_in_one_step(bench: Bench, node: RedisNode) -> None:
    """P17: however large it is: else a parent could end before its child is there."""
    body = b"x" * (SCRIPT_BYTES_MAX // 2)
    envelope = msgspec.structs.replace(job("x").envelope, body=body)
    chain = [linked("a", "b"), linked("b", "c", after=1), linked("c", after=1)]
    loose = [job(id) for id in ("x", "y", "z")]
    calls = []
    for jobs in (chain, loose):
        node.ask("CONFIG", "RESETSTAT")
        await bench.add(*(msgspec.structs.replace(one, envelope=envelope) for one in jobs))
        calls.append(_calls(node)["cmdstat_evalsha"])

    assert calls == [1, 2]


# -- several shards --------------------------------------------------------------------------------


async def test_edges_of_all_shards_are_followed(node: RedisNode, opened: Open) -> None:
    """P17, P19: a claim over all of them goes on with what each has left."""
    store = await opened(sharded(node.fresh()))
    tenants = one_of_each(store)
    for tenant in tenants:
        edges = (*dead("a", RELEASE_MAX, tenant).edges, Edge("last", "", RUN))
        await store.enqueue([job("a", tenant=tenant, edges=edges)])
        await store.enqueue([linked("last", after=1, tenant=tenant)])
    await store.cancel([Ref(tenant, "a") for tenant in tenants])

    claim = Claim(worker="w", nonce="n", limit=100, lease_us=LEASE)
    leases = await store.claim(claim)

    assert sorted((one.job.tenant, one.job.id) for one in leases) == sorted(
        (tenant, "last") for tenant in tenants
    )
