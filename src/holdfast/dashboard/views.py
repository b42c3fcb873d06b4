"""The content of each page as plain values, read by `operate`. No HTML, no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast import job_bodies, operate
from holdfast.core import shown
from holdfast.core.bounds import ID_MAX, INSTANT_MAX, TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import Micros
from holdfast.core.codec import Codecs
from holdfast.core.errors import JobNotFound
from holdfast.core.job import TERMINAL, Event, EventKind, JobRecord, State
from holdfast.core.mapped import told
from holdfast.dashboard.feed import Snapshot
from holdfast.dashboard.host import Viewer
from holdfast.dashboard.journal_views import JournalView, journal
from holdfast.explain import Explained
from holdfast.store import Find, Ref, Selection, Store, Tally

BUSIEST = 8
TIMELINE_MAX = 200
"""Maximum entries of a job's timeline, the latest ones."""
BODY_INLINE_MAX = 16 * 1024
"""Up to this many bytes of a payload or result are rendered without a thread."""
PREVIEW_MAX = 10_000
PREVIEW_STEP = 1000

# -- overview --------------------------------------------------------------------------------------


def busiest(snapshot: Snapshot) -> list[Tally]:
    """The queues with the most jobs that have not ended."""

    def load(tally: Tally) -> int:
        return sum(n for state, n in tally.counts.items() if state not in TERMINAL)

    found = sorted(snapshot.tallies, key=lambda one: (-load(one), one.tenant, one.queue))
    return found[:BUSIEST]


# -- jobs ------------------------------------------------------------------------------------------


class JobPage(msgspec.Struct, frozen=True):
    jobs: Sequence[JobRecord]
    cursor: int | None


async def jobs(store: Store, select: Selection, after: int | None, limit: int) -> JobPage:
    """A page of jobs, newest first."""
    page = await store.find(Find(select=select, after=after, limit=limit))
    return JobPage(page.jobs, page.cursor)


async def preview(store: Store, select: Selection, *, replay: bool) -> tuple[int, bool]:
    """The number of jobs that a bulk action would change, and whether there are more."""
    total, seen, after = 0, 0, None
    while seen < PREVIEW_MAX:
        page = await store.find(Find(select=select, after=after, limit=PREVIEW_STEP))
        seen += len(page.jobs)
        total += sum(not replay or job.replayed_as is None for job in page.jobs)
        after = page.cursor
        if after is None:
            return total, False
    return total, True


# -- one job ---------------------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a timeline: one event, or several equal ones in a row."""

    kind: str
    at: Micros
    after_us: Micros | None
    """The time since the previous line; None for the first."""
    attempt: int
    until: Micros | None
    until_words: str
    note: str | None
    by: str | None = None
    times: int = 1


class Progress(msgspec.Struct, frozen=True):
    """The progress that a handler reported."""

    done: float | None = None
    total: float | None = None
    note: str = ""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    job: JobRecord
    entries: Sequence[Entry]
    omitted: int
    lost: bool
    explained: Explained | None
    payload: str
    result: str | None
    progress: Progress | None
    journal: JournalView

    @property
    def alive(self) -> bool:
        return self.job.state not in TERMINAL

    @property
    def endless(self) -> bool:
        """Whether it is due only when what it awaits has come."""
        return self.job.run_at >= INSTANT_MAX

    @property
    def changeable(self) -> bool:
        """Whether it is waiting, so that it can be changed."""
        return self.alive and self.job.state is not State.PROCESSING


_UNTIL = {
    EventKind.LEASED: "lease ends",
    EventKind.EXTENDED: "lease ends",
    EventKind.RETRYING: "next attempt",
    EventKind.ENQUEUED: "due",
    EventKind.RELEASED: "due",
    EventKind.CHANGED: "due",
}


async def seen(store: Store, viewer: Viewer, ref: Ref) -> JobRecord:
    """The job. Raises JobNotFound, also if the viewer may not see it."""
    if viewer.tenant not in (None, ref.tenant):
        raise JobNotFound(id=ref.id)
    check_name("tenant", ref.tenant, TENANT_MAX)
    check_name("id", ref.id, ID_MAX)
    job = await operate.one_job(store, ref.id, ref.tenant)
    if not viewer.may_queue(job.queue):
        raise JobNotFound(id=ref.id)
    return job


async def job(store: Store, codecs: Codecs, viewer: Viewer, ref: Ref) -> JobView:
    """Everything about one job. Raises JobNotFound, also if the viewer may not see it."""
    record = await seen(store, viewer, ref)
    found = await operate.timeline(store, record.id, record.tenant)
    entries = timeline(found.events)
    explained = None
    if found.job.state not in TERMINAL and store.capabilities.scopes:
        explained = await operate.explain(store, record.id, record.tenant, reader=viewer.reader)
    payload, result = await _bodies(found.job, codecs)
    return JobView(
        job=found.job,
        entries=entries[-TIMELINE_MAX:],
        omitted=max(0, len(entries) - TIMELINE_MAX),
        lost=found.lost,
        explained=explained,
        payload=payload,
        result=result,
        progress=progress(found.job.progress),
        journal=await journal(store, found.job),
    )


def timeline(events: Sequence[Event]) -> list[Entry]:
    """Combines consecutive heartbeats into one line."""
    found: list[Entry] = []
    for event in events:
        last = found[-1] if found else None
        if event.kind is EventKind.EXTENDED and last is not None and last.kind == event.kind:
            found[-1] = msgspec.structs.replace(
                last,
                at=event.at,
                after_us=None if last.after_us is None else last.after_us + event.at - last.at,
                until=event.until,
                times=last.times + 1,
            )
            continue
        found.append(
            Entry(
                kind=event.kind.value,
                at=event.at,
                after_us=None if last is None else event.at - last.at,
                attempt=event.attempt,
                until=event.until if event.kind in _UNTIL and event.until != INSTANT_MAX else None,
                until_words=_UNTIL.get(event.kind, ""),
                note=event.note,
                by=event.by,
            )
        )
    return found


def progress(text: str | None) -> Progress | None:
    """Parses progress of `ctx.progress`; any other text becomes the note."""
    if text is None:
        return None
    try:
        said = msgspec.json.decode(text, type=Progress)
    except (msgspec.MsgspecError, RecursionError):
        return Progress(note=told(text))
    return said if said != Progress() else Progress(note=text)


async def _bodies(record: JobRecord, codecs: Codecs) -> tuple[str, str | None]:
    """Payload and result as text, rendered in a thread if they are large."""
    bodies = (record.envelope.body, record.result or b"")
    if all(isinstance(body, bytes) and len(body) <= BODY_INLINE_MAX for body in bodies):
        return _shown(record, codecs)
    return await asyncio.to_thread(_shown, record, codecs)


def _shown(record: JobRecord, codecs: Codecs) -> tuple[str, str | None]:
    payload = _too_large(record.envelope.body)
    if payload is None:
        payload = shown.pretty(job_bodies.payload_of(record, codecs))
    return payload, _result(record, codecs)


def _too_large(body: object) -> str | None:
    if isinstance(body, bytes) and len(body) > shown.BYTES_MAX:
        return f"<{len(body)} bytes, too large to show>"
    return None


def _result(record: JobRecord, codecs: Codecs) -> str | None:
    if record.result is None:
        return None
    if (large := _too_large(record.result)) is not None:
        return large
    return shown.pretty(job_bodies.result_of(record, codecs))
