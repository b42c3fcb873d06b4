"""The journal of a job for people and programs that read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.attempts import UNREADABLE, AttemptError, attempt_errors
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, JobNotFound, did_you_mean
from holdfast.core.journal import Edge, Entry, EntryKind, Join, Journal, join_of
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
    try:
        return msgspec.json.decode(value)
    except UNREADABLE:
        return value


def lines_of(entry: Entry) -> list[str]:
    """The lines of an entry of the log."""
    try:
        return msgspec.json.decode(entry.value, type=list[str])
    except UNREADABLE:
        return []
