"""Stored schedules: how they are read, listed and changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TypedDict, TypeVar

import msgspec

from holdfast.core.bounds import PAGE_MAX, REASON_MAX, SCHEDULES_MAX
from holdfast.core.check import check_seconds
from holdfast.core.clock import Micros, micros, moment
from holdfast.core.cron import Timing, timing, zone_of
from holdfast.core.errors import InvalidInput, StaleSetting, TenantFull, did_you_mean
from holdfast.core.job import TERMINAL, By, JobRecord, State
from holdfast.core.schedule import (
    ITSELF,
    QUEUE,
    Definition,
    Edit,
    Missed,
    Overlap,
    Paused,
    decode,
    encode,
    name_of,
    plan_of,
    schedule_of,
    under,
)
from holdfast.core.spec import JobSpec
from holdfast.core.tick import TAG, Tick
from holdfast.lookup import find_jobs
from holdfast.store import Find, Put, Ref, Selection, Setting, Store

W = TypeVar("W", Overlap, Missed)

ALIVE = tuple(state for state in State if state not in TERMINAL)


class Rules(TypedDict, total=False):
    """The arguments of a schedule besides its timing. Durations are in seconds."""

    overlap: Overlap | str
    missed: Missed | str
    within: float | None
    jitter: float


class Timed(Rules, total=False):
    """The arguments of `set`. `every` and `phase` are in seconds."""

    cron: str
    zone: str
    every: float
    phase: float


class ScheduleState(msgspec.Struct, frozen=True):
    """A schedule, and its version for `set(expect=...)`."""

    tenant: str
    name: str
    definition: Definition | None
    """None if the stored setting cannot be read."""
    version: int
    fault: str | None = None
    """Why it cannot be read."""

    @property
    def paused(self) -> Paused | None:
        """Its pause. A schedule that cannot be read counts as paused."""
        if self.definition is None:
            return Paused(reason=self.fault or "", author=ITSELF, at=0)
        return self.definition.paused


def check_given(given: Timed) -> None:
    """Raises InvalidInput for an argument that there is not."""
    known = Timed.__annotations__ | Rules.__annotations__
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidInput(field=name, why=f"there is no such argument.{hint}")


def defined(
    before: Definition | None, job: JobSpec | None, given: Timed, now: Micros
) -> Definition:
    """The definition with these changes. Raises InvalidInput, which names the wrong argument."""
    if before is None:
        if job is None:
            raise InvalidInput(field="job", why="is missing: a new schedule needs the job it makes")
        before = Definition(revision=now, timing=_timing(None, given), job=job)
    changes: dict[str, object] = {"timing": _timing(before.timing, given)}
    if job is not None:
        changes["job"] = job
    if "overlap" in given:
        changes["overlap"] = _word("overlap", Overlap, given["overlap"])
    if "missed" in given:
        changes["missed"] = _word("missed", Missed, given["missed"])
    if "within" in given:
        within = given["within"]
        changes["within_us"] = None if within is None else _length("within", within, 1.0)
    if "jitter" in given:
        changes["jitter_us"] = _length("jitter", given["jitter"], 0.0)
    return msgspec.structs.replace(before, **changes).checked()


def _timing(before: Timing | None, given: Timed) -> Timing:
    """The named parts replace those of the kind of timing that they belong to."""
    cron, every = given.get("cron"), given.get("every")
    zone, phase = given.get("zone"), given.get("phase")
    if before is not None and cron is None and every is None:
        if zone is None and phase is None:
            return before
        cron = before.cron
        every = None if before.every_us is None else before.every_us / 1e6
    elif before is not None and cron is not None and zone is None and before.cron is not None:
        zone = before.zone
    return timing(cron=cron, zone=zone, every=every, phase=phase)


def _word(field: str, kind: type[W], word: str) -> W:
    try:
        return kind(word)
    except ValueError:
        known = ", ".join(kind)
        hint = did_you_mean(str(word), kind)
        raise InvalidInput(field=field, why=f"is {word!r}, must be {known}.{hint}") from None


def _length(field: str, seconds: object, least: float) -> Micros:
    return micros(check_seconds(field, seconds, least))


def revised(before: Definition | None, after: Definition, now: Micros) -> Definition:
    """With a new revision if what it makes or when has changed."""
    if before is not None and plan_of(before) == plan_of(after):
        return msgspec.structs.replace(after, revision=before.revision)
    revision = now if before is None else max(now, before.revision + 1)
    return msgspec.structs.replace(after, revision=revision)


def state_of(setting: Setting) -> ScheduleState:
    """The schedule of a setting, also of one that cannot be read."""
    found = schedule_of(setting.name)
    assert found is not None
    tenant, name = found
    try:
        return ScheduleState(tenant, name, decode(setting.name, setting.value), setting.version)
    except InvalidInput as error:
        return ScheduleState(tenant, name, None, setting.version, str(error))


def readable(state: ScheduleState) -> Definition:
    """Its definition. Raises InvalidInput if that cannot be read."""
    if state.definition is None:
        raise InvalidInput(field="schedule", why=f"{state.name!r} {state.fault}; set it again")
    return state.definition


def instants(state: ScheduleState, now: Micros, number: int) -> list[datetime]:
    """The next instants of a schedule, in its zone; none if it cannot go on."""
    if state.definition is None:
        return []
    found = state.definition.timing
    try:
        return [local(found, at) for at in islice(found.after(now), number)]
    except InvalidInput:  # The zone is gone.
        return []


def local(timing: Timing, at: Micros) -> datetime:
    """The instant in the zone of the schedule."""
    return moment(at).astimezone(UTC if timing.cron is None else zone_of(timing.zone))


# -- many ------------------------------------------------------------------------------------------


async def schedules_page(
    store: Store, tenant: str | None, *, after: str = "", limit: int = PAGE_MAX
) -> tuple[list[ScheduleState], str | None]:
    """Schedules of a tenant, or of all, by name; and the cursor of the next page, if there may be
    one.
    """
    page = await store.settings(under=under(tenant), after=after, limit=limit)
    found = []
    for setting in page:
        with suppress(InvalidInput):  # Its name was made by something else.
            found.append(state_of(setting))
    return found, page[-1].name if page and len(page) == limit else None


async def has_room(store: Store, tenant: str) -> None:
    """Raises TenantFull if the tenant has SCHEDULES_MAX schedules."""
    number, after = 0, ""
    while True:
        page = await store.settings(under=under(tenant), after=after, limit=PAGE_MAX)
        number += len(page)
        if number >= SCHEDULES_MAX:
            raise TenantFull(tenant=tenant, what="schedules", max=SCHEDULES_MAX)
        if len(page) < PAGE_MAX:
            return
        after = page[-1].name


async def jobs_named(
    store: Store, refs: Iterable[Ref], states: tuple[State, ...] = ()
) -> list[JobRecord]:
    """The jobs with these names, in these states if any are given. Each tenant is asked for its
    own: a search over all tenants finds the same ids of others too, and may read every job.
    """
    ids: dict[str, list[str]] = {}
    for ref in refs:
        ids.setdefault(ref.tenant, []).append(ref.id)
    found: list[JobRecord] = []
    for tenant, own in ids.items():
        found += await find_jobs(store, tenant, own, states=states)
    return found


async def waiting_ticks(store: Store, tenant: str, schedule: str) -> list[tuple[Ref, Tick]]:
    """The ticks of a schedule that have not ended, usually one."""
    select = Selection(tenant=tenant, queues=(QUEUE,), tags=(f"{TAG}{schedule}",), states=ALIVE)
    found, after = [], None
    while True:
        page = await store.find(Find(select=select, after=after, limit=PAGE_MAX))
        for job in page.jobs:
            with suppress(msgspec.MsgspecError, TypeError):
                tick = msgspec.json.decode(job.envelope.body, type=Tick)
                found.append((Ref(job.tenant, job.id), tick))
        if page.cursor is None or len(found) >= PAGE_MAX:
            return found
        after = page.cursor


async def pause_itself(store: Store, state: ScheduleState, reason: str, now: Micros) -> None:
    """Pauses a schedule that cannot go on. A concurrent change wins."""
    if state.definition is None or state.definition.broken:
        return
    paused = Paused(reason=reason[:REASON_MAX].strip(), author=ITSELF, at=now)
    after = msgspec.structs.replace(state.definition, paused=paused)
    after = after.edited(Edit(now, ITSELF, "paused itself", paused.reason))
    put = Put(name_of(state.tenant, state.name), encode(after), state.version)
    with suppress(StaleSetting):
        await store.settings([put], by=By(ITSELF, paused.reason))
