"""What a schedule is: its definition, which is a stored setting. Pure.

`cron.py` says when it ticks and `tick.py` what a tick does.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

import msgspec

from holdfast.core.bounds import (
    DELAY_S_MAX,
    EDITS_MAX,
    REASON_MAX,
    SCHEDULE_BODY_MAX,
    SCHEDULE_MAX,
    SCHEDULE_TAGS_MAX,
    TENANT_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import SECOND, Micros
from holdfast.core.codec import REFS
from holdfast.core.cron import Timing, looks_like_cron
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.mapped import most_of
from holdfast.core.spec import JobSpec

PREFIX = "schedule/"
"""Prefix of the settings of schedules."""
QUEUE = "holdfast.ticks"
"""The queue of ticks. No other job may be in it."""
TYPE = "holdfast.tick"
"""The job type of ticks. Every worker knows it."""
OVER_ALL = "~schedules"
"""The tenant of the ticks that make a job for each of many tenants."""
ITSELF = "holdfast"
"""The author of the pause of a schedule that cannot go on."""
LENGTH_MAX = int(DELAY_S_MAX) * SECOND
JITTER_S_MAX = 24 * 3600.0


class Overlap(StrEnum):
    """What a tick does while the job of an earlier tick has not ended."""

    SKIP = "skip"
    """It makes no job."""
    QUEUE = "queue"
    """Its job waits until the earlier one has ended; one job waits at most."""
    ALLOW = "allow"
    """Both run."""
    CANCEL = "cancel"
    """The earlier one is canceled."""


class Missed(StrEnum):
    """What is done about ticks that passed while no worker could fire them."""

    SKIP = "skip"
    ONE = "one"
    """One job, for the newest of them."""
    ALL = "all"
    """A job for each of them, of the newest MISSED_MAX."""


class Paused(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A pause. The author is ITSELF if the schedule cannot go on."""

    reason: str
    author: str
    at: Micros


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of the definition: who did what, when and why."""

    at: Micros
    author: str
    what: str
    reason: str = ""


def check_made(job: JobSpec) -> JobSpec:
    """The job that the ticks make. Raises InvalidInput, which names the wrong field."""
    job.checked()
    if job.codec == REFS:
        raise InvalidInput(field="codec", why=f"{REFS!r} is for jobs of flows")
    if len(job.body) > most_of(job.body, SCHEDULE_BODY_MAX):
        why = f"has {len(job.body)} bytes, of a schedule at most {SCHEDULE_BODY_MAX}"
        raise InvalidInput(field="payload", why=why)
    if len(job.tags) > SCHEDULE_TAGS_MAX:
        why = f"has {len(job.tags)}, of a schedule at most {SCHEDULE_TAGS_MAX}"
        raise InvalidInput(field="tags", why=why)
    return job


class Definition(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A schedule, without its tenant and name, which are in the name of the setting."""

    revision: Micros
    """Grows with each change of what it makes or when. Ticks of an older one end quietly."""
    timing: Timing
    job: JobSpec
    """What the ticks make."""
    overlap: Overlap = Overlap.SKIP
    missed: Missed = Missed.ONE
    within_us: Micros | None = None
    """A tick that is later than this makes no job. None: no such limit."""
    jitter_us: Micros = 0
    paused: Paused | None = None
    code: str | None = None
    """A hash of what the code last registered; None if it was made by a call."""
    edits: tuple[Edit, ...] = ()
    """The newest changes, the last one first."""

    def checked(self) -> Definition:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        check_whole("revision", self.revision, 1, 2**53)
        self.timing.checked()
        check_made(self.job)
        if self.overlap is Overlap.QUEUE and self.job.group is not None:
            why = "puts the jobs into a group of the schedule, so the job may have none"
            raise InvalidInput(field="overlap", why=f"'queue' {why}")
        if self.within_us is not None:
            check_whole("within_us", self.within_us, SECOND, LENGTH_MAX)
        check_whole("jitter_us", self.jitter_us, 0, int(JITTER_S_MAX) * SECOND)
        if self.jitter_us and self.jitter_us >= (gap := self.timing.gap(self.revision)):
            most = gap / SECOND
            why = f"is {self.jitter_us / SECOND:g} s, must be less than the time between ticks"
            raise InvalidInput(field="jitter", why=f"{why} ({most:g} s)")
        if self.paused is not None:
            check_name("reason", self.paused.reason, REASON_MAX)
            check_name("author", self.paused.author, REASON_MAX)
        return self

    @property
    def broken(self) -> bool:
        """Whether it paused itself because it cannot go on."""
        return self.paused is not None and self.paused.author == ITSELF

    def edited(self, edit: Edit) -> Definition:
        """The same with one more entry in its list of changes."""
        return msgspec.structs.replace(self, edits=(edit, *self.edits)[:EDITS_MAX])


def plan_of(definition: Definition) -> tuple[object, ...]:
    """What decides which jobs it makes and when: a change of it needs a new revision."""
    one = definition
    return one.timing, one.job, one.overlap, one.missed, one.within_us, one.jitter_us


def code_of(definition: Definition) -> str:
    """The hash of what the code says about a schedule."""
    return hashlib.sha256(_encoder.encode(plan_of(definition))).hexdigest()[:32]


# -- names -----------------------------------------------------------------------------------------


def check_schedule(name: object) -> str:
    """The name if a schedule may have it: no spaces and no @ in front, as cron texts have."""
    found = check_name("schedule", name, SCHEDULE_MAX)
    if looks_like_cron(found) or any(char.isspace() for char in found):
        why = f"{found!r} may contain no spaces and not begin with @, as cron texts do"
        raise InvalidInput(field="schedule", why=why)
    return found


def name_of(tenant: str, schedule: str) -> str:
    """The name of the setting. The length in it keeps names with slashes distinct."""
    return f"{under(tenant)}{schedule}"


def under(tenant: str | None) -> str:
    """The prefix of a tenant's schedules; None: of all."""
    return PREFIX if tenant is None else f"{PREFIX}{len(tenant)}:{tenant}/"


_NAMED = re.compile(r"schedule/([0-9]{1,4}):")


def schedule_of(name: str) -> tuple[str, str] | None:
    """Tenant and name of the schedule whose setting this is; None if it is another setting."""
    if not name.startswith(PREFIX):
        return None
    head = _NAMED.match(name)
    end = 0 if head is None else head.end() + int(head[1])
    if head is None or name[end : end + 1] != "/":
        raise InvalidInput(field="schedule", why=f"{name!r} is not the name of a schedule")
    tenant, schedule = name[head.end() : end], name[end + 1 :]
    check_name("tenant", tenant, TENANT_MAX)
    check_schedule(schedule)
    if name_of(tenant, schedule) != name:
        raise InvalidInput(field="schedule", why=f"{name!r} is not the name of a schedule")
    return tenant, schedule


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Definition)
_UNKNOWN = re.compile("unknown field `(.*?)`")


def encode(definition: Definition) -> bytes:
    """The definition in its stored form."""
    return _encoder.encode(definition)


def decode(name: str, value: bytes) -> Definition:
    """A stored definition, not `checked`. Raises InvalidInput if it cannot be read."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        unknown = _UNKNOWN.search(str(error))
        hint = did_you_mean(unknown[1], Definition.__struct_fields__) if unknown else ""
        raise InvalidInput(field=name, why=f"cannot be read: {error}{hint}") from None
