"""What a tick does: the rules about missed ticks, ids, jitter, and the instant of a job."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import EDITS_MAX, MISSED_MAX
from holdfast.core.clock import SECOND
from holdfast.core.cron import Timing
from holdfast.core.errors import InvalidInput
from holdfast.core.schedule import (
    Definition,
    Edit,
    Missed,
    Overlap,
    check_schedule,
    decode,
    encode,
    name_of,
    schedule_of,
)
from holdfast.core.spec import JobSpec
from holdfast.core.tick import (
    due,
    due_at,
    job_id,
    key_length,
    next_tick,
    target,
    tick_id,
    tick_job,
    tick_of,
)

START = 1_767_225_600_000_000
HOUR = 3600 * SECOND
JOB = JobSpec(type="t", codec="json", version=1, body=b"{}", queue="q")
HOURLY = Definition(revision=START, timing=Timing(every_us=HOUR), job=JOB)


def hours(instants: tuple[int, ...]) -> list[int]:
    return [(at - START) // HOUR for at in instants]


@pytest.mark.parametrize(
    ("missed", "within", "late", "made"),
    [
        (Missed.ONE, None, 0, [10]),
        (Missed.ONE, None, 1800, [10]),
        (Missed.ONE, 600, 1800, []),
        (Missed.SKIP, None, 299, [10]),
        (Missed.SKIP, None, 1800, []),
        (Missed.ALL, None, 1800, list(range(1, 11))),
        (Missed.ALL, 2 * 3600, 1800, [9, 10]),
    ],
)
def test_what_is_made_up_for(missed: Missed, within: int, late: int, made: list[int]) -> None:
    """The first tick was due nine hours before."""
    limit = None if within is None else within * SECOND
    one = msgspec.structs.replace(HOURLY, missed=missed, within_us=limit)

    found = due("acme", "s", one, START + HOUR, START + 10 * HOUR + late * SECOND)

    assert hours(found.made) == made
    assert found.next == START + 11 * HOUR
    assert (found.dropped is None) == (len(made) == 10)


def test_all_makes_the_newest_thousand_and_tells_the_rest() -> None:
    """Of whatever passed."""
    one = msgspec.structs.replace(HOURLY, missed=Missed.ALL)
    end = START + 5000 * HOUR

    found = due("acme", "s", one, START, end)

    assert (len(found.made), found.made[-1]) == (MISSED_MAX, end)
    assert found.dropped is not None
    assert found.dropped[0] == START


@given(jitter=st.integers(0, 3599), late=st.integers(0, 50 * 3600), at=st.integers(0, 1000))
def test_the_next_tick_is_always_to_come(jitter: int, late: int, at: int) -> None:
    """So ticks cannot pile up; and none is passed over between this one and the next."""
    one = msgspec.structs.replace(HOURLY, missed=Missed.ALL, jitter_us=jitter * SECOND)
    first = START + at * HOUR
    now = due_at("acme", "s", one, first) + late * SECOND

    found = due("acme", "s", one, first, now)

    assert found.next is not None
    assert due_at("acme", "s", one, found.next) > now
    assert found.made[0] == first
    assert list(found.made) == list(range(first, found.next, HOUR))
    assert next_tick("acme", "s", one, now) == found.next


def test_ids_differ_for_whatever_differs() -> None:
    """Lengths keep names apart that run into each other."""
    parts = [("a", "bc", 1, 2), ("ab", "c", 1, 2), ("a", "bc", 2, 2), ("a", "bc", 1, 3)]

    assert len({tick_id(*each) for each in parts} | {job_id(*each) for each in parts}) == 8


def test_a_job_tells_its_instant_and_its_schedule() -> None:
    """By its tags, which a replay keeps. Another tag is no instant."""
    made = target("acme", "s", HOURLY, START + 7)

    assert tick_of(made.tags) == datetime(2026, 1, 1, 0, 0, 0, 7, tzinfo=UTC)
    assert "schedule:s" in made.tags
    assert tick_of(("tick:soon", "tick:2026-01-01T00:00:00", "a")) is None


def test_keys_are_held_longer_than_a_tick_can_be_tried_again() -> None:
    """A day for the fastest schedules, a week for the others."""
    fast = msgspec.structs.replace(HOURLY, timing=Timing(every_us=SECOND))

    assert (key_length(fast), key_length(HOURLY)) == (24 * HOUR, 7 * 24 * HOUR)


def test_jobs_that_queue_up_are_in_a_group_of_the_schedule() -> None:
    """And others in their own."""
    queued = msgspec.structs.replace(HOURLY, overlap=Overlap.QUEUE)

    assert target("acme", "s", queued, START).group == "schedule/s"
    assert target("acme", "s", HOURLY, START).group is None
    assert tick_job("acme", "s", queued, START).group is None


@pytest.mark.parametrize("name", ["a b", "@daily", "0 6 * * *", "", "x" * 56, " a", "a\tb", 5])
def test_what_could_be_a_cron_text_is_no_name(name: object) -> None:
    """So `app.schedule(text)` is never ambiguous."""
    with pytest.raises(InvalidInput):
        check_schedule(name)


@pytest.mark.parametrize(
    ("tenant", "name"), [("a", "s"), ("a/b", "c/d"), ("7:a", "1:x"), ("é", "ü")]
)
def test_the_name_of_a_setting_leads_back(tenant: str, name: str) -> None:
    """Whatever slashes and colons are in it."""
    assert schedule_of(name_of(tenant, name)) == (tenant, name)
    assert schedule_of("scope/tenant/1:a/") is None


@pytest.mark.parametrize(
    "bad", ["schedule/", "schedule/x", "schedule/9:a/b", "schedule/1:a/", "schedule/01:a/b"]
)
def test_a_damaged_name_is_refused(bad: str) -> None:
    """Instead of being another schedule's."""
    with pytest.raises(InvalidInput):
        schedule_of(bad)


def test_a_definition_reads_as_it_was_written() -> None:
    """With the newest changes only."""
    one = HOURLY
    for number in range(EDITS_MAX + 3):
        one = one.edited(Edit(number, "ann", "set"))

    assert decode("n", encode(one)) == one
    assert [edit.at for edit in one.edits] == list(range(EDITS_MAX + 2, 2, -1))


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"\xff", b'{"revision": 1, "odd": 2}', b"[1]", b"null"]
)
def test_a_damaged_definition_says_so(value: bytes) -> None:
    """By the name of the setting."""
    with pytest.raises(InvalidInput, match="cannot be read"):
        decode("schedule/1:a/b", value)
