"""Schedules: list, read, set, pause, resume, run now, backfill, delete.

A token for some queues or types sees and changes only the schedules whose jobs are in them. The
schedules over many tenants belong to the platform.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta

from holdfast.core.bounds import PAGE_MAX, SCHEDULE_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import moment
from holdfast.core.errors import InvalidInput, ScheduleNotFound
from holdfast.core.schedule import OVER_ALL, check_made, check_schedule, name_of
from holdfast.core.spec import JobSpec, spec_of
from holdfast.definitions import ScheduleState, instants, schedules_page
from holdfast.fields import Strict, given
from holdfast.schedules import ScheduleHandle
from holdfast.service.api.jobs import planned
from holdfast.service.api.setting_permissions import may_schedule
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.render import shown
from holdfast.service.schedule_wire import (
    SCHEDULE_FIELDS,
    BackfillIn,
    BackfillOut,
    EditOut,
    PausedOut,
    ScheduleIn,
    ScheduleOut,
    SchedulesOut,
)
from holdfast.service.scope_wire import PauseIn
from holdfast.service.wire import DeletedOut, EnqueuedOut, NewJobIn

NEXT = 5
"""How many next instants a schedule shows."""


class Listing(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: str | None = None
    """The last name of the previous page."""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


async def every(call: Call) -> SchedulesOut:
    """The schedules of the tenant, by name."""
    _own(call)
    query: Listing = call.query
    after = ""
    if query.after is not None:
        after = name_of(call.tenant, check_name("after", query.after, SCHEDULE_MAX))
    store = call.service.store
    found: list[ScheduleState] = []
    while True:
        page, cursor = await schedules_page(store, call.tenant, after=after, limit=PAGE_MAX)
        for state in page:
            if not may_schedule(call, state.definition):
                continue
            if len(found) == query.limit:
                return SchedulesOut(schedules=[*map(_out, found)], cursor=found[-1].name)
            found.append(state)
        if cursor is None:
            return SchedulesOut(schedules=[*map(_out, found)])
        after = cursor


async def get(call: Call) -> ScheduleOut:
    """A schedule with its next five instants and its newest changes."""
    _, state = await _seen(call)
    found = await _whole(call, state)
    if state.definition is not None:
        found.edits = [
            EditOut(at=moment(one.at), author=one.author, what=one.what, reason=one.reason)
            for one in state.definition.edits
        ]
    return found


async def put(call: Call) -> Status:
    """Makes or changes a schedule; what is not named stays. 201 if it is new. With `expect`, fails
    unless that is the current version.
    """
    body: ScheduleIn = call.body
    name = _name(call)
    handle = ScheduleHandle(call.service.store, call.tenant, name)
    new = False
    try:
        _, before = await _seen(call)
        job = before.definition and before.definition.job
    except ScheduleNotFound:
        if await _exists(handle):
            raise  # It is for queues or types that this token is not for.
        new, job = True, None
    job_in = None if body.type is UNSET else await _made(call, body)
    if job_in is None and job is None:
        raise InvalidInput(field="type", why="is missing: a new schedule needs the job it makes")
    expect = None if body.expect is UNSET else body.expect
    changes = {field: value for field, value in given(body).items() if field in SCHEDULE_FIELDS}
    state = await handle.put(job_in, changes, expect=expect, by=call.by)  # type: ignore[arg-type]
    return Status(201 if new else 200, await _whole(call, state))


async def delete(call: Call) -> DeletedOut:
    """Deletes a schedule and its waiting tick. Jobs that it made stay."""
    handle, _ = await _seen(call)
    await handle.delete(by=call.by)
    return DeletedOut(deleted=True)


async def pause(call: Call) -> ScheduleOut:
    """Makes no more jobs until it is resumed."""
    body: PauseIn = call.body
    handle, _ = await _seen(call)
    return await _whole(call, await handle.pause(body.reason, call.by.author))


async def resume(call: Call) -> ScheduleOut:
    """Ends a pause. Does nothing if there is none."""
    handle, _ = await _seen(call)
    return await _whole(call, await handle.resume(call.by.author, call.by.reason))


async def run_now(call: Call) -> Status:
    """Makes a job at once, besides the ticks and also during a pause."""
    handle, _ = await _seen(call)
    answer = await handle.run_now(by=call.by)
    return Status(201, EnqueuedOut(id=answer.id, created=answer.created, type_known=True))


async def backfill(call: Call) -> BackfillOut:
    """The ticks of a time in the past. With `apply` each gets its job, unless it had one."""
    body: BackfillIn = call.body
    handle, _ = await _seen(call)
    found = await handle.backfill(body.first, body.last, apply=body.apply, by=call.by)
    return BackfillOut(
        ticks=found.ticks, created=found.created, existing=found.existing, applied=found.applied
    )


def _own(call: Call) -> None:
    """The schedules over many tenants are for the platform."""
    if call.tenant == OVER_ALL:
        call.caller.check_platform()


def _name(call: Call) -> str:
    _own(call)
    return check_schedule(call.part("name"))


async def _seen(call: Call) -> tuple[ScheduleHandle, ScheduleState]:
    """The schedule of the path. One that the token is not for is not found."""
    handle = ScheduleHandle(call.service.store, call.tenant, _name(call))
    try:
        state = await handle.get()
    except ScheduleNotFound as error:
        hint = error.facts["hint"] if call.caller.queues is None else ""
        raise ScheduleNotFound(schedule=handle.name, hint=hint) from None
    if not may_schedule(call, state.definition):
        raise ScheduleNotFound(schedule=handle.name, hint="")
    return handle, state


async def _exists(handle: ScheduleHandle) -> bool:
    try:
        await handle.get()
    except ScheduleNotFound:
        return False
    return True


async def _made(call: Call, body: ScheduleIn) -> JobSpec:
    """The job of the body, with the checks of an enqueue."""
    assert body.type is not UNSET
    job = NewJobIn(**given(body, "expect", *SCHEDULE_FIELDS))
    known = await call.service.types.known([body.type])
    return check_made(spec_of(planned(call, job, known, None)))


async def _whole(call: Call, state: ScheduleState) -> ScheduleOut:
    now = await call.service.store_clock.look()
    found = _out(state)
    found.next = instants(state, now, NEXT)
    if state.definition is not None:
        job = state.definition.job
        found.payload, found.payload_base64 = shown(job.codec, job.body)
    return found


def _out(state: ScheduleState) -> ScheduleOut:
    one = state.definition
    if one is None:
        return ScheduleOut(name=state.name, version=state.version, fault=state.fault)
    timing, paused = one.timing, one.paused
    return ScheduleOut(
        name=state.name,
        version=state.version,
        cron=timing.cron,
        zone=None if timing.cron is None else timing.zone,
        every=None if timing.every_us is None else timing.every_us / 1e6,
        phase=timing.phase_us / 1e6 or None,
        overlap=one.overlap,
        missed=one.missed,
        within=None if one.within_us is None else one.within_us / 1e6,
        jitter=one.jitter_us / 1e6 or None,
        type=one.job.type,
        queue=one.job.queue,
        paused=None
        if paused is None
        else PausedOut(reason=paused.reason, author=paused.author, at=moment(paused.at)),
        from_code=one.code is not None,
    )
