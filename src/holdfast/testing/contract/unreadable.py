"""Unreadable: a stored record that cannot be read fails alone; no other job is affected."""

from __future__ import annotations

from holdfast.core.job import Completed, EventKind, Reason, State
from holdfast.store import Ref
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, finding, ids, rules

ONCE = rules(max_attempts=1)


async def test_a_record_that_cannot_be_read_fails_alone(bench: Bench) -> None:
    """P19: the claim gives all others, and none of them loses an attempt."""
    await bench.put("a", "bad", "c", rules=ONCE)
    await bench.put("d", tenant=GLOBEX, rules=ONCE)
    await bench.make_unreadable(Ref(ACME, "bad"))

    leases = [*await bench.claim(10), *await bench.claim(10)]

    assert sorted(ids(leases)) == ["a", "c", "d"]
    assert {lease.job.attempt for lease in leases} == {1}
    for lease in leases:
        assert (await bench.end(lease, Completed())).state is State.COMPLETED


async def test_a_record_that_cannot_be_read_is_a_dead_letter(bench: Bench) -> None:
    """P11, P14: with reason DECODE, and an event that says so."""
    await bench.put("bad")
    await bench.make_unreadable(Ref(ACME, "bad"))

    assert await bench.claim(1) == []

    found = await bench.get("bad")
    assert (found.state, found.reason) == (State.FAILED, Reason.DECODE)
    assert (await bench.kinds("bad"))[-1] is EventKind.FAILED


async def test_a_record_that_cannot_be_read_does_not_break_a_page(bench: Bench) -> None:
    """P19: lists and counts go on, before and after it was failed."""
    await bench.put("a", "bad", "c")
    await bench.make_unreadable(Ref(ACME, "bad"))

    for _ in range(2):
        page = await bench.store.find(finding(newest_first=False))
        assert ids(page.jobs) == ["a", "bad", "c"]
        await bench.claim(10)


async def test_a_held_record_that_cannot_be_read_lapses_alone(bench: Bench) -> None:
    """P10, P19: its lease ends, upkeep and claims go on for all others."""
    await bench.put("a", "bad", "c")
    await bench.claim(3)
    await bench.make_unreadable(Ref(ACME, "bad"))
    bench.clock.advance(61)

    await bench.upkeep()
    leases = [*await bench.claim(10), *await bench.claim(10)]

    assert sorted(ids(leases)) == ["a", "c"]
    await bench.upkeep()
    assert (await bench.get("bad")).reason is Reason.DECODE
