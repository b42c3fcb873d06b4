"""Events (P14): stored in order per job, readable from any cursor; pruned events are reported."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import (
    Abandoned,
    Completed,
    Event,
    EventKind,
    Failed,
    Released,
    Snoozed,
    replay_id,
)
from holdfast.core.lifecycle import decide
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    LEASE,
    MAIL,
    RETRY,
    RETRY_S,
    changing,
    job,
    rules,
)


def told(events: list[Event]) -> list[tuple[EventKind, int, int, int | None]]:
    return [(event.kind, event.attempt, event.fence, event.until) for event in events]


async def test_a_life_is_told_in_order(bench: Bench) -> None:
    """P14: each fact with its attempt, its fence and the instant it set."""
    start = bench.clock.now()
    await bench.put("a", delay_us=5 * SECOND)
    bench.clock.advance(5)
    lease = await bench.one()
    bench.clock.advance(1)
    await bench.extend(lease)
    await bench.end(lease, Failed("boom"))
    bench.clock.advance(RETRY_S)
    lease = await bench.one()
    await bench.end(lease, Completed())

    at = start + 5 * SECOND
    again = at + SECOND + RETRY
    assert told(await bench.history("a")) == [
        (EventKind.ENQUEUED, 0, 0, at),
        (EventKind.LEASED, 1, 1, at + LEASE),
        (EventKind.EXTENDED, 1, 1, at + SECOND + LEASE),
        (EventKind.RETRYING, 1, 1, again),
        (EventKind.LEASED, 2, 2, again + LEASE),
        (EventKind.COMPLETED, 2, 2, None),
    ]


async def test_an_event_names_its_job_completely(bench: Bench) -> None:
    """P14: an event names its tenant, job, queue and type."""
    bench.clock.advance(7)
    await bench.put("a", tenant=GLOBEX, queue=AUDIO, type="waveform")

    [event] = await bench.history("a", GLOBEX)

    assert (event.tenant, event.job_id) == (GLOBEX, "a")
    assert (event.queue, event.type) == (AUDIO, "waveform")
    assert (event.at, event.kind) == (bench.clock.now(), EventKind.ENQUEUED)
    assert event.until is None


async def test_what_is_given_back_is_told_with_the_attempt_given_back(bench: Bench) -> None:
    """P11: a release says the attempts that count now."""
    await bench.put("a")
    for outcome in (Released(), Snoozed(5 * SECOND), Abandoned()):
        await bench.end(await bench.one(), outcome)
        bench.clock.advance(5)

    releases = [each for each in await bench.history("a") if each.kind is EventKind.RELEASED]
    assert [(each.attempt, each.fence) for each in releases] == [(0, 1), (0, 2), (0, 3)]
    assert [each.until for each in releases] == [None, releases[1].at + 5 * SECOND, None]


async def test_every_end_is_told_once_and_last(bench: Bench) -> None:
    """P6: completed, failed and canceled are the last events of a job."""
    await bench.put("done", "failed", "canceled", "spent", rules=rules(max_attempts=1))
    done, failed, canceled, _ = await bench.claim(4)
    await bench.end(done, Completed())
    await bench.end(failed, Failed("boom"))
    await bench.cancel("canceled")
    await bench.end(canceled, Completed())
    await bench.end(done, Failed("late"))
    bench.clock.advance(60)
    await bench.upkeep()

    for id, kind in (
        ("done", EventKind.COMPLETED),
        ("failed", EventKind.FAILED),
        ("canceled", EventKind.CANCELED),
        ("spent", EventKind.FAILED),
    ):
        assert await bench.kinds(id) == [EventKind.ENQUEUED, EventKind.LEASED, kind]


async def test_a_failure_is_told_with_its_reason_and_error(bench: Bench) -> None:
    """P11: the note of a failure names the code and the cause."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("bad address", retryable=False))

    note = (await bench.history("a"))[-1].note

    assert note is not None
    assert "PERMANENT" in note
    assert "bad address" in note


async def test_a_retry_is_told_with_its_error(bench: Bench) -> None:
    """P14: why it must be tried again is part of the fact."""
    lease = await bench.held("a")
    await bench.end(lease, Failed("timeout of the other side"))

    note = (await bench.history("a"))[-1].note

    assert note is not None
    assert "timeout of the other side" in note


