"""What an operator does by a form: pause, cancel, replay, purge. Each answers with a page to go to.

A bulk act goes in bounded steps: each answer shows how far it is and holds the form of the next, so
that claims go on in between and a step that is sent twice does no harm.
"""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from holdfast import operate
from holdfast.clock import Micros
from holdfast.dashboard import filters, session, views
from holdfast.dashboard.filters import Filters
from holdfast.dashboard.host import Viewer
from holdfast.dashboard.site import Ask, moved
from holdfast.dashboard.words import link
from holdfast.errors import InvalidInput, NotChangeable
from holdfast.job import TERMINAL, JobRecord, State
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Ref, Selection, Store

STEP = operate.STEP
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
    await _handle(ask, tenant, queue).pause(reason, ask.viewer.name)
    return moved(f"{link('queues', tenant, queue)}?did=paused")


async def resume(ask: Ask) -> Response:
    await _operated(ask)
    tenant, queue = _line(ask)
    await _handle(ask, tenant, queue).resume(ask.viewer.name)
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
    await session.form(ask.request)
    ask.viewer.check(ask.viewer.cancels, "cancel jobs")
    job = await _job(ask)
    [result] = await ask.host.store.cancel([Ref(job.tenant, job.id)])
    if result.error is not None:
        raise result.error
    did = "canceled" if result.canceled else "ended"
    return moved(f"{link('jobs', job.tenant, job.id)}?did={did}")


async def replay(ask: Ask) -> Response:
    """Leads to the new job; to the same one when it was replayed before."""
    await _operated(ask)
    job = await _job(ask)
    new = job.replayed_as
    if new is None:
        if job.state not in TERMINAL:
            raise NotChangeable(id=job.id, state=job.state.value)
        select = Selection(tenant=job.tenant, ids=(job.id,))
        changed = await ask.host.store.change(Change(select=select, act=Act.REPLAY, limit=1))
        new = changed.done.get(Ref(job.tenant, job.id)) or (await _job(ask)).replayed_as
    if new is None:
        raise NotChangeable(id=job.id, state=job.state.value)
    return moved(f"{link('jobs', job.tenant, new)}?did=replayed")


async def _job(ask: Ask) -> JobRecord:
    return await views.seen(ask.host.store, ask.viewer, Ref(ask.part("tenant"), ask.part("id")))


# -- dead letters ----------------------------------------------------------------------------------


async def planned(store: Store, viewer: Viewer, chosen: Filters, act: str) -> Bulk:
    """What a bulk act would do, before anybody does it."""
    _known(act)
    before = views.now()
    select = chosen.selection(viewer, before=before)
    total, over = await views.preview(store, select, replay=act == "replay")
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
