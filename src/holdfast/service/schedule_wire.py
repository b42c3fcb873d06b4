"""The shapes of the native API for schedules. Instants are RFC 3339, durations are in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.core.bounds import CRON_MAX, SCHEDULE_TAGS_MAX, ZONE_MAX
from holdfast.core.schedule import Missed, Overlap
from holdfast.fields import LaterFields, Seconds, Strict, Tag, TypeName
from holdfast.service.shapes import Out


class ScheduleIn(LaterFields, kw_only=True):
    """What to change; a new schedule needs `type` and either `cron` or `every`.

    The fields of the job (`type`, its payload and options) replace the whole job.
    """

    cron: Annotated[str, Meta(min_length=1, max_length=CRON_MAX)] | UnsetType = UNSET
    zone: Annotated[str, Meta(min_length=1, max_length=ZONE_MAX)] | UnsetType = UNSET
    every: Annotated[float, Meta(ge=1)] | UnsetType = UNSET
    phase: Seconds | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    within: Annotated[float, Meta(ge=1)] | UnsetType | None = UNSET
    jitter: Seconds | UnsetType = UNSET
    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    type: TypeName | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    tags: Annotated[tuple[Tag, ...], Meta(max_length=SCHEDULE_TAGS_MAX)] | UnsetType = UNSET


SCHEDULE_FIELDS = (
    "cron",
    "zone",
    "every",
    "phase",
    "overlap",
    "missed",
    "within",
    "jitter",
)
"""The fields that are not about the job."""


class PausedOut(Out):
    reason: str
    author: str
    at: datetime


class EditOut(Out):
    """One of the newest changes."""

    at: datetime
    author: str
    what: str
    reason: str = ""


class ScheduleOut(Out):
    """A schedule. `fault` is there if its definition cannot be read."""

    name: str
    version: int
    cron: str | None = None
    zone: str | None = None
    every: float | None = None
    phase: float | None = None
    overlap: Overlap | None = None
    missed: Missed | None = None
    within: float | None = None
    jitter: float | None = None
    type: str | None = None
    queue: str | None = None
    payload: Raw | None = None
    payload_base64: str | None = None
    paused: PausedOut | None = None
    from_code: bool = False
    """Whether the code of an app registered it."""
    next: Sequence[datetime] | None = None
    """The next five instants; not in lists."""
    edits: Sequence[EditOut] | None = None
    """The newest changes, the last one first; only where one schedule is read."""
    fault: str | None = None


class SchedulesOut(Out):
    schedules: Sequence[ScheduleOut]
    cursor: str | None = None
    """Pass it as `after` to get the next page; missing on the last page."""


class BackfillIn(Strict):
    """The ticks from `first` up to, but without, `last`. Without `apply` they are only counted."""

    first: Annotated[datetime, Meta(tz=True)]
    last: Annotated[datetime, Meta(tz=True)]
    apply: bool = False


class BackfillOut(Out):
    ticks: Sequence[datetime]
    created: int
    """Jobs that were made, or would be."""
    existing: int
    applied: bool
