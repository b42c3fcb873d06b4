"""Steps: what a job remembers between its runs, written under its lease only."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import (
    STEP_BYTES_MAX,
)
from holdfast.core.errors import (
    InvalidInput,
    InvalidLeaseToken,
    JobCanceled,
    JobNotFound,
    LeaseExpired,
)
from holdfast.core.job import Completed, Failed
from holdfast.core.journal import Entry, EntryKind, Join, join_of, new_join
from holdfast.store import Extension
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE

STEP, POSITION, ERROR, LOG = (
    EntryKind.STEP,
    EntryKind.POSITION,
    EntryKind.ERROR,
    EntryKind.LOG,
)


def steps(number: int, size: int = 1, prefix: str = "s") -> tuple[Entry, ...]:
    return tuple(Entry(STEP, f"{prefix}{n}", b"x" * size) for n in range(number))


async def fill(bench: Bench, number: int, size: int) -> None:
    """A job "a" with so many steps, written by one lease, which is still held."""
    lease = await bench.held("a")
    for start in range(0, number, 100):
        entries = steps(min(100, number - start), size, f"s{start}-")
        assert (await bench.extend(lease, entries=entries)).error is None


# -- what a run writes, the next one finds ---------------------------------------------------------


async def test_a_later_attempt_finds_the_steps(bench: Bench) -> None:
    """P16: with the values, also binary ones, and the instants of the store's clock."""
    lease = await bench.held("a")
    await bench.step(lease, "charge", b'{"id": 7}')
    await bench.step(lease, "ship", bytes(range(256)))
    await bench.end(lease, Failed("no", after_us=0))

    found = (await bench.one()).journal

    assert by_key(found) == {(STEP, "charge"): b'{"id": 7}', (STEP, "ship"): bytes(range(256))}
    assert {entry.at for entry in found} == {bench.clock.now()}


async def test_steps_survive_the_death_of_their_worker(bench: Bench) -> None:
    """P16: they are stored before the step counts as done, not with the end of the attempt."""
    lease = await bench.held("a")
    await bench.step(lease, "charge")
    bench.clock.advance(61)

    assert by_key((await bench.one()).journal) == {(STEP, "charge"): b"1"}


async def test_a_job_without_steps_has_an_empty_journal(bench: Bench) -> None:
    """P16: so a lease of a usual job brings nothing more."""
    bench.needs("steps")
    lease = await bench.held("a")

    assert lease.journal == ()
    assert await bench.journal("a") == {}


async def test_the_first_result_of_a_step_counts(bench: Bench) -> None:
    """P16: a repeated extension changes nothing, nor does another value."""
    lease = await bench.held("a")
    await bench.step(lease, "charge", b"1")
    at = bench.clock.now()
    bench.clock.advance(1)

    await bench.step(lease, "charge", b"2")

    assert await bench.journal("a") == {(STEP, "charge"): b"1"}
    bench.clock.advance(61)
    assert [entry.at for entry in (await bench.one()).journal] == [at]


async def test_a_position_is_replaced(bench: Bench) -> None:
    """P16: it says how far a cursor has come; a step of the same name is another entry."""
    lease = await bench.held("a")
    await bench.step(lease, "pages", b"0")
    for value in (b"1", b"22", b"3"):
        await bench.write(lease, POSITION, "pages", value)

    assert await bench.journal("a") == {(STEP, "pages"): b"0", (POSITION, "pages"): b"3"}


async def test_several_entries_are_written_in_one_step(bench: Bench) -> None:
    """P15: with their own kinds, in one extension."""
    lease = await bench.held("a")
    entries = (Entry(STEP, "a", b"1"), Entry(POSITION, "p", b"2"), Entry(STEP, "b", b"3"))

    assert (await bench.extend(lease, entries=entries)).error is None

    found = await bench.journal("a")
    assert found == {(STEP, "a"): b"1", (POSITION, "p"): b"2", (STEP, "b"): b"3"}


