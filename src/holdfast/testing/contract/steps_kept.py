"""What of a journal is kept: its share, its errors and log, and what a replay starts with."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.bounds import (
    ERRORS_MAX,
    LOGS_MAX,
    STEP_BYTES_MAX,
    STEPS_BYTES_MAX,
    STEPS_MAX,
)
from holdfast.core.errors import (
    JournalFull,
)
from holdfast.core.job import Abandoned, Completed, Failed, Lease, State
from holdfast.core.journal import Entry, EntryKind
from holdfast.store import Act, Extension, Find, Ref, Selection
from holdfast.testing.contract.bench import Bench, by_key
from holdfast.testing.contract.builders import ACME, LEASE, changing, rules
from holdfast.testing.contract.steps import ERROR, LOG, POSITION, STEP, fill, steps

# -- the share of a job ----------------------------------------------------------------------------


async def test_a_job_has_at_most_so_many_steps(bench: Bench) -> None:
    """P16, P19: one more is refused, nothing of that extension is stored, and the lease stays."""
    await fill(bench, STEPS_MAX - 1, 1)
    lease = await held_again(bench)

    answer = await bench.extend(lease, entries=steps(2, prefix="more"))

    assert isinstance(answer.error, JournalFull)
    assert len(await bench.journal("a")) == STEPS_MAX - 1
    assert (await bench.extend(lease, entries=steps(1, prefix="more"))).error is None


async def held_again(bench: Bench) -> Lease:
    """A new lease of the only job, after the first has expired."""
    bench.clock.advance(61)
    return await bench.one()


async def test_steps_of_a_job_have_at_most_so_many_bytes(bench: Bench) -> None:
    """P16, P19: all together; a position counts with its newest value."""
    full = STEPS_BYTES_MAX // STEP_BYTES_MAX
    await fill(bench, full - 1, STEP_BYTES_MAX)
    lease = await held_again(bench)
    for _ in range(3):
        filled = await bench.write(lease, POSITION, "p", b"x" * STEP_BYTES_MAX)
        assert filled.error is None

    assert isinstance((await bench.write(lease, STEP, "more", b"x")).error, JournalFull)
    assert (await bench.write(lease, POSITION, "p", b"x")).error is None
    assert (await bench.write(lease, STEP, "more", b"x")).error is None


async def test_a_full_journal_does_not_spoil_the_batch(bench: Bench) -> None:
    """P15, P19: only the extension that is too much is refused."""
    await fill(bench, STEPS_MAX, 1)
    await bench.put("b")
    bench.clock.advance(61)
    first, second = await bench.claim(2)

    answers = await bench.store.extend(
        [
            Extension(
                tenant=ACME,
                id=each.job.id,
                token=each.token,
                lease_us=LEASE,
                entries=steps(1, prefix="more"),
            )
            for each in (first, second)
        ]
    )

    errors = {answer.id: type(answer.error) for answer in answers}
    assert errors == {"a": JournalFull, "b": type(None)}


async def test_an_ack_with_too_many_steps_changes_nothing(bench: Bench) -> None:
    """P16: the job is still held, and can be failed."""
    await fill(bench, STEPS_MAX, 1)
    lease = await held_again(bench)

    answer = await bench.end(lease, Completed(), entries=steps(1, prefix="more"))

    assert isinstance(answer.error, JournalFull)
    assert await bench.state("a") is State.PROCESSING
    assert (await bench.end(lease, Failed("full", retryable=False))).state is State.FAILED


# -- errors and logs -------------------------------------------------------------------------------


async def test_errors_are_kept_by_attempt_and_replaced(bench: Bench) -> None:
    """P4: one per place; leases do not bring them back."""
    lease = await bench.held("a")
    for number in range(ERRORS_MAX):
        await bench.write(lease, ERROR, str(number), f"first {number}".encode())
    await bench.write(lease, ERROR, "3", b"second")

    found = await bench.journal("a")
    assert len(found) == ERRORS_MAX
    assert found[ERROR, "3"] == b"second"
    bench.clock.advance(61)
    assert (await bench.one()).journal == ()


async def test_the_newest_log_entries_are_kept(bench: Bench) -> None:
    """P15: the store numbers them, over all attempts; they use up nothing of the steps."""
    lease = await bench.held("a")
    for number in range(LOGS_MAX):
        await bench.write(lease, LOG, "", f"line {number}".encode())
    bench.clock.advance(61)
    lease = await bench.one()
    entries = (Entry(LOG, "", b"next"), Entry(LOG, "", b"last"))
    assert (await bench.extend(lease, entries=entries)).error is None

    found = await bench.journal("a")
    lines = {value for (kind, _), value in found.items() if kind is LOG}
    assert len(found) == LOGS_MAX
    assert {b"next", b"last", b"line 2"} <= lines
    assert not {b"line 0", b"line 1"} & lines
    assert lease.journal == ()


# -- keeping ---------------------------------------------------------------------------------------


async def test_a_journal_is_kept_with_its_job_and_pruned_with_it(bench: Bench) -> None:
    """P16: a job of the same id starts with an empty one."""
    lease = await bench.held("a", rules=rules(keep_us=LEASE))
    await bench.step(lease, "charge")
    await bench.write(lease, LOG, "", b"line")
    await bench.end(lease, Completed())
    assert await bench.journal("a") != {}
    bench.clock.advance(61)
    await bench.store.prune(100, LEASE)

    again = await bench.held("a")

    assert again.journal == ()
    assert await bench.journal("a") == {}


async def test_a_job_that_is_not_kept_leaves_no_journal(bench: Bench) -> None:
    """P16: also if it is removed by its ack."""
    lease = await bench.held("a", rules=rules(keep_us=0))
    await bench.step(lease, "charge")
    await bench.end(lease, Completed())

    again = await bench.held("a")

    assert again.journal == ()
    assert await bench.journal("a") == {}


async def test_a_deleted_job_leaves_no_journal(bench: Bench) -> None:
    """P16."""
    lease = await bench.held("a")
    await bench.step(lease, "charge")
    await bench.end(lease, Abandoned())
    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    assert (await bench.held("a")).journal == ()


async def test_a_replay_starts_with_an_empty_journal(bench: Bench) -> None:
    """P6: it is a new job; its origin keeps its own."""
    lease = await bench.held("a")
    await bench.step(lease, "charge")
    await bench.end(lease, Failed("no", retryable=False))
    done = await bench.store.change(changing(Act.REPLAY, ids=("a",)))

    assert (await bench.one()).journal == ()
    assert await bench.journal("a") == {(STEP, "charge"): b"1"}
    assert done.done[Ref(ACME, "a")]


async def finished(bench: Bench) -> None:
    """A job "a" that has failed after the steps "one", "two" and "three", a second apart."""
    bench.needs("steps")
    lease = await bench.held("a")
    for name in ("one", "two", "three"):
        await bench.step(lease, name, name.encode())
        await bench.write(lease, POSITION, f"after {name}", b"0")
        bench.clock.advance(1)
    await bench.send("a", "approved")
    await bench.end(lease, Failed("no", retryable=False))


async def test_a_replay_from_a_step_knows_what_came_before_it(bench: Bench) -> None:
    """P6, P16: earlier steps with their instants, and every signal; its origin keeps its own."""
    await finished(bench)
    before = {entry.name: entry.at for entry in (await entries_of(bench, "a"))}

    await bench.store.change(changing(Act.REPLAY, ids=("a",), from_step="two"))

    found = (await bench.one()).journal
    assert by_key(found) == {
        (STEP, "one"): b"one",
        (POSITION, "after one"): b"0",
        (EntryKind.SIGNAL, "approved"): b"true",
    }
    assert all(entry.at == before[entry.name] for entry in found)
    assert len(await bench.journal("a")) == 7


async def entries_of(bench: Bench, id: str) -> Sequence[Entry]:
    find = Find(select=Selection(tenant=ACME, ids=(id,)), journals=True)
    return (await bench.store.find(find)).journals[Ref(ACME, id)].entries


async def test_a_replay_from_a_step_that_is_not_there_makes_no_job(bench: Bench) -> None:
    """P6: the job can still be replayed otherwise."""
    await finished(bench)

    done = await bench.store.change(changing(Act.REPLAY, ids=("a",), from_step="four"))

    assert done.done == {}
    assert await bench.claim(1) == []
    again = await bench.store.change(changing(Act.REPLAY, ids=("a",)))
    assert Ref(ACME, "a") in again.done


async def test_a_replay_has_its_full_share_of_steps(bench: Bench) -> None:
    """P19: what it was given counts, and no more than that."""
    await finished(bench)
    await bench.store.change(changing(Act.REPLAY, ids=("a",), from_step="two"))
    lease = await bench.one()
    for start in range(0, STEPS_MAX - 2, 100):
        number = min(100, STEPS_MAX - 2 - start)
        entries = steps(number, prefix=f"s{start}-")
        assert (await bench.extend(lease, entries=entries)).error is None

    assert isinstance((await bench.write(lease, STEP, "more", b"x")).error, JournalFull)
