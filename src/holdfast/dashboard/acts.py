"""Actions of an operator by a form: pause, limit, cancel, replay, purge. Each redirects to a page.

A bulk action works in bounded steps. Each answer shows the progress and contains the form of the
next step, so that claims can run in between. Sending a step twice does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from holdfast import operate
from holdfast.core.check import check_seconds
from holdfast.core.clock import Micros, micros
from holdfast.core.codec import json_fault
from holdfast.core.errors import InvalidInput, NotChangeable
from holdfast.core.job import TERMINAL, By, JobRecord, State
from holdfast.core.journal import Signal
from holdfast.core.scope import Scope, ScopeKind
from holdfast.dashboard import filters, session, views
from holdfast.dashboard.filters import Filters
from holdfast.dashboard.platform_views import KINDS
from holdfast.dashboard.site import Ask, moved
from holdfast.dashboard.words import link
from holdfast.job_journal import read_journal
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Ref, Selection

STEP = operate.STEP
_WHOLE = re.compile(r"-?[0-9]{1,10}")
ACTS = {"replay": Act.REPLAY, "purge": Act.DELETE}


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action: planned, running or done."""

    act: str
    filters: Filters
    before: Micros
    """Only jobs created before the count are changed."""
    total: int
    over: bool
    """Whether there were more than were counted."""
    done: int = 0
    cursor: int | None = 0
    """The cursor of the next step; None at the end."""


# -- queues ----------------------------------------------------------------------------------------


async def pause(ask: Ask) -> Response:
    """Pauses a queue, with a reason that is shown wherever a job waits for it."""
    fields = await _operated(ask)
    tenant, queue = _line(ask)
    await _handle(ask, tenant, queue).pause(_why(fields), operate.author(ask.viewer.name))
    return moved(f"{link('queues', tenant, queue)}?did=paused")


async def resume(ask: Ask) -> Response:
    by = _by(ask, await _operated(ask))
    tenant, queue = _line(ask)
    await _handle(ask, tenant, queue).resume(by.author, by.reason)
    return moved(f"{link('queues', tenant, queue)}?did=resumed")


def _handle(ask: Ask, tenant: str, queue: str) -> ScopeHandle:
    return operate.scope(ask.host.store, tenant, queue=queue, platform=ask.viewer.platform)


async def _operated(ask: Ask) -> dict[str, str]:
    """The form, if the viewer may operate."""
    fields = await session.form(ask.request)
    ask.viewer.check(ask.viewer.operates, "operate")
    return fields


def _line(ask: Ask) -> tuple[str, str]:
    viewer = ask.viewer
    return viewer.check_tenant(ask.part("tenant")), viewer.check_queue(ask.part("queue"))


def _why(fields: Mapping[str, str]) -> str:
    reason = fields.get("reason", "").strip()
    if not reason:
        raise InvalidInput(field="reason", why="is required: a reason for the pause")
    return reason


# -- all tenants together --------------------------------------------------------------------------


async def limit_all(ask: Ask) -> Response:
    """Sets the limits of a scope of the platform as the form has them; an empty field removes one.
    Fails if the scope was changed since the form was shown.
    """
    fields = await _operated(ask)
    handle = _handle_of_all(ask)
    burst = _number(fields, "burst")
    changes: dict[str, Any] = {
        "max_running": _number(fields, "max_running"),
        "rate": fields.get("rate", "").strip() or None,
        **({} if burst is None else {"burst": burst}),
    }
    expect = _number(fields, "version")
    if expect is None:
        raise InvalidInput(field="version", why="is missing: open the page of the platform first")
    await handle.set(expect=expect, by=_by(ask, fields), **changes)
    return moved(f"{link('platform')}?did=limited")


async def pause_all(ask: Ask) -> Response:
    """Pauses a scope of the platform, with a reason that operators see wherever a job waits."""
    fields = await _operated(ask)
    await _handle_of_all(ask).pause(_why(fields), operate.author(ask.viewer.name))
    return moved(f"{link('platform')}?did=paused_all")


async def resume_all(ask: Ask) -> Response:
    by = _by(ask, await _operated(ask))
    await _handle_of_all(ask).resume(by.author, by.reason)
    return moved(f"{link('platform')}?did=resumed_all")


def over_all(ask: Ask) -> Scope:
    """The scope of the platform in the query. Raises NotAllowed if the viewer may not act on it."""
    ask.viewer.check(ask.viewer.whole_platform, "act for all tenants")
    kind = ask.params.get("kind", "")
    if kind not in KINDS:
        raise InvalidInput(field="kind", why=f"there is no {kind!r}")
    scope = Scope("", ScopeKind(kind), ask.params.get("name", "")).checked()
    ask.viewer.check(ask.viewer.may_over_all(scope), f"limit this {kind}")
    return scope