async def test_an_ack_writes_entries_with_its_transition(bench: Bench) -> None:
    """P16: what a run still had to say is stored with its end."""
    bench.needs("steps")
    lease = await bench.held("a")

    answer = await bench.end(
        lease, Failed("no", after_us=0), entries=(Entry(STEP, "charge", b"1"),)
    )

    assert answer.error is None
    assert by_key((await bench.one()).journal) == {(STEP, "charge"): b"1"}


# -- who may write ---------------------------------------------------------------------------------


async def test_only_a_live_lease_writes_steps(bench: Bench) -> None:
    """P16: neither an expired one, nor one of a worker whose job has moved on."""
    old = await bench.held("a")
    bench.clock.advance(61)
    late = await bench.write(old, STEP, "charge", b"old")
    lease = await bench.one()
    stale = await bench.write(old, STEP, "charge", b"old")
    await bench.step(lease, "charge", b"new")

    assert isinstance(late.error, LeaseExpired)
    assert isinstance(stale.error, InvalidLeaseToken)
    assert await bench.journal("a") == {(STEP, "charge"): b"new"}


async def test_a_stale_ack_writes_no_step(bench: Bench) -> None:
    """P16: the entries of a refused transition are refused with it."""
    bench.needs("steps")
    old = await bench.held("a")
    bench.clock.advance(61)
    await bench.one()

    answer = await bench.end(old, Completed(), entries=(Entry(STEP, "charge", b"old"),))

    assert isinstance(answer.error, InvalidLeaseToken)
    assert await bench.journal("a") == {}


async def test_a_canceled_job_takes_no_step(bench: Bench) -> None:
    """P5."""
    lease = await bench.held("a")
    await bench.cancel("a")

    assert isinstance((await bench.write(lease, STEP, "s", b"1")).error, JobCanceled)
    assert await bench.journal("a") == {}


async def test_tenants_do_not_see_or_write_steps_of_others(bench: Bench) -> None:
    """P7: a job of the same id has a journal of its own."""
    mine = await bench.held("a")
    theirs = await bench.held("a", tenant=GLOBEX)
    await bench.step(mine, "s", b"mine")

    assert await bench.journal("a", GLOBEX) == {}
    await bench.step(theirs, "s", b"theirs")
    assert await bench.journal("a", ACME) == {(STEP, "s"): b"mine"}


# -- joins, as a run makes them --------------------------------------------------------------------


async def test_a_run_makes_a_join_once(bench: Bench) -> None:
    """P17: a repeated extension does not start it anew."""
    lease = await bench.held("a")
    for number in (3, 5):
        await bench.extend(lease, entries=(new_join("lines", number),))

    bench.clock.advance(61)
    [entry] = (await bench.one()).journal
    assert (entry.kind, entry.name, join_of(entry)) == (EntryKind.JOIN, "lines", Join(3, 3))


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (Entry(STEP, "", b""), "name"),
        (Entry(STEP, "a\nb", b""), "name"),
        (Entry(STEP, "n" * 129, b""), "name"),
        (Entry(STEP, "s", b"x" * (STEP_BYTES_MAX + 1)), "value"),
        (Entry(ERROR, "10", b""), "name"),
        (Entry(ERROR, "one", b""), "name"),
        (Entry(LOG, "1", b""), "name"),
        (Entry(EntryKind.JOIN, "j", b"many"), "value"),
        (Entry(EntryKind.JOIN, "j", b"-1"), "value"),
    ],
)
def test_an_entry_that_cannot_be_stored_is_refused(entry: Entry, field: str) -> None:
    """P15: with the name of the field."""
    with pytest.raises(InvalidInput) as refused:
        entry.checked()

    assert refused.value.field == field


async def test_an_extension_of_nobody_writes_nothing(bench: Bench) -> None:
    """P3."""
    bench.needs("steps")
    lease = await bench.held("a")
    nobody = Extension(
        tenant=ACME, id="nobody", token=lease.token, lease_us=LEASE, entries=steps(1)
    )

    [answer] = await bench.store.extend([nobody])

    assert isinstance(answer.error, JobNotFound)
