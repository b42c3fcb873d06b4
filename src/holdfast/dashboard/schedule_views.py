"""The page of schedules: what it shows, and the actions of its forms."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from holdfast import operate
from holdfast.core.bounds import NAME_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import Micros, moment
from holdfast.core.errors import InvalidInput, ScheduleNotFound
from holdfast.core.job import By
from holdfast.core.schedule import OVER_ALL, Definition, Edit, Paused, check_schedule
from holdfast.dashboard import filters, session
from holdfast.dashboard.host import Viewer
from holdfast.dashboard.site import Ask, moved
from holdfast.dashboard.words import link
from holdfast.definitions import ScheduleState, instants, schedules_page
from holdfast.schedules import ScheduleHandle

PAGE = 50
"""Schedules on one page."""
READ_MAX = 20
"""Pages of the store that one page reads to find those of the viewer's queues."""
NEXT = 5


class Changed(msgspec.Struct, frozen=True):
    """Who did what to a schedule, and when."""

    at: datetime
    what: str
    reason: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule."""

    tenant: str
    name: str
    many: bool
    """Whether each tick makes a job for each of many tenants."""
    when: str
    rules: Sequence[str]
    type: str
    queue: str
    next: Sequence[datetime]
    paused: Paused | None
    changes: Sequence[Changed]
    """The newest changes, the last one first."""

    @property
    def act(self) -> str:
        return link("schedules", self.tenant, self.name)

    @property
    def jobs(self) -> str:
        query = urlencode({"tenant": self.tenant, "tag": f"schedule:{self.name}"})
        return f"{link('jobs')}?{query}"


class SchedulePage(msgspec.Struct, frozen=True):
    rows: Sequence[Row]
    after: str | None


def may_see(viewer: Viewer, state: ScheduleState) -> bool:
    """The schedules of its tenant whose jobs are of its queues and types. Those over many tenants
    are the platform's.
    """
    if viewer.tenant is not None and state.tenant != viewer.tenant:
        return False
    if state.tenant == OVER_ALL and not viewer.platform:
        return False
    if state.definition is None:
        return viewer.queues is None and viewer.types is None
    job = state.definition.job
    return viewer.may_queue(job.queue) and (viewer.types is None or job.type in viewer.types)


async def schedules(ask: Ask) -> Response:
    tenant = filters.read(ask.params).tenant
    whose = ask.viewer.check_tenant(tenant) if tenant else ask.viewer.tenant
    after = ask.params.get("after", "")
    if after:
        check_name("after", after, NAME_MAX)
    now, cursor = ask.host.clock.now(), None
    rows: list[Row] = []
    for _ in range(READ_MAX):
        page, cursor = await schedules_page(ask.host.store, whose, after=after, limit=PAGE)
        rows += [_row(state, now) for state in page if may_see(ask.viewer, state)]
        if cursor is None or len(rows) >= PAGE:
            break
        after = cursor
    return ask.page("schedules.html", found=SchedulePage(rows, cursor), tenant=tenant, utc=utc)


def _row(state: ScheduleState, now: Micros) -> Row:
    one = state.definition
    return Row(
        tenant=state.tenant,
        name=state.name,
        many=state.tenant == OVER_ALL,
        when="unreadable" if one is None else one.timing.words,
        rules=() if one is None else _rules(one),
        type="" if one is None else one.job.type,
        queue="" if one is None else one.job.queue,
        next=() if state.paused is not None else instants(state, now, NEXT),
        paused=state.paused,
        changes=() if one is None else [_changed(edit) for edit in one.edits],
    )


def _changed(edit: Edit) -> Changed:
    return Changed(moment(edit.at), f"{edit.what} by {edit.author}", edit.reason)


def _rules(one: Definition) -> list[str]:
    found = [f"overlap {one.overlap.value}", f"missed {one.missed.value}"]
    if one.within_us is not None:
        found.append(f"within {one.within_us / 1e6:g} s")
    if one.jitter_us:
        found.append(f"jitter {one.jitter_us / 1e6:g} s")
    return found


def utc(at: datetime) -> str:
    """The instant as machines read it."""
    return at.astimezone(UTC).isoformat()


# -- actions ---------------------------------------------------------------------------------------


async def pause_schedule(ask: Ask) -> Response:
    """Stops a schedule, with a reason that is shown on the page."""
    handle, by = await _operated(ask)
    if not by.reason:
        raise InvalidInput(field="reason", why="is required: a reason for the pause")
    await handle.pause(by.reason, by.author)
    return _back(ask, "schedule_paused")


async def resume_schedule(ask: Ask) -> Response:
    handle, by = await _operated(ask)
    await handle.resume(by.author, by.reason)
    return _back(ask, "schedule_resumed")


async def run_schedule(ask: Ask) -> Response:
    """Makes a job at once, besides the ticks, and shows it."""
    handle, by = await _operated(ask)
    answer = await handle.run_now(by=by)
    return moved(f"{link('jobs', handle.tenant, answer.id)}?did=schedule_run")


async def _operated(ask: Ask) -> tuple[ScheduleHandle, By]:
    """The schedule of the path and the author, if the viewer may operate and see it."""
    fields = await session.form(ask.request)
    viewer = ask.viewer
    viewer.check(viewer.operates, "operate")
    tenant = viewer.check_tenant(ask.part("tenant"))
    handle = operate.schedule(ask.host.store, tenant, check_schedule(ask.part("name")))
    if not may_see(viewer, await handle.get()):
        raise ScheduleNotFound(schedule=handle.name, hint="")
    return handle, By(operate.author(viewer.name), fields.get("reason", "").strip()).checked()


def _back(ask: Ask, did: str) -> Response:
    tenant = {} if ask.viewer.tenant else {"tenant": ask.part("tenant")}
    return moved(f"{link('schedules')}?{urlencode({**tenant, 'did': did})}")