def _handle_of_all(ask: Ask) -> ScopeHandle:
    scope, platform = over_all(ask), operate.platform(ask.host.store)
    if scope.kind is ScopeKind.QUEUE:
        return platform.queue(scope.part)
    return platform.type(scope.part) if scope.kind is ScopeKind.TYPE else platform


# -- one job ---------------------------------------------------------------------------------------


async def cancel(ask: Ask) -> Response:
    fields = await session.form(ask.request)
    ask.viewer.check(ask.viewer.cancels, "cancel jobs")
    job = await _job(ask)
    by = _by(ask, fields)
    done = await operate.flows(ask.host.store, job.tenant).cancel(job.id, by=by)
    did = "canceled" if done else "ended"
    return moved(f"{link('jobs', job.tenant, job.id)}?did={did}")


async def signal(ask: Ask) -> Response:
    """Sends a value to a job. It is input for the handler, so it needs the right to enqueue."""
    fields = await session.form(ask.request)
    ask.viewer.check(ask.viewer.signals(), "send signals")
    job = await _job(ask)
    ask.viewer.check(ask.viewer.signals(job.type), "send signals to jobs of this type")
    value = fields.get("value", "").strip().encode() or b"null"
    if (fault := json_fault(value)) is not None:
        raise InvalidInput(field="value", why=fault)
    sent = Signal(job.tenant, job.id, fields.get("name", "").strip(), value)
    [answer] = await ask.host.store.signal([sent], by=_by(ask, fields))
    if answer.error is not None:
        raise answer.error
    did = "signaled" if answer.stored else "known"
    return moved(f"{link('jobs', job.tenant, job.id)}?did={did}")


async def replay(ask: Ask) -> Response:
    """Replays a job and redirects to the new job, also if it was replayed before."""
    fields = await _operated(ask)
    by, from_step = _by(ask, fields), fields.get("from_step") or None
    job = await _job(ask)
    new = job.replayed_as
    if from_step is not None:
        (await read_journal(ask.host.store, Ref(job.tenant, job.id))).checked_step(from_step)
    if new is None:
        if job.state not in TERMINAL:
            raise NotChangeable(id=job.id, state=job.state.value)
        select = Selection(tenant=job.tenant, ids=(job.id,))
        change = Change(select=select, act=Act.REPLAY, limit=1, from_step=from_step, by=by)
        changed = await ask.host.store.change(change)
        new = changed.done.get(Ref(job.tenant, job.id)) or (await _job(ask)).replayed_as
    if new is None:
        raise NotChangeable(id=job.id, state=job.state.value)
    return moved(f"{link('jobs', job.tenant, new)}?did=replayed")


async def reprioritise(ask: Ask) -> Response:
    fields = await _operated(ask)
    job = await _job(ask)
    ref, priority = Ref(job.tenant, job.id), _whole(fields, "priority")
    await operate.reprioritise(ask.host.store, ref, priority, _by(ask, fields))
    return moved(f"{link('jobs', job.tenant, job.id)}?did=changed")


async def reschedule(ask: Ask) -> Response:
    """Reschedules a job by minutes from now; 0: now."""
    fields = await _operated(ask)
    job = await _job(ask)
    delay = check_seconds("minutes", _whole(fields, "minutes") * 60)
    ref, by = Ref(job.tenant, job.id), _by(ask, fields)
    await operate.reschedule(ask.host.store, ref, delay_us=micros(delay), by=by)
    return moved(f"{link('jobs', job.tenant, job.id)}?did=changed")


def _whole(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "").strip()
    if not _WHOLE.fullmatch(text):
        raise InvalidInput(field=name, why="is not a whole number")
    return int(text)


def _number(fields: Mapping[str, str], name: str) -> int | None:
    """None if the field is empty."""
    return _whole(fields, name) if fields.get(name, "").strip() else None


def _by(ask: Ask, fields: Mapping[str, str]) -> By:
    """The signed-in viewer and the given reason."""
    return By(operate.author(ask.viewer.name), fields.get("reason", "").strip()).checked()


async def _job(ask: Ask) -> JobRecord:
    return await views.seen(ask.host.store, ask.viewer, Ref(ask.part("tenant"), ask.part("id")))


# -- dead letters ----------------------------------------------------------------------------------


async def planned(ask: Ask, chosen: Filters, act: str) -> Bulk:
    """A preview of a bulk action."""
    _known(act)
    before = ask.host.clock.now()
    select = chosen.selection(ask.viewer, before=before)
    total, over = await views.preview(ask.host.store, select, replay=act == "replay")
    return Bulk(act=act, filters=chosen, before=before, total=total, over=over)


async def bulk(ask: Ask) -> Response:
    """Does one step and shows the form of the next."""
    fields = await _operated(ask)
    act = _known(ask.part("act"))
    chosen = filters.read(fields).but(state=State.FAILED.value)
    before = filters.cursor(fields, "before")
    if before is None:
        raise InvalidInput(field="before", why="is missing: open the preview first")
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
