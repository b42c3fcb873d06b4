"""Journals: what they cost, what their values hold, and what cannot be read of them."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.servers.redis_node import RedisNode

from holdfast.core.bounds import STEP_BYTES_MAX, STEPS_MAX
from holdfast.core.errors import JournalFull, SchemaTooOld
from holdfast.core.job import Completed, Failed, Reason, State
from holdfast.core.journal import Entry, EntryKind, Join, join_of, new_join
from holdfast.store import Act, Claim
from holdfast.stores.redis.layout import FORMAT
from holdfast.stores.redis.rows import FLAGS, name_of
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME, LEASE, changing, ids, job, rules
from holdfast.testing.contract.joins import flow, join
from holdfast.testing.contract.joins import node as linked

Open = Callable[..., Awaitable[RedisStore]]

STEP, JOIN = EntryKind.STEP, EntryKind.JOIN
STEP_MAX = 14
"""Commands of an extension with a step: those of a usual one, three of the journal, and two of the
bytes of the tenant.
"""
ALL = bytes(range(256))


def key(bench: Bench, name: str) -> str:
    store = bench.store
    assert isinstance(store, RedisStore)
    return f"{{{store.options.prefix}0}}:{name}"


async def seq(bench: Bench, id: str) -> str:
    return f"{(await bench.get(id)).seq:016}"


def calls(node: RedisNode) -> dict[str, int]:
    found: dict[str, dict[str, Any]] = node.ask("INFO", "commandstats")
    return {
        name: each["calls"]
        for name, each in found.items()
        if "config" not in name and "info" not in name
    }


# -- cost ------------------------------------------------------------------------------------------


async def test_a_step_is_a_few_commands(bench: Bench, node: RedisNode) -> None:
    """P16: one call, however many steps there are."""
    lease = await bench.held("a")
    for number in range(20):
        await bench.step(lease, f"s{number}")

    node.ask("CONFIG", "RESETSTAT")
    await bench.step(lease, "last", b"x" * 1000)

    found = calls(node)
    assert found.pop("cmdstat_evalsha") == 1
    assert sum(found.values()) <= STEP_MAX


async def test_jobs_without_journals_cost_no_command(bench: Bench, node: RedisNode) -> None:
    """P16: whatever other jobs of their tenant have."""
    await bench.put("later", delay_us=LEASE)
    costs = [await cost(bench, node, "a")]
    lease = await bench.held("p")
    await bench.step(lease, "s")
    await bench.extend(lease, entries=(new_join("lines", 2),))
    await bench.put("waits", delay_us=LEASE)
    await bench.send("waits", "go")

    costs.append(await cost(bench, node, "b"))

    assert costs[0] == costs[1]


async def cost(bench: Bench, node: RedisNode, id: str) -> list[dict[str, int]]:
    """What the verbs of a usual job ask the server for."""
    found = []
    await bench.put(f"{id}0")
    await bench.end(await bench.one(), Completed())
    node.ask("CONFIG", "RESETSTAT")
    await bench.put(id)
    found.append(calls(node))
    node.ask("CONFIG", "RESETSTAT")
    lease = await bench.one()
    found.append(calls(node))
    node.ask("CONFIG", "RESETSTAT")
    await bench.extend(lease)
    found.append(calls(node))
    node.ask("CONFIG", "RESETSTAT")
    await bench.end(lease, Completed())
    found.append(calls(node))
    return found


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["#", "s", "\u2603", "a:b", "x" * 128, "'", "0"])
async def test_names_and_values_are_kept_as_they_are(bench: Bench, name: str) -> None:
    """P16: of each kind, beside each other."""
    lease = await bench.held("a")
    kinds = (STEP, EntryKind.POSITION)
    await bench.extend(lease, entries=tuple(Entry(kind, name, ALL) for kind in kinds))
    await bench.extend(lease, entries=(new_join(name, 3),))
    await bench.send("a", name, b"")
    bench.clock.advance(61)

    found = by_key((await bench.one()).journal)

    assert found.pop((EntryKind.SIGNAL, name)) == b""
    assert {key: found[key] for key in ((kind, name) for kind in kinds)} == dict.fromkeys(
        ((kind, name) for kind in kinds), ALL
    )
    assert await bench.journal("a") == {**found, (EntryKind.SIGNAL, name): b""}


async def test_an_extension_that_is_too_much_is_told_how_much(bench: Bench) -> None:
    """P16: and nothing of it is stored, though it has lines of the log."""
    lease = await bench.held("a")
    many = tuple(Entry(STEP, f"s{number}", b"") for number in range(STEPS_MAX + 1))

    answer = await bench.extend(lease, entries=(Entry(EntryKind.LOG, "", b"line"), *many))

    assert isinstance(answer.error, JournalFull)
    assert str(STEPS_MAX + 1) in str(answer.error)
    assert await bench.journal("a") == {}


async def test_a_replay_from_a_step_counts_what_it_starts_with(bench: Bench) -> None:
    """P16: its journal has the size of what was copied."""
    lease = await bench.held("a")
    for number in range(16):
        await bench.step(lease, f"s{number}", b"x" * (STEP_BYTES_MAX - 1))
        bench.clock.advance(1)
    await bench.end(lease, Failed("no", retryable=False))
    change = changing(Act.REPLAY, ids=("a",), from_step="s15")
    await bench.store.change(change)

    lease = await bench.one()

    assert lease.left_out == 15
    full = Entry(STEP, "more", b"x" * STEP_BYTES_MAX)
    assert (await bench.extend(lease, entries=(full,))).error is None
    assert isinstance((await bench.write(lease, STEP, "last", b"x" * 16)).error, JournalFull)


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [("sx", b"short"), ("jx", b"\0" * 9), ("s\xff", b"\0" * 8), ("?", b"\0" * 8), ("", b"\0" * 8)],
)
async def test_a_journal_that_cannot_be_read_fails_its_job_alone(
    bench: Bench, node: RedisNode, field: str, value: bytes
) -> None:
    """P16, P19: its steps would be done again; pages show what can be read of it."""
    lease = await bench.held("a")
    await bench.step(lease, "s", b"1")
    node.ask("HSET", key(bench, f"journal:{await seq(bench, 'a')}"), field.encode("latin-1"), value)
    await bench.put("b")
    bench.clock.advance(61)

    leases = await bench.claim(10)

    assert ids(leases) == ["b"]
    assert (await bench.get("a")).reason is Reason.DECODE
    assert (await bench.journal("a"))[STEP, "s"] == b"1"
    bench.clock.advance(8 * 24 * 3600)
    await bench.store.prune(10, LEASE)
    assert await bench.peek("a") is None


async def test_a_journal_of_another_type_fails_its_job_alone(bench: Bench, node: RedisNode) -> None:
    """P19: a claim goes on with the others."""
    lease = await bench.held("a")
    await bench.step(lease, "s")
    name = key(bench, f"journal:{await seq(bench, 'a')}")
    node.ask("DEL", name)
    node.ask("SET", name, "text")
    await bench.put("b")
    bench.clock.advance(61)

    assert ids(await bench.claim(10)) == ["b"]
    assert (await bench.get("a")).reason is Reason.DECODE


@pytest.mark.parametrize("text", [b"", b"rubbish", None])
async def test_a_size_that_cannot_be_read_is_added_up(
    bench: Bench, node: RedisNode, text: bytes | None
) -> None:
    """P16: so the share of the job stays what it is."""
    lease = await bench.held("a")
    await bench.step(lease, "s", b"x" * 100)
    await bench.send("a", "go", b"x" * 10)
    name = key(bench, f"journal:{await seq(bench, 'a')}")
    before = node.ask("HGET", name, "#")
    if text is None:
        node.ask("HDEL", name, "#")
    else:
        node.ask("HSET", name, "#", text)

    await bench.step(lease, "t", b"")
    await bench.write(lease, STEP, "s", b"other")

    size = node.ask("HGET", name, "#")
    assert len(size) == len(before)
    assert await bench.journal("a") == {
        (STEP, "s"): b"x" * 100,
        (STEP, "t"): b"",
        (EntryKind.SIGNAL, "go"): b"x" * 10,
    }
    bench.clock.advance(61)
    assert len((await bench.one()).journal) == 3


# -- formats ---------------------------------------------------------------------------------------


async def test_a_store_of_format_4_is_brought_up_as_it_is(bench: Bench, node: RedisNode) -> None:
    """P1: its jobs, its events and its numbers stay; from then on they may have journals."""
    await bench.put("a", "b", rules=rules(max_attempts=5))
    lease = await bench.one()
    await bench.put("later", delay_us=30 * LEASE)
    before = (await bench.store.events(ACME, 0, 100)).events
    for name in ("heads", "meta"):
        node.ask("HSET", key(bench, name), "format", 4)
    rows = node.ask("HGETALL", key(bench, "rows"))

    with pytest.raises(SchemaTooOld):
        await bench.store.claim(Claim(worker="w", nonce="x", limit=1, lease_us=LEASE))
    assert await bench._make().migrate() == FORMAT
    await bench.reopen()

    assert node.ask("HGETALL", key(bench, "rows")) == rows
    assert (await bench.store.events(ACME, 0, 100)).events == before
    await bench.step(lease, "s", b"1")
    await bench.extend(lease, entries=(new_join("lines", 0),))
    bench.clock.advance(61)
    found = {one.job.id: one.journal for one in await bench.claim(10)}
    assert set(found) == {"a", "b"}
    assert by_key(found["a"])[STEP, "s"] == b"1"
    [made] = [entry for entry in found["a"] if entry.kind is JOIN]
    assert join_of(made) == Join(0, 0)
    assert found["b"] == ()
    assert [each.created for each in await bench.add(job("later"))] == [False]


async def test_joins_of_format_5_go_on(bench: Bench, node: RedisNode) -> None:
    """P17: they were stored by sequence; those of jobs that have ended stay as they are."""
    children = [linked(id, after=2) for id in ("b", "c", "d")]
    await flow(bench, linked("a", "b", "c", "d"), linked("x", "b", "c", "d"), *children)
    await bench.end(await bench.one(), Completed())
    await bench.cancel("c")
    parents = key(bench, "parents")
    for id in ("b", "c", "d"):
        text = node.ask("HGET", parents, name_of(ACME, id))
        node.ask("HDEL", parents, name_of(ACME, id))
        node.ask("HSET", parents, await seq(bench, id), text[:12])
    for name in ("heads", "meta"):
        node.ask("HSET", key(bench, name), "format", 5)

    assert await bench._make().migrate() == FORMAT
    await bench.reopen()

    assert await bench.state("b") is State.WAITING
    for lease in await bench.claim(10):
        await bench.end(lease, Completed())
    assert [await join(bench, id) for id in ("b", "c", "d")] == [Join(2, 0), Join(2, 1), Join(2, 0)]
    assert ids(await bench.claim(10)) == ["b", "d"]


async def test_flows_of_format_6_go_on(bench: Bench, node: RedisNode) -> None:
    """P17: it stored the edges of each job, and the join of one parent, beside the row."""
    await flow(bench, linked("a", "b"), linked("b", "c", after=1), linked("c", after=1))
    for id, edge in (("a", b"\0\1f\0\1b\0\0"), ("b", b"\0\1f\0\1c\0\0"), ("c", b"")):
        await _as_format_6(bench, node, id, edge)
    for name in ("heads", "meta"):
        node.ask("HSET", key(bench, name), "format", 6)

    assert await bench._make().migrate() == FORMAT
    await bench.reopen()

    for id in ("a", "b", "c"):
        [lease] = await bench.claim(10)
        assert lease.job.id == id
        await bench.end(lease, Completed())
    assert [await join(bench, id) for id in ("b", "c")] == [Join(1, 0), Join(1, 0)]


async def _as_format_6(bench: Bench, node: RedisNode, id: str, edges: bytes) -> None:
    number, at = await seq(bench, id), 15  # Where a row has its further flags.
    row = node.ask("HGET", key(bench, "rows"), number)
    more = int.from_bytes(row[at : at + 2])
    if edges:
        text = edges.replace(b"f", b"F")
        row = row.removesuffix(len(text).to_bytes(2) + text)
        node.ask("HSET", key(bench, "edges"), number, edges)
        more -= FLAGS["ROW_EDGES"] >> 8
    if more & FLAGS["ROW_JOIN"] >> 8:
        parents = struct.pack(">III", 1, 1, 0) + number.encode()
        node.ask("HSET", key(bench, "parents"), name_of(ACME, id), parents)
        more += (FLAGS["PARENTS"] - FLAGS["ROW_JOIN"]) >> 8
    row = row[:at] + more.to_bytes(2) + row[at + 2 :]
    node.ask("HSET", key(bench, "rows"), number, row)
