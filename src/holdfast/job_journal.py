"""The journal of a job for people and programs that read it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from holdfast.attempts import UNREADABLE, AttemptError, attempt_errors
from holdfast.core.blob import is_offloaded
from holdfast.core.clock import Micros
from holdfast.core.errors import DecodeError, InvalidInput, JobNotFound, did_you_mean
from holdfast.core.job import JobRecord, Lease, State
from holdfast.core.journal import REMEMBERED, Edge, Entry, EntryKind, Join, Journal, join_of
from holdfast.core.mapped import is_mapped, reason_of
from holdfast.store import Find, Ref, Selection, Store


class Remembered(msgspec.Struct, frozen=True):
    """A step, a position or a signal."""

    name: str
    value: Any
    """As plain data, or as bytes if it is not JSON."""
    at: Micros


class JobJournal(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored beside a job, each kind in the order of time."""

    steps: Sequence[Remembered] = ()
    positions: Sequence[Remembered] = ()
    signals: Sequence[Remembered] = ()
    joins: dict[str, Join] = {}
    """How many jobs it still awaits, by the name of the join."""
    errors: Sequence[AttemptError] = ()
    log: Sequence[str] = ()
    edges: Sequence[Edge] = ()
    """The jobs that await its end."""

    def checked_step(self, name: str) -> str:
        """The name, if there is such a step. Raises InvalidInput."""
        names = [step.name for step in self.steps]
        if name not in names:
            hint = did_you_mean(name, names)
            why = f"the job has finished no step {name!r}.{hint}"
            raise InvalidInput(field="from_step", why=why)
        return name


async def read_journal(store: Store, ref: Ref) -> JobJournal:
    """The journal of a job. Raises JobNotFound."""
    select = Selection(tenant=ref.tenant, ids=(ref.id,))
    page = await store.find(Find(select=select, limit=1, journals=True))
    if not page.jobs:
        raise JobNotFound(id=ref.id)
    return shown(page.journals.get(ref, Journal()))


async def with_journals(
    store: Store, tenant: str, ids: Sequence[str]
) -> AsyncIterator[tuple[JobRecord, Journal]]:
    """Those of up to JOURNALS_MAX jobs that there are, with their journals, in as many pages as
    these take.
    """
    select, after = Selection(tenant=tenant, ids=tuple(ids)), None
    while True:
        find = Find(select=select, after=after, limit=len(select.ids), journals=True)
        page = await store.find(find)
        for job in page.jobs:
            yield job, page.journals.get(Ref(tenant, job.id), Journal())
        if (after := page.cursor) is None:
            return


async def with_left_out(store: Store, lease: Lease) -> Lease:
    """The lease with the journal that its claim has left out. While the lease holds, entries are
    only added. Raises JobNotFound if the job does not run any more, and DecodeError if entries are
    missing: their steps would be done again.
    """
    job = lease.job
    select = Selection(tenant=job.tenant, ids=(job.id,), states=(State.PROCESSING,))
    page = await store.find(Find(select=select, limit=1, journals=True))
    if not page.jobs:
        raise JobNotFound(id=job.id)
    stored = page.journals.get(Ref(job.tenant, job.id), Journal()).entries
    found = tuple(entry for entry in stored if entry.kind in REMEMBERED)
    for entry in found:
        if (reason := reason_of(entry.value)) is not None:
            raise reason.error(job.type)
    if len(found) < lease.left_out:
        why = f"{len(found)} of the {lease.left_out} entries of its journal can be read"
        raise DecodeError(codec="journal", type=job.type, why=why)
    return msgspec.structs.replace(lease, journal=found, left_out=0)


def shown(stored: Journal) -> JobJournal:
    """A stored journal in the form for readers."""
    entries = sorted(stored.entries, key=lambda entry: entry.at)
    return JobJournal(
        steps=_of(entries, EntryKind.STEP),
        positions=_of(entries, EntryKind.POSITION),
        signals=_of(entries, EntryKind.SIGNAL),
        joins={one.name: join_of(one) for one in entries if one.kind is EntryKind.JOIN},
        errors=attempt_errors(entries),
        log=[line for entry in entries if entry.kind is EntryKind.LOG for line in lines_of(entry)],
        edges=stored.edges,
    )


def _of(entries: Sequence[Entry], kind: EntryKind) -> list[Remembered]:
    return [
        Remembered(entry.name, _plain(entry.value), entry.at)
        for entry in entries
        if entry.kind is kind
    ]


def _plain(value: bytes) -> Any:
    if (reason := reason_of(value)) is not None:
        return f"(cannot be read: {reason.why})"
    if is_offloaded(value):
        return "(in the bucket)"
    if is_mapped(value):
        return "(encrypted)"
    try:
        return msgspec.json.decode(value)
    except UNREADABLE:
        return value


def lines_of(entry: Entry) -> list[str]:
    """The lines of an entry of the log."""
    if is_mapped(entry.value):
        reason = reason_of(entry.value)
        return ["(encrypted)" if reason is None else f"(cannot be read: {reason.why})"]
    try:
        return msgspec.json.decode(entry.value, type=list[str])
    except UNREADABLE:
        return []
