"""Journals: what a job remembers, and signals to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from holdfast.attempts import AttemptError
from holdfast.core.clock import moment
from holdfast.core.codec import JSON
from holdfast.core.errors import JobNotFound
from holdfast.core.job import JobRecord, State
from holdfast.core.journal import REMEMBERED, Entry, EntryKind, Journal, Signal
from holdfast.fields import Strict
from holdfast.job_journal import shown as read
from holdfast.service.api.entries import value_of
from holdfast.service.api.hiding import addressable
from holdfast.service.aside import aside
from holdfast.service.call import Call
from holdfast.service.journal_wire import (
    AttemptErrorOut,
    EdgeOut,
    EntriesOut,
    JoinOut,
    JournalOut,
    RememberedOut,
    SignaledOut,
)
from holdfast.service.render import entry_out, shown
from holdfast.store import Find, Page, Ref, Selection

SHOWN_MAX = 8 * 1024
"""A larger value is shown only on request: all values of a job may have a megabyte."""
EDGES_SHOWN = 1000


class Reading(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    full: bool = False


async def journal(call: Call) -> JournalOut:
    """What a job remembers: steps, positions, signals, joins, the errors of its last attempts and
    its log. Large values are left out, unless asked for.
    """
    ref = call.job()
    page = await _stored(call, Selection(tenant=ref.tenant, ids=(ref.id,)))
    stored = page.journals.get(ref, Journal())
    return await aside(stored.bytes, lambda: _told(page.jobs[0], stored, call.query.full))


async def _stored(call: Call, select: Selection) -> Page:
    """The page of one job. Raises JobNotFound, also for one of another queue."""
    page = await call.service.store.find(Find(select=select, limit=1, journals=True))
    if not page.jobs or not call.caller.may_queue(page.jobs[0].queue):
        raise JobNotFound(id=select.ids[0])
    return page


async def running(call: Call, ref: Ref) -> Page:
    """The page of a job that runs, with its journal, for a caller who could have claimed it. A
    worker reads it whose lease has left the journal out, and may have no right to read.
    """
    select = Selection(tenant=ref.tenant, ids=(ref.id,), states=(State.PROCESSING,))
    page = await _stored(call, select)
    if not call.caller.may_type(page.jobs[0].type):
        raise JobNotFound(id=ref.id)
    return page


async def remembered(call: Call) -> EntriesOut:
    """The steps, positions, joins and signals of a running job, for a worker whose claim has left
    them out (`left_out`).
    """
    ref = call.job()
    stored = (await running(call, ref)).journals.get(ref, Journal())
    entries = [entry for entry in stored.entries if entry.kind in REMEMBERED]
    out = await aside(stored.bytes, lambda: [entry_out(entry) for entry in entries])
    return EntriesOut(id=ref.id, journal=out)


def _told(job: JobRecord, stored: Journal, full: bool) -> JournalOut:
    found = read(stored)
    entries = sorted(stored.entries, key=lambda entry: entry.at)
    return JournalOut(
        id=job.id,
        awaits=job.awaits,
        steps=_of(entries, EntryKind.STEP, full),
        positions=_of(entries, EntryKind.POSITION, full),
        signals=_of(entries, EntryKind.SIGNAL, full),
        joins=[
            JoinOut(name=name, total=join.total, left=join.left, failed=join.failed)
            for name, join in found.joins.items()
        ],
        errors=[_error(error) for error in found.errors],
        log=found.log,
        edges=[
            EdgeOut(target=edge.target, join=edge.join, on_failure=edge.on_failure)
            for edge in stored.edges[:EDGES_SHOWN]
        ],
        edges_total=len(stored.edges),
    )


def _of(entries: Iterable[Entry], kind: EntryKind, full: bool) -> list[RememberedOut]:
    return [_remembered(entry, full) for entry in entries if entry.kind is kind]


def _remembered(entry: Entry, full: bool) -> RememberedOut:
    size = len(entry.value)
    left_out = size > SHOWN_MAX and not full
    value, text = (None, None) if left_out else shown(JSON, entry.value)
    return RememberedOut(
        name=entry.name, at=moment(entry.at), size=size,
        value=value, value_base64=text, left_out=left_out,
    )  # fmt: skip


def _error(error: AttemptError) -> AttemptErrorOut:
    return AttemptErrorOut(
        attempt=error.attempt,
        kind=error.kind,
        message=error.message,
        traceback=error.traceback,
        worker=error.worker,
        started_at=moment(error.started_at),
        ended_at=moment(error.ended_at),
    )


async def signal(call: Call) -> SignaledOut:
    """Sends a named value to a job, which may wait for it now, later or never. The first value of a
    name counts.
    """
    ref, body = call.job(), call.body
    mine = await addressable(call, [ref])
    if mine is not None and ref not in mine:
        raise JobNotFound(id=ref.id)
    value = value_of(body.value, body.value_base64)
    [answer] = await call.service.store.signal(
        [Signal(ref.tenant, ref.id, body.name, value)], by=call.by
    )
    if answer.error is not None:
        raise answer.error
    return SignaledOut(id=ref.id, stored=answer.stored)
