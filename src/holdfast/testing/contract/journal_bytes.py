"""The bytes of journals: what leases and pages bring of large ones."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import (
    ENTRY_NAME_MAX,
    JOURNALS_BYTES_MAX,
    JOURNALS_MAX,
    LEASE_JOURNAL_MAX,
    STEP_BYTES_MAX,
    STEPS_BYTES_MAX,
)
from holdfast.core.job import Completed, Failed, State
from holdfast.core.journal import REMEMBERED, Edge, Entry, EntryKind, OnFailure, Signal, new_join
from holdfast.store import Find, Page, Selection
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME
from holdfast.testing.contract.steps import LOG, POSITION, STEP, fill, steps

DONE, JOIN = Completed(), EntryKind.JOIN
FITTING = LEASE_JOURNAL_MAX - ENTRY_NAME_MAX
"""Bytes of one value that a lease still brings."""


# -- leases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1])
async def test_a_lease_brings_a_journal_up_to_a_bound(bench: Bench, size: int) -> None:
    """P15: a larger one is left out as a whole, and the lease says how many entries it has."""
    lease = await bench.held("a")
    await bench.step(lease, "s", b"x" * (FITTING + size))
    await bench.write(lease, LOG, "", b"a line is for people")
    await bench.end(lease, Failed("no", after_us=0))

    lease = await bench.one()

    assert (len(lease.journal), lease.left_out) == ((1, 0) if size == 0 else (0, 1))


async def test_many_small_entries_are_large_together(bench: Bench) -> None:
    """P15: each counts with the longest name."""
    number = LEASE_JOURNAL_MAX // (ENTRY_NAME_MAX + 1)
    await fill(bench, number, 1)
    bench.clock.advance(61)
    lease = await bench.one()
    assert (len(lease.journal), lease.left_out) == (number, 0)

    await bench.step(lease, "more")
    bench.clock.advance(61)

    lease = await bench.one()
    assert (len(lease.journal), lease.left_out) == (0, number + 1)


async def test_all_kinds_that_a_lease_brings_count_as_left_out(bench: Bench) -> None:
    """P16: a reader that finds fewer must not run the job, or a step would be done again."""
    await bench.put("a", parents=1)
    await bench.end(await bench.held("parent", edges=(Edge("a", on_failure=OnFailure.RUN),)), DONE)
    lease = await bench.one()
    await bench.step(lease, "s", b"x" * LEASE_JOURNAL_MAX)
    await bench.write(lease, POSITION, "p", b"1")
    await bench.extend(lease, entries=(new_join("j", 2),))
    await bench.send("a", "approved")
    bench.clock.advance(61)

    lease = await bench.one()

    assert (lease.journal, lease.left_out) == ((), 5)
    found = await journal_of_running(bench, "a")
    assert set(by_key(found)) == {
        (STEP, "s"), (POSITION, "p"), (JOIN, "j"), (JOIN, ""), (EntryKind.SIGNAL, "approved"),
    }  # fmt: skip


async def journal_of_running(bench: Bench, id: str) -> list[Entry]:
    """What is read of a journal that a lease has left out."""
    select = Selection(tenant=ACME, ids=(id,), states=(State.PROCESSING,))
    page = await bench.store.find(Find(select=select, limit=1, journals=True))
    [journal] = page.journals.values()
    return [entry for entry in journal.entries if entry.kind in REMEMBERED]


async def test_a_repeated_claim_leaves_out_the_same(bench: Bench) -> None:
    """P15: its answer is as large as the first one."""
    await fill(bench, 3, STEP_BYTES_MAX)
    bench.clock.advance(61)

    [first] = await bench.claim(1, nonce="again")
    [again] = await bench.claim(1, nonce="again")

    assert (again.token, again.journal, again.left_out) == (first.token, (), 3)


async def test_a_large_journal_leaves_that_of_others_where_it_is(bench: Bench) -> None:
    """P19: the others in the claim get theirs."""
    await fill(bench, 3, STEP_BYTES_MAX)
    await bench.put("b")
    await bench.send("b", "approved")
    bench.clock.advance(61)

    leases = {lease.job.id: lease for lease in await bench.claim(2)}

    assert (leases["a"].journal, leases["a"].left_out) == ((), 3)
    assert by_key(leases["b"].journal) == {(EntryKind.SIGNAL, "approved"): b"true"}
    assert leases["b"].left_out == 0


async def test_signals_of_a_job_have_at_most_so_many_bytes(bench: Bench) -> None:
    """P19: all that it remembers together, whoever sends it."""
    bench.needs("steps")
    await bench.put("a")
    value = b"x" * STEP_BYTES_MAX
    number = STEPS_BYTES_MAX // STEP_BYTES_MAX

    answers = await bench.store.signal(
        [Signal(ACME, "a", f"s{each}", value) for each in range(number + 1)]
    )

    assert [answer.stored for answer in answers] == [True] * number + [False]


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_page_of_large_journals_is_short(bench: Bench, newest_first: bool) -> None:
    """P15, P19: it ends with the job that exceeds the bound, and the next page goes on there."""
    bench.needs("steps")
    per_job = STEPS_BYTES_MAX // STEP_BYTES_MAX
    most = JOURNALS_BYTES_MAX // STEPS_BYTES_MAX
    names = [f"j{number}" for number in range(most + 2)]
    await bench.put(*names)
    for name in names:
        some = [Signal(ACME, name, f"s{each}", b"x" * STEP_BYTES_MAX) for each in range(per_job)]
        assert all(answer.stored for answer in await bench.store.signal(some))

    first = await page_of(bench, newest_first, None)
    second = await page_of(bench, newest_first, first.cursor)

    assert len(first.jobs) == len(first.journals) == most
    assert [job.id for page in (first, second) for job in page.jobs] == (
        names[::-1] if newest_first else names
    )
    assert second.cursor is None


async def page_of(bench: Bench, newest_first: bool, after: int | None) -> Page:
    find = Find(
        select=Selection(tenant=ACME),
        after=after,
        limit=JOURNALS_MAX,
        newest_first=newest_first,
        journals=True,
    )
    return await bench.store.find(find)


async def test_steps_are_read_in_pages_too(bench: Bench) -> None:
    """P15: usual journals fill a page up to its limit."""
    bench.needs("steps")
    names = [f"j{number}" for number in range(5)]
    await bench.put(*names)
    for lease in await bench.claim(5):
        assert (await bench.extend(lease, entries=steps(2))).error is None

    page = await page_of(bench, False, None)

    assert [job.id for job in page.jobs] == names
    assert [len(journal.entries) for journal in page.journals.values()] == [2] * 5
    assert page.cursor is None
