"""Memory that runs out, servers that go, answers that are lost: nothing half done, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.servers.redis_node import RedisNode

from holdfast.core.errors import StoreFull, StoreUnavailable
from holdfast.core.job import Completed, State
from holdfast.core.journal import Edge, Entry, EntryKind, Signal
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Claim, Extension, Ref
from holdfast.stores.redis.claim_shards import claim_args
from holdfast.stores.redis.options import parse
from holdfast.stores.redis.rows import rows_of
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    CRAWL,
    GLOBEX,
    LEASE,
    changing,
    finding,
    group_of,
    ids,
    job,
    rules,
)

Open = Callable[..., Awaitable[RedisStore]]


def claim(limit: int, nonce: str = "n") -> Claim:
    return Claim(worker="w", nonce=nonce, limit=limit, lease_us=LEASE)


async def keys(node: RedisNode, url: str) -> dict[bytes, bytes]:
    """Every key of a store and what it holds."""
    prefix = parse(url).prefix
    found = node.ask("KEYS", f"{{{prefix}*")
    return {key: node.ask("DUMP", key) for key in found}


async def test_a_full_server_refuses_a_new_job_whole(own_node: RedisNode, opened: Open) -> None:
    """P1: StoreFull, and not one key has changed."""
    url = own_node.fresh()
    store = await opened(url)
    await store.enqueue([job("a", key="k1", group="g"), job("b")])
    before = await keys(own_node, url)
    own_node.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(StoreFull):
        await store.enqueue([job("c", key="k2", group="g"), job("d", delay_us=LEASE)])

    assert await keys(own_node, url) == before
    assert len((await store.find(finding())).jobs) == 2


async def test_a_full_server_lets_the_work_go_on(own_node: RedisNode, opened: Open) -> None:
    """P1: claims, heartbeats, acks and cancels make room; none of them may be refused."""
    store = await opened(own_node.fresh())
    await store.enqueue([job(id) for id in ("a", "b", "c")])
    own_node.ask("CONFIG", "SET", "maxmemory", "1")

    leases = await store.claim(claim(2))
    [acked] = await store.ack([decide(Completed(b"x"), leases[0].job, leases[0].token, 0.0)])
    [canceled] = await store.cancel([Ref(ACME, "c")])
    await store.prune(100, 0)

    assert len(leases) == 2
    assert acked.state is State.COMPLETED
    assert canceled.canceled
    own_node.ask("CONFIG", "SET", "maxmemory", "0")
    assert (await store.enqueue([job("d")]))[0].created


async def test_a_full_server_refuses_signals_and_keeps_steps(
    own_node: RedisNode, opened: Open
) -> None:
    """P1, P19: signals come from outside; the steps of a job that runs let it end."""
    url = own_node.fresh()
    store = await opened(url)
    child = job("child", parents=1)
    await store.enqueue([child, job("a", edges=(Edge("child"),))])
    [lease] = await store.claim(claim(2))
    before = await keys(own_node, url)
    own_node.ask("CONFIG", "SET", "maxmemory", "1")

    with pytest.raises(StoreFull):
        await store.signal([Signal(ACME, "a", "go", b"1")])

    assert await keys(own_node, url) == before
    step = Entry(EntryKind.STEP, "s", b"1")
    one = Extension(tenant=ACME, id="a", token=lease.token, lease_us=LEASE, entries=(step,))
    assert (await store.extend([one]))[0].error is None
    await store.ack([decide(Completed(b"x"), lease.job, lease.token, 0.0)])
    assert [each.job.id for each in await store.claim(claim(2, "m"))] == ["child"]
    own_node.ask("CONFIG", "SET", "maxmemory", "0")


async def test_a_full_server_lets_an_idle_worker_claim(own_node: RedisNode, opened: Open) -> None:
    """P1: nor is a claim refused that takes all there is, which has a short way of its own."""
    store = await opened(own_node.fresh())
    await store.enqueue([job("a")])
    own_node.ask("CONFIG", "SET", "maxmemory", "1")

    leases = await store.claim(claim(5))

    assert [lease.job.id for lease in leases] == ["a"]
    own_node.ask("CONFIG", "SET", "maxmemory", "0")


async def test_scripts_that_the_server_forgot_are_sent_again(node: RedisNode, opened: Open) -> None:
    """P15: after a restart or SCRIPT FLUSH nobody notices."""
    store = await opened(node.fresh())
    await store.enqueue([job("a")])
    node.ask("SCRIPT", "FLUSH")

    assert (await store.enqueue([job("b")]))[0].created
    assert len(await store.claim(claim(5))) == 2


async def test_cut_connections_are_made_anew(node: RedisNode, opened: Open) -> None:
    """P15: verbs go on by themselves."""
    store = await opened(node.fresh())
    for n in range(5):
        await asyncio.to_thread(node.cut)
        assert (await store.enqueue([job(f"j{n}")]))[0].id == f"j{n}"

    assert len((await store.find(finding())).jobs) == 5


async def test_what_was_confirmed_outlives_a_killed_server(
    own_node: RedisNode, opened: Open
) -> None:
    """P1: with appendfsync always, kill -9 loses nothing, and the store goes on."""
    store = await opened(own_node.fresh())
    await store.enqueue([job(f"j{n}") for n in range(50)])
    leases = await store.claim(claim(10))

    own_node.kill()
    restarting = asyncio.create_task(asyncio.to_thread(own_node.start))
    acked = await store.ack([decide(Completed(), each.job, each.token, 0.0) for each in leases])
    await restarting

    assert {answer.state for answer in acked} == {State.COMPLETED}
    states = [each.state for each in (await store.find(finding(limit=100))).jobs]
    assert states.count(State.COMPLETED) == 10
    assert states.count(State.ENQUEUED) == 40


async def test_a_server_that_stays_away_is_told_in_time(own_node: RedisNode) -> None:
    """P15: after `retry_s`, naming the place."""
    store = RedisStore.from_url(f"{own_node.fresh()}&retry_s=0.2")
    await store.open()
    own_node.kill()

    with pytest.raises(StoreUnavailable) as caught:
        await store.enqueue([job("a")])

    assert str(own_node.port) in str(caught.value)
    await store.close()


async def test_a_claim_whose_answer_was_lost_finds_its_leases(
    node: RedisNode, opened: Open
) -> None:
    """P2: the same claim sent again gets the same leases, and no others beyond its limit."""
    store = await opened(node.fresh())
    await store.enqueue([job(f"j{n}") for n in range(8)])
    first = await store.claim(claim(3, "lost"))

    shards = store._mine()
    args = (claim_args(claim(3, "lost"), ["lost"]), None)
    answer, *_ = await shards.call("claim", 0, args, None)

    assert [int(one[0]) for one in rows_of(answer)] == [lease.job.seq for lease in first]
    assert len(await store.claim(claim(10))) == 5


async def test_replicas_that_are_missing_are_told(node: RedisNode) -> None:
    """P1: with wait_replicas an enqueue is confirmed only when they have it; repeat it then."""
    url = node.fresh()
    store = RedisStore.from_url(f"{url}&wait_replicas=1&wait_s=0.05")
    await store.open()

    with pytest.raises(StoreUnavailable) as caught:
        await store.enqueue([job("a")])

    assert "0 of 1 replicas" in str(caught.value)
    assert "safe to repeat" in str(caught.value)
    assert len((await store.find(finding())).jobs) == 1
    await store.close()


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff" * 300, b"\x03" * 60], ids=repr)
@pytest.mark.parametrize("state", ["ready", "held", "due", "ended", "grouped"])
async def test_a_damaged_row_stops_nobody_else(
    bench: Bench, node: RedisNode, state: str, damage: bytes
) -> None:
    """P19: whatever stands in it; all verbs go on for all others, and the doctor tells."""
    store = bench.store
    assert isinstance(store, RedisStore)
    await bench.configure(group_of(), ordered=True)
    await bench.put("bad", **BAD[state])
    tag = f"{{{store.options.prefix}0}}"
    seq = node.ask("HGET", f"{tag}:names", f"{len(ACME)}:{ACME}bad")
    if state in ("held", "ended"):
        lease = await bench.one()
        if state == "ended":
            await bench.end(lease, Completed())
    await bench.put("a", "b", rules=rules(max_attempts=1))
    await bench.put("g", group=CRAWL)
    await bench.put("c", tenant=GLOBEX)
    node.ask("HSET", f"{tag}:rows", seq, damage)

    bench.clock.advance(61)
    for act in (Act.REPRIORITISE, Act.RESCHEDULE):
        await store.change(changing(act, None))
    leases = [*await bench.claim(10), *await bench.claim(10)]
    assert sorted(ids(leases)) == ["a", "b", "c", "g"]
    assert {lease.job.attempt for lease in leases} == {1}
    await bench.explain("a")
    await bench.extend(leases[0])
    for lease in leases:
        assert (await bench.end(lease, Completed())).state is State.COMPLETED
    await bench.upkeep()
    await bench.store.count(None, recount=True)
    await bench.configure(group_of(), max_running=3)
    page = await store.find(finding(None))
    assert sorted(ids(page.jobs)) == ["a", "b", "c", "g"]
    bench.clock.advance(30 * 24 * 3600)
    await store.prune(100, 0)
    assert (await store.find(finding(None))).jobs == []
    assert await store.damaged() == 1


BAD: dict[str, dict[str, Any]] = {
    "ready": {},
    "held": {},
    "due": {"delay_us": LEASE // 2},
    "ended": {},
    "grouped": {"group": CRAWL},
}


async def test_a_repeat_gives_only_what_it_asks_for(node: RedisNode, opened: Open) -> None:
    """P7: whoever brings the nonce of another gets none of its leases, and nothing else."""
    store = await opened(node.fresh())
    await store.enqueue([job("a"), job("b", tenant=GLOBEX)])
    theirs = msgspec.structs.replace(claim(5, "same"), tenants=(ACME,))
    mine = msgspec.structs.replace(claim(5, "same"), tenants=(GLOBEX,))
    assert len(await store.claim(theirs)) == 1

    assert await store.claim(mine) == []
    assert len(await store.claim(theirs)) == 1
