"""A job that is made later: what was stored stays readable, and nothing else gets in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import SCHEDULE_BODY_MAX, SCHEDULE_TAGS_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.flow import Head
from holdfast.core.job import Rules
from holdfast.core.schedule import check_made, code_of, decode, encode
from holdfast.core.spec import JobSpec, spec_of

SCHEDULE = (
    b'{"revision":1767225600000000,"timing":{"cron":"0 6 * * mon-fri","zone":"Europe/Berlin"},'
    b'"job":{"type":"report","codec":"json","version":2,"body":"eyJzaG9wIjo0Mn0=","queue":"mail",'
    b'"priority":5,"rules":{"max_attempts":5,"timeout_us":30000000},"group":"g","tags":["a"],'
    b'"ttl_us":60000000},"overlap":"cancel","code":"00000000000000000000000000000000",'
    b'"edits":[{"at":1767225600000000,"author":"ann","what":"set","reason":"why"}]}'
)
"""As a release stored it in which schedules and flows had a type of their own for this."""
CODE = "07be9d66a4ad0b6f8f9da85f21525a60"
HEAD = (
    b'{"name":"x","nodes":1,"undo":[[0,{"type":"drop","codec":"refs","version":1,'
    b'"body":"eyJhcmdzIjp7fSwicmVmcyI6e319","queue":"q","tags":["a"]}]],"last":[]}'
)
JOB = JobSpec(
    type="report",
    codec="json",
    version=2,
    body=b'{"shop":42}',
    queue="mail",
    priority=5,
    rules=Rules(max_attempts=5, timeout_us=30_000_000),
    group="g",
    tags=("a",),
    ttl_us=60_000_000,
)


def test_a_stored_schedule_of_an_older_release_is_read() -> None:
    """P18: and written as it was. Its code has not changed, so it replaces no live edit."""
    found = decode("schedule/4:acme/x", SCHEDULE)

    assert found.checked().job == JOB
    assert encode(found) == SCHEDULE
    assert code_of(found) == CODE


def test_the_head_of_a_flow_of_an_older_release_is_read() -> None:
    """P17."""
    [(number, spec)] = msgspec.json.decode(HEAD, type=Head).undo

    assert (number, spec.type, spec.body) == (0, "drop", b'{"args":{},"refs":{}}')


def test_a_job_and_its_spec_say_the_same() -> None:
    """Each option of a job that is made later."""
    assert spec_of(JOB.job("acme", "id")) == JOB
    assert JOB.job("acme", "id").tenant == "acme"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a reserved type": ({"type": "holdfast.flow"}, "type: names that begin with"),
    "a reserved queue": ({"queue": "holdfast.flows"}, "queue: names that begin with"),
    "the queue of ticks": ({"queue": "holdfast.ticks"}, "queue: names that begin with"),
    "no type": ({"type": ""}, "type: must not be empty"),
    "a long tag": ({"tags": ("x" * 65,)}, "tags: has 65 characters"),
    "many tags": ({"tags": ("x",) * 17}, "tags: has 17, at most 16"),
    "a priority": ({"priority": 2**40}, "priority: "),
    "no attempts": ({"rules": Rules(max_attempts=0)}, "max_attempts: "),
    "no life": ({"ttl_us": 0}, "ttl_us: "),
    "a long group": ({"group": "x" * 300}, "group: has 300"),
}
NOT_SCHEDULED: dict[str, tuple[dict[str, Any], str]] = {
    "results of others": ({"codec": "refs"}, "codec: 'refs' is for jobs of flows"),
    "a large payload": ({"body": b"x" * (SCHEDULE_BODY_MAX + 1)}, "payload: has 32769 bytes"),
    "tags of the schedule": ({"tags": ("x",) * (SCHEDULE_TAGS_MAX + 1)}, "tags: has 15, of a"),
}


@pytest.mark.parametrize("name", [*WRONG, *NOT_SCHEDULED])
def test_a_wrong_job_is_named(name: str) -> None:
    """P15: by its field, also where a setting brings it past the builder."""
    changes, why = {**WRONG, **NOT_SCHEDULED}[name]
    job = msgspec.structs.replace(JOB, **changes)

    with pytest.raises(InvalidInput) as caught:
        job.checked() if name in WRONG else check_made(job)

    assert str(caught.value).startswith(why)