async def test_changes_are_told(bench: Bench) -> None:
    """P14: what an operator does to a job is a fact of its life."""
    await bench.put("a")
    await bench.store.change(changing(Act.REPRIORITISE, priority=3))
    await bench.store.change(changing(Act.RESCHEDULE, delay_us=5 * SECOND))
    await bench.cancel("a")
    await bench.store.change(changing(Act.REPLAY))
    await bench.store.change(changing(Act.DELETE, ids=("a",)))

    history = await bench.history("a")
    assert [event.kind for event in history] == [
        EventKind.ENQUEUED,
        EventKind.CHANGED,
        EventKind.CHANGED,
        EventKind.CANCELED,
        EventKind.REPLAYED,
        EventKind.DELETED,
    ]
    assert history[2].until == bench.clock.now() + 5 * SECOND
    assert history[4].note == replay_id(ACME, "a")
    assert await bench.kinds(replay_id(ACME, "a")) == [EventKind.ENQUEUED]


async def test_refused_and_repeated_acts_are_not_told(bench: Bench) -> None:
    """P14: a call that changes nothing records no event."""
    lease = await bench.held("a", key="k")

    await bench.add(job("a"), job("b", key="k"), job("a", type="other"))
    await bench.ack(decide(Completed(), lease.job, "stolen", 0.0))
    for act in Act:
        await bench.store.change(changing(act, ids=("a",)))
    bench.clock.advance(60)
    await bench.extend(lease)
    await bench.end(lease, Completed())

    assert await bench.kinds("a") == [EventKind.ENQUEUED, EventKind.LEASED]
    assert await bench.kinds("b") == []


async def test_cursors_grow_and_lead_through_all_events(bench: Bench) -> None:
    """P14: pages of any size hold every event once, in the order it was stored."""
    bench.needs("event_log")
    for n in range(7):
        await bench.put(f"j{n}", tenant=ACME if n % 2 else GLOBEX)

    for limit in (1, 3, 7, 8):
        seen: list[Event] = []
        after = 0
        while True:
            page = await bench.store.events(None, after, limit)
            assert not page.lost
            assert len(page.events) <= limit
            if not page.events:
                break
            seen += page.events
            after = page.cursor
        assert [event.job_id for event in seen] == [f"j{n}" for n in range(7)]
        cursors = [event.cursor for event in seen]
        assert cursors == sorted(set(cursors))


async def test_a_reader_goes_on_where_it_stopped(bench: Bench) -> None:
    """P14: a kept cursor gives what came since, and nothing twice."""
    bench.needs("event_log")
    await bench.put("a", "b")
    page = await bench.store.events(None, 0, 100)
    assert (await bench.store.events(None, page.cursor, 100)).events == []

    await bench.put("c")

    later = await bench.store.events(None, page.cursor, 100)
    assert [event.job_id for event in later.events] == ["c"]
    middle = await bench.store.events(None, page.events[0].cursor, 100)
    assert [event.job_id for event in middle.events] == ["b", "c"]


async def test_an_empty_page_keeps_the_readers_place(bench: Bench) -> None:
    """P14: the cursor of a page without events is safe to go on from."""
    bench.needs("event_log")
    await bench.put("a", tenant=GLOBEX)
    empty = await bench.store.events(ACME, 0, 100)
    assert empty.events == []

    await bench.put("b", tenant=ACME)

    page = await bench.store.events(ACME, empty.cursor, 100)
    assert [event.job_id for event in page.events] == ["b"]


async def test_a_cursor_before_the_beginning_gives_the_end_of_the_log(bench: Bench) -> None:
    """P14: a reader that wants only what is new asks for its place first, with after -1."""
    bench.needs("event_log")
    await bench.put("a")

    start = await bench.store.events(None, -1, 100)
    await bench.put("b")

    assert (start.events, start.lost) == ([], False)
    page = await bench.store.events(None, start.cursor, 100)
    assert [event.job_id for event in page.events] == ["b"]


