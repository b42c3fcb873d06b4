"""What an operator does by a form: pause, cancel, replay, purge. Each answers with a page to go to.

A bulk act goes in bounded steps: each answer shows how far it is and holds the form of the next, so
that claims go on in between and a step that is sent twice does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from holdfast import operate
from holdfast.check import check_seconds
from holdfast.clock import Micros, micros
from holdfast.dashboard import filters, session, views
from holdfast.dashboard.filters import Filters
from holdfast.dashboard.site import Ask, moved
from holdfast.dashboard.words import link
from holdfast.errors import InvalidInput, NotChangeable
from holdfast.job import TERMINAL, By, JobRecord, State
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Ref, Selection

STEP = operate.STEP
_WHOLE = re.compile(r"-?[0-9]{1,10}")
ACTS = {"replay": Act.REPLAY, "purge": Act.DELETE}


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk act: planned, under way or done."""

    act: str
    filters: Filters
    before: Micros
    """Only jobs made before the count: those that come after are not meant."""
    total: int
    over: bool
    """There were more than were counted."""
    done: int = 0
    cursor: int | None = 0
    """Where the next step begins; None at the end."""


# -- queues ----------------------------------------------------------------------------------------


async def pause(ask: Ask) -> Response:
    """With a reason, which everybody sees who asks why a job waits."""
    fields = await _operated(ask)
    tenant, queue = _line(ask)
    reason = fields.get("reason", "").strip()
    if not reason:
        raise InvalidInput(field="reason", why="say why, so that others know")
    await _handle(ask, tenant, queue).pause(reason, operate.author(ask.viewer.name))
    return moved(f"{link('queues', tenant, queue)}?did=paused")


async def resume(ask: Ask) -> Response:
    by = _by(ask, await _operated(ask))
    tenant, queue = _line(ask)
    await _handle(ask, tenant, queue).resume(by.author, by.reason)
    return moved(f"{link('queues', tenant, queue)}?did=resumed")


def _handle(ask: Ask, tenant: str, queue: str) -> ScopeHandle:
    return operate.scope(ask.host.store, tenant, queue=queue, platform=ask.viewer.platform)


async def _operated(ask: Ask) -> dict[str, str]:
    """The form of somebody who may operate."""
    fields = await session.form(ask.request)
    ask.viewer.check(ask.viewer.operates, "operate")
    return fields


def _line(ask: Ask) -> tuple[str, str]:
    viewer = ask.viewer
    return viewer.check_tenant(ask.part("tenant")), viewer.check_queue(ask.part("queue"))


# -- one job ---------------------------------------------------------------------------------------


async def cancel(ask: Ask) -> Response:
    fields = await session.form(ask.request)
    ask.viewer.check(ask.viewer.cancels, "cancel jobs")
    job = await _job(ask)
    by = _by(ask, fields)
    [result] = await ask.host.store.cancel([Ref(job.tenant, job.id)], by=by)
    if result.error is not None:
        raise result.error
    did = "canceled" if result.canceled else "ended"
    return moved(f"{link('jobs', job.tenant, job.id)}?did={did}")


async def replay(ask: Ask) -> Response:
    """Leads to the new job; to the same one when it was replayed before."""
    by = _by(ask, await _operated(ask))
    job = await _job(ask)
    new = job.replayed_as
    if new is None:
        if job.state not in TERMINAL:
            raise NotChangeable(id=job.id, state=job.state.value)
        select = Selection(tenant=job.tenant, ids=(job.id,))
        change = Change(select=select, act=Act.REPLAY, limit=1, by=by)
        changed = await ask.host.store.change(change)
        new = changed.done.get(Ref(job.tenant, job.id)) or (await _job(ask)).replayed_as
    if new is None:
        raise NotChangeable(id=job.id, state=job.state.value)
    return moved(f"{link('jobs', job.tenant, new)}?did=replayed")


async def reprioritise(ask: Ask) -> Response:
    fields = await _operated(ask)
    job = await _job(ask)
    text = fields.get("priority", "").strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidInput(field="priority", why="is not a whole number")
    ref = Ref(job.tenant, job.id)
    await operate.reprioritise(ask.host.store, ref, int(text), _by(ask, fields))
    return moved(f"{link('jobs', job.tenant, job.id)}?did=changed")


async def reschedule(ask: Ask) -> Response:
    """After some minutes; 0 is now."""
    fields = await _operated(ask)
    job = await _job(ask)
    text = fields.get("minutes", "").strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidInput(field="minutes", why="is not a whole number")
    delay = check_seconds("minutes", int(text) * 60)
    ref, by = Ref(job.tenant, job.id), _by(ask, fields)
    await operate.reschedule(ask.host.store, ref, delay_us=micros(delay), by=by)
    return moved(f"{link('jobs', job.tenant, job.id)}?did=changed")


def _by(ask: Ask, fields: Mapping[str, str]) -> By:
    """Who is signed in, and the reason it gave."""
    return By(operate.author(ask.viewer.name), fields.get("reason", "").strip()).checked()


async def _job(ask: Ask) -> JobRecord:
    return await views.seen(ask.host.store, ask.viewer, Ref(ask.part("tenant"), ask.part("id")))


# -- dead letters ----------------------------------------------------------------------------------


async def planned(ask: Ask, chosen: Filters, act: str) -> Bulk:
    """What a bulk act would do, before anybody does it."""
    _known(act)
    before = ask.host.clock.now()
    select = chosen.selection(ask.viewer, before=before)
    total, over = await views.preview(ask.host.store, select, replay=act == "replay")
    return Bulk(act=act, filters=chosen, before=before, total=total, over=over)


async def bulk(ask: Ask) -> Response:
    """One step, and the form of the next."""
    fields = await _operated(ask)
    act = _known(ask.part("act"))
    chosen = filters.read(fields).but(state=State.FAILED.value)
    before = filters.cursor(fields, "before")
    if before is None:
        raise InvalidInput(field="before", why="is missing: count first, then act")
    step = Change(
        select=chosen.selection(ask.viewer, before=before),
        act=ACTS[act],
        after=filters.cursor(fields, "cursor") or 0,
        limit=STEP,
        by=_by(ask, fields),
    )
    changed = await ask.host.store.change(step)
    shown = Bulk(
        act=act,
        filters=chosen,
        before=before,
        total=filters.cursor(fields, "total") or 0,
        over=bool(fields.get("over")),
        done=(filters.cursor(fields, "done") or 0) + len(changed.done),
        cursor=changed.cursor,
    )
    return ask.page("bulk.html", bulk=shown, filters=chosen)


def _known(act: str) -> str:
    if act not in ACTS:
        raise InvalidInput(field="act", why=f"there is no {act!r}")
    return act
