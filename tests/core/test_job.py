"""The values of a job: what may name a thing, what is refused, and what is never shown."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import (
    ATTEMPTS_MAX,
    BATCH_MAX,
    DELAY_S_MAX,
    GROUP_MAX,
    ID_MAX,
    KEY_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TAG_MAX,
    TAGS_MAX,
    within,
)
from holdfast.core.check import check_name, check_seconds, check_whole
from holdfast.core.errors import InvalidInput
from holdfast.core.job import (
    TERMINAL,
    Envelope,
    JobRecord,
    Lease,
    NewJob,
    Rules,
    State,
    check_new,
    replay_id,
)

JOB = NewJob(
    tenant="acme",
    id="a",
    queue="mail",
    envelope=Envelope("send", "json", 1, b"{}"),
    rules=Rules(),
)


def new(**changes: Any) -> NewJob:
    return msgspec.structs.replace(JOB, **changes)


@pytest.mark.parametrize("name", ["a", "a b", "a:b/c", "日本", "x" * 10, "{}", "'--"])
def test_printable_text_is_a_name(name: str) -> None:
    """P7: any printable text, unchanged."""
    assert check_name("queue", name, 10) == name


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "empty"),
        ("x" * 11, "11 characters, at most 10"),
        (" a", "spaces at its ends"),
        ("a ", "spaces at its ends"),
        ("a\nb", "control characters"),
        ("a\x00b", "control characters"),
        (7, "must be text, not int"),
        (None, "must be text, not NoneType"),
        (b"a", "must be text, not bytes"),
    ],
)
def test_what_cannot_name_a_thing_is_refused(value: object, why: str) -> None:
    """P15: InvalidInput names the field and says what is wrong with it."""
    with pytest.raises(InvalidInput) as caught:
        check_name("queue", value, 10)

    assert caught.value.facts["field"] == "queue"
    assert why in str(caught.value)


@pytest.mark.parametrize("value", [-3, 0, 5])
def test_a_whole_number_within_bounds_is_taken(value: int) -> None:
    """P15: both bounds are allowed."""
    assert check_whole("n", value, -3, 5) == value


@pytest.mark.parametrize("value", [-4, 6, 1.0, "1", True, None, math.nan])
def test_another_number_is_refused(value: object) -> None:
    """P15: out of bounds, not whole, or not a number at all."""
    with pytest.raises(InvalidInput) as caught:
        check_whole("n", value, -3, 5)

    assert caught.value.facts["field"] == "n"


@pytest.mark.parametrize("value", [0, 0.0, 1, 2.5, DELAY_S_MAX])
def test_a_length_of_time_is_taken(value: float) -> None:
    """P15: whole or not, from nothing to the limit."""
    assert check_seconds("delay", value) == value
    assert isinstance(check_seconds("delay", value), float)


@pytest.mark.parametrize("value", [-1, -0.001, DELAY_S_MAX * 2, math.nan, math.inf, "1", True])
def test_another_length_of_time_is_refused(value: object) -> None:
    """P15: negative, endless, no number, or not a number at all."""
    with pytest.raises(InvalidInput) as caught:
        check_seconds("delay", value)

    assert caught.value.facts["field"] == "delay"


def test_the_largest_legal_job_is_taken() -> None:
    """P15: every limit itself is allowed."""
    largest = new(
        id="i" * ID_MAX,
        key="k" * KEY_MAX,
        group="g" * GROUP_MAX,
        tags=("t" * TAG_MAX,) * TAGS_MAX,
        priority=PRIORITY_MAX,
        rules=Rules(max_attempts=ATTEMPTS_MAX),
    )

    assert check_new(largest) is largest
    assert check_new(new(priority=PRIORITY_MIN)).priority == PRIORITY_MIN


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ""}, "id"),
        ({"id": "i" * (ID_MAX + 1)}, "id"),
        ({"key": ""}, "key"),
        ({"key": "k" * (KEY_MAX + 1)}, "key"),
        ({"group": "g" * (GROUP_MAX + 1)}, "group"),
        ({"tags": ("t" * (TAG_MAX + 1),)}, "tags"),
        ({"tags": ("",)}, "tags"),
        ({"tags": ("t",) * (TAGS_MAX + 1)}, "tags"),
        ({"priority": PRIORITY_MAX + 1}, "priority"),
        ({"priority": PRIORITY_MIN - 1}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"rules": Rules(max_attempts=0)}, "max_attempts"),
        ({"rules": Rules(max_attempts=ATTEMPTS_MAX + 1)}, "max_attempts"),
    ],
)
def test_a_bad_job_names_its_field(changes: dict[str, Any], field: str) -> None:
    """P15: each field has its limit, and is named when it is over it."""
    with pytest.raises(InvalidInput) as caught:
        check_new(new(**changes))

    assert caught.value.facts["field"] == field


@pytest.mark.parametrize("size", [-1, BATCH_MAX + 1])
def test_a_batch_out_of_bounds_is_refused(size: int) -> None:
    """P15: before anything is done, naming what is too large."""
    within("jobs", 0, BATCH_MAX)
    within("jobs", BATCH_MAX, BATCH_MAX)

    with pytest.raises(InvalidInput) as caught:
        within("jobs", size, BATCH_MAX)

    assert caught.value.facts["field"] == "jobs"


def test_a_replay_has_one_name() -> None:
    """P6: the same from every caller, another one for every tenant and origin."""
    assert replay_id("acme", "a") == replay_id("acme", "a")
    names = {
        replay_id(*pair) for pair in (("acme", "a"), ("acme", "b"), ("acm", "e:a"), ("a", "a"))
    }
    assert len(names) == 4
    assert all(check_name("id", name, ID_MAX) for name in names)


def test_final_states_are_three() -> None:
    """P6: completed, failed, canceled."""
    assert {State.COMPLETED, State.FAILED, State.CANCELED} == TERMINAL


def test_a_lease_never_shows_its_token() -> None:
    """P3: not in its text, and a record has no field for it."""
    record = JobRecord(
        tenant="acme",
        id="a",
        queue="mail",
        envelope=JOB.envelope,
        rules=JOB.rules,
        priority=0,
        key=None,
        group=None,
        tags=(),
        origin=None,
        seq=1,
        state=State.PROCESSING,
        attempt=1,
        fence=4,
        lapses=0,
        misses=0,
        created_at=0,
        updated_at=0,
        run_at=0,
    )
    lease = Lease(record, "the-secret", 10)

    assert "the-secret" not in repr(lease)
    assert "the-secret" not in f"{lease} {[lease]}"
    assert "token" not in JobRecord.__struct_fields__
    assert (lease.fence, record.type, record.max_attempts) == (4, "send", 3)


def test_a_job_cannot_be_changed() -> None:
    """P4: the values along the path are frozen."""
    with pytest.raises(AttributeError):
        JOB.priority = 9  # type: ignore[misc]


def test_rules_survive_a_trip_as_data() -> None:
    """P11: stored with each job, read by every process and language alike."""
    rules = Rules(max_attempts=9, timeout_us=5, key_us=7)

    assert msgspec.json.decode(msgspec.json.encode(rules), type=Rules) == rules
    assert msgspec.json.encode(Rules()) == b"{}"