async def test_events_keep_to_a_tenant(bench: Bench) -> None:
    """P7: a tenant reads its own facts; None is the operator's view of all."""
    bench.needs("event_log")
    await bench.put("a", tenant=ACME)
    await bench.put("a", tenant=GLOBEX)
    await bench.put("b", tenant=ACME)

    acme = await bench.store.events(ACME, 0, 100)
    globex = await bench.store.events(GLOBEX, 0, 100)

    assert [(event.tenant, event.job_id) for event in acme.events] == [(ACME, "a"), (ACME, "b")]
    assert [(event.tenant, event.job_id) for event in globex.events] == [(GLOBEX, "a")]
    assert len((await bench.store.events(None, 0, 100)).events) == 3


async def test_events_of_one_job_keep_to_its_tenant(bench: Bench) -> None:
    """P7: the same id of another tenant is another job."""
    await bench.put("a", tenant=ACME, queue=MAIL)
    await bench.put("a", tenant=GLOBEX, queue=AUDIO)
    await bench.cancel("a", tenant=GLOBEX)

    assert await bench.kinds("a", ACME) == [EventKind.ENQUEUED]
    assert await bench.kinds("a", GLOBEX) == [EventKind.ENQUEUED, EventKind.CANCELED]
    assert await bench.kinds("a", "unknown") == []


async def test_filtered_pages_of_events_have_no_gaps(bench: Bench) -> None:
    """P14: others' events neither fill a page nor hide the next one."""
    bench.needs("event_log")
    for n in range(20):
        await bench.put(f"j{n:02}", tenant=ACME if n % 5 == 0 else GLOBEX)

    first = await bench.store.events(ACME, 0, 3)
    second = await bench.store.events(ACME, first.cursor, 3)

    assert [event.job_id for event in first.events] == ["j00", "j05", "j10"]
    assert [event.job_id for event in second.events] == ["j15"]


async def test_a_reader_that_lost_its_place_is_told(bench: Bench) -> None:
    """P14: when events after its cursor were pruned the page says lost, and goes on from there."""
    bench.needs("event_log")
    await bench.put("a", "b")
    place = (await bench.store.events(None, 0, 1)).cursor
    bench.clock.advance(100)
    await bench.put("c")
    await bench.store.prune(100, 50 * SECOND)

    page = await bench.store.events(None, place, 100)

    assert page.lost
    assert [event.job_id for event in page.events] == ["c"]
    await bench.put("d")
    following = await bench.store.events(None, page.cursor, 100)
    assert not following.lost
    assert [event.job_id for event in following.events] == ["d"]


async def test_a_reader_at_the_pruned_end_lost_nothing(bench: Bench) -> None:
    """P14: who had read all that was pruned is not told that something is missing."""
    bench.needs("event_log")
    await bench.put("a", "b")
    place = (await bench.store.events(None, 0, 100)).cursor
    bench.clock.advance(100)
    await bench.store.prune(100, 50 * SECOND)

    page = await bench.store.events(None, place, 100)

    assert (page.events, page.lost) == ([], False)
    assert (await bench.store.events(None, 0, 100)).lost


async def test_cursors_never_start_over(bench: Bench) -> None:
    """P14: after all events were pruned the next one still comes after every old cursor."""
    bench.needs("event_log")
    await bench.put("a")
    place = (await bench.store.events(None, 0, 100)).cursor
    bench.clock.advance(100)
    await bench.store.prune(100, SECOND)

    await bench.put("b")

    page = await bench.store.events(None, place, 100)
    assert [event.job_id for event in page.events] == ["b"]
    assert page.events[0].cursor > place


@pytest.mark.parametrize("limit", [-1, PAGE_MAX + 1])
async def test_a_page_of_events_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field."""
    bench.needs("event_log")
    with pytest.raises(InvalidInput) as caught:
        await bench.store.events(None, 0, limit)

    assert caught.value.facts["field"] == "limit"


async def test_events_survive_the_store_object(bench: Bench) -> None:
    """P1: a durable store keeps its log, and its cursors go on growing."""
    bench.needs("durable")
    await bench.put("a", rules=rules(keep_us=HOUR))
    place = (await bench.store.events(None, 0, 100)).cursor

    await bench.reopen()
    await bench.put("b")

    page = await bench.store.events(None, place, 100)
    assert [event.job_id for event in page.events] == ["b"]
    assert await bench.kinds("a") == [EventKind.ENQUEUED]
