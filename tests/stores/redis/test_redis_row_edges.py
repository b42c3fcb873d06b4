"""Edges that are in the row of their job, and the join of one parent: left over, wrong, damaged."""

from __future__ import annotations

import msgspec
import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.redis.test_redis_joins import NOBODY, key, left, ready

from holdfast.core.bounds import RELEASE_MAX
from holdfast.core.job import Completed, State
from holdfast.core.journal import Join
from holdfast.store import Act, Ref
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, LEASE, changing, finding, ids
from holdfast.testing.contract.joins import RUN, flow, join
from holdfast.testing.contract.joins import node as linked

EACH = 6
"""Edges of a parent below, all but one to nobody."""


@pytest.mark.parametrize("act", ["cancel", "delete"])
async def test_edges_of_rows_that_a_call_leaves_are_followed_later(
    bench: Bench, node: RedisNode, act: str
) -> None:
    """P15, P17: also when the rows are gone; then nothing is left behind."""
    number = RELEASE_MAX // EACH + 50
    parents = [f"p{n}" for n in range(number)]
    nobody = [f"no{n}" for n in range(EACH - 1)]
    for n, id in enumerate(parents):
        await bench.add(linked(id, *nobody, f"c{n}", how=RUN), linked(f"c{n}", after=1))
    assert node.ask("HLEN", key(bench.store, "edges")) == node.ask(
        "HLEN", key(bench.store, "parents")
    )

    if act == "cancel":
        await bench.store.cancel([Ref(ACME, id) for id in parents])
    else:
        await bench.store.change(changing(Act.DELETE, ids=tuple(parents)))

    assert 0 < await ready(bench) < number
    assert len(left(node, bench.store)[ACME]) == number - await ready(bench)
    await bench.claim(1, queues=NOBODY)
    assert await ready(bench) == number
    assert left(node, bench.store) == {}
    assert node.ask("EXISTS", key(bench.store, "edges"), key(bench.store, "parents")) == 0


async def test_an_edge_finds_a_join_wherever_it_is(bench: Bench) -> None:
    """P17: a job that was there before may have more parents than that of the same call."""
    await bench.add(linked("b", after=2), linked("c", after=1))
    await bench.add(linked("a", "b", "c"), linked("b", after=1))
    await bench.add(linked("x", "b"))

    for lease in await bench.claim(10):
        await bench.end(lease, Completed())

    assert [await join(bench, id) for id in ("b", "c")] == [Join(2, 0), Join(1, 0)]
    assert sorted(ids(await bench.claim(10))) == ["b", "c"]


async def test_a_lease_tells_the_join_of_one_parent(bench: Bench) -> None:
    """As it tells others; it says whether the parent completed."""
    await flow(bench, linked("a", "b", how=RUN), linked("b", after=1))
    await bench.cancel("a")

    lease = await bench.one()

    [entry] = lease.journal
    assert msgspec.json.decode(entry.value) == {"total": 1, "left": 0, "failed": 1}
    assert await join(bench, "b") == Join(1, 0, 1)


@pytest.mark.parametrize("length", [b"\0\0", b"\0\1", b"\xff\xff"])
async def test_edges_of_a_row_that_cannot_be_read_stop_no_other_flow(
    bench: Bench, node: RedisNode, length: bytes
) -> None:
    """P19: neither an ack, nor a page, a claim or a prune."""
    await flow(
        bench, linked("a", "b"), linked("b", after=1), linked("x", "y"), linked("y", after=1)
    )
    seq = f"{(await bench.get('a')).seq:016}"
    row = node.ask("HGET", key(bench.store, "rows"), seq)
    stored = b"\0\x08\0\1F\0\1b\0\0"
    assert row.endswith(stored)
    node.ask("HSET", key(bench.store, "rows"), seq, row[: -len(stored)] + length + stored[2:])

    for _ in range(2):
        for lease in await bench.claim(10):
            await bench.end(lease, Completed())

    assert (await bench.get("y")).state is State.COMPLETED
    assert (
        len((await bench.store.find(msgspec.structs.replace(finding(), journals=True))).jobs) == 4
    )
    bench.clock.advance(48 * 3600)
    await bench.store.prune(100, LEASE)
    assert await bench.peek("y") is None
