"""The journal of a job as plain values for its page: bounded texts, the latest ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.attempts import AttemptError
from holdfast.core import shown
from holdfast.core.blockers import awaited
from holdfast.core.clock import Micros
from holdfast.core.job import JobRecord
from holdfast.core.journal import EntryKind, Join, Journal
from holdfast.job_journal import JobJournal, Remembered
from holdfast.job_journal import shown as read
from holdfast.store import Find, Ref, Selection, Store

STEPS_SHOWN = 200
"""Maximum steps of a page, the latest ones; as many positions and signals."""
LINES_SHOWN = 500
VALUE_MAX = 4 * 1024
"""Characters shown of one value. A value that is shorter than the next bound is not collapsed."""
SHORT_MAX = 60
TRACEBACK_MAX = 8 * 1024
INLINE_MAX = 32 * 1024
"""Up to this many bytes of a journal are prepared without a thread."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A step, a position or a signal."""

    key: str
    """Its kind and name, by which the page finds it again."""
    name: str
    at: Micros
    value: str
    short: bool
    """Whether the value fits into a line."""


class JournalView(msgspec.Struct, frozen=True, kw_only=True):
    awaits: str = ""
    """What it awaits, in words."""
    signal: str = ""
    """The signal that it awaits."""
    steps: Sequence[Shown] = ()
    positions: Sequence[Shown] = ()
    signals: Sequence[Shown] = ()
    joins: Sequence[tuple[str, Join]] = ()
    errors: Sequence[AttemptError] = ()
    log: Sequence[str] = ()
    targets: int = 0
    """How many jobs await its end."""
    omitted: int = 0
    """Earlier steps, positions and signals that are not shown."""
    lines_omitted: int = 0


async def journal(store: Store, job: JobRecord) -> JournalView:
    """The journal of a job that the viewer may see."""
    if not store.capabilities.steps:
        return JournalView()
    select = Selection(tenant=job.tenant, ids=(job.id,))
    page = await store.find(Find(select=select, limit=1, journals=True))
    stored = page.journals.get(Ref(job.tenant, job.id), Journal())
    size = sum(len(entry.value) for entry in stored.entries)
    if size <= INLINE_MAX:
        return view(job, stored)
    return await asyncio.to_thread(view, job, stored)


def view(job: JobRecord, stored: Journal) -> JournalView:
    """A stored journal as the page shows it."""
    found: JobJournal = read(stored)
    kind, _, name = (job.awaits or "").partition(":")
    remembered = (found.steps, found.positions, found.signals)
    return JournalView(
        awaits="" if job.awaits is None else awaited(job.awaits),
        signal=name if kind == EntryKind.SIGNAL else "",
        steps=_shown("step", found.steps),
        positions=_shown("position", found.positions),
        signals=_shown("signal", found.signals),
        joins=[(name or "its parents", join) for name, join in found.joins.items()],
        errors=[_cut(error) for error in reversed(found.errors)],
        log=found.log[-LINES_SHOWN:],
        targets=len(stored.edges),
        omitted=sum(max(0, len(some) - STEPS_SHOWN) for some in remembered),
        lines_omitted=max(0, len(found.log) - LINES_SHOWN),
    )


def _shown(kind: str, found: Sequence[Remembered]) -> list[Shown]:
    return [
        Shown(
            key=f"{kind} {one.name}",
            name=one.name,
            at=one.at,
            value=(value := _text(one.value)),
            short=len(value) <= SHORT_MAX and "\n" not in value,
        )
        for one in found[-STEPS_SHOWN:]
    ]


def _text(value: Any) -> str:
    """The value as text. JSON text is in quotes, so that it is not taken for something else."""
    if isinstance(value, str):
        return shown.cut(msgspec.json.encode(value[: VALUE_MAX + 1]).decode(), VALUE_MAX)
    return shown.pretty(value, VALUE_MAX)


def _cut(error: AttemptError) -> AttemptError:
    return msgspec.structs.replace(
        error,
        message=shown.cut(error.message, VALUE_MAX),
        traceback=shown.cut(error.traceback, TRACEBACK_MAX),
    )
