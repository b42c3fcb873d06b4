"""Journals: entries and edges as lib_journal.lua and lib_joins.lua take and tell them, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from holdfast.core.journal import (
    Edge,
    Entry,
    EntryKind,
    Join,
    Journal,
    OnFailure,
    Size,
    join_entry,
)
from holdfast.stores.redis.rows_text import LENGTH, raw, sized, text_at

LETTERS = {
    EntryKind.STEP: "s",
    EntryKind.POSITION: "p",
    EntryKind.SIGNAL: "g",
    EntryKind.JOIN: "j",
    EntryKind.ERROR: "e",
    EntryKind.LOG: "l",
}
"""What the field of an entry starts with; its name follows."""
EDGES_PART = 50
"""Edges of a job that are stored, and read, as one text."""

_KINDS = {ord(letter): kind for kind, letter in LETTERS.items()}
_HOW = {OnFailure.FAIL: b"f", OnFailure.RUN: b"r", OnFailure.SKIP: b"s"}
_HOW_OF = {letter[0]: how for how, letter in _HOW.items()}
_SIZE = b"#"
_AT = struct.Struct(">d")
_JOIN = struct.Struct(">dIII")

Stored = Sequence[Any]
"""What a script tells of the journal of a job: the join of its parents as (total, left, failed,
instant), its entries as (field, value, field, value, ...), likewise errors and log, the parts of
its edges, how many entries a lease leaves out. None where it has none, or where it was not asked.
"""


# -- as scripts take it ----------------------------------------------------------------------------


def entry_texts(entries: Iterable[Entry]) -> list[Any] | None:
    """Entries as a script takes them: letter, name and value of each, in one list."""
    flat: list[Any] = []
    for entry in entries:
        flat += (LETTERS[entry.kind], entry.name, raw(entry.value))
    return flat or None


def edge_texts(edges: Sequence[Edge]) -> list[Any] | None:
    """Edges as they are stored: in parts, each of which says how many there are."""
    if not edges:
        return None
    number = LENGTH.pack((len(edges) + EDGES_PART - 1) // EDGES_PART)
    parts = (edges[at : at + EDGES_PART] for at in range(0, len(edges), EDGES_PART))
    return [raw(number + b"".join(map(_edge, part))) for part in parts]


def _edge(edge: Edge) -> bytes:
    return _HOW[edge.on_failure] + sized(edge.target) + sized(edge.join)


# -- as scripts tell it ----------------------------------------------------------------------------


def full(numbers: Iterable[int]) -> str:
    """What is too much in a journal that would have this size."""
    return Size(*map(int, numbers)).overflow or "it is full"


def remembered(stored: Stored) -> tuple[tuple[Entry, ...], int]:
    """What a lease brings back, and how many entries it leaves out. Raises if an entry cannot be
    read: its step would be done again.
    """
    entries = (*_of_parents(stored), *(_entry(*pair) for pair in _pairs(stored)))
    return entries, int(stored[4])


def _of_parents(stored: Stored) -> tuple[Entry, ...]:
    if stored[0] is None:
        return ()
    total, left, failed, at = map(int, stored[0])
    return (join_entry("", Join(total, left, failed), at),)


def _pairs(stored: Stored) -> Iterator[tuple[bytes, bytes]]:
    for flat in stored[1:3]:
        for field, value in zip(flat[::2], flat[1::2], strict=True) if flat else ():
            if field != _SIZE:
                yield field, value


def _entry(field: bytes, value: bytes) -> Entry:
    kind, name = _KINDS[field[0]], field[1:].decode()
    if kind is EntryKind.JOIN:
        at, total, left, failed = _JOIN.unpack(value)
        return join_entry(name, Join(total, left, failed), int(at))
    (at,) = _AT.unpack_from(value)
    return Entry(kind, name, value[_AT.size :], int(at))


def journal(stored: Stored) -> Journal:
    """All of a journal that can be read."""
    entries = [*_of_parents(stored)]
    for field, value in _pairs(stored):
        try:
            entries.append(_entry(field, value))
        except (ValueError, LookupError, struct.error):
            continue
    edges: list[Edge] = []
    for part in stored[3] or ():
        try:
            edges += _edges(part)
        except (ValueError, LookupError):
            continue
    return Journal(tuple(entries), tuple(edges))


def _edges(part: bytes) -> list[Edge]:
    edges, at = [], LENGTH.size
    while at < len(part):
        how = _HOW_OF[part[at]]
        target, at = text_at(part, at + 1)
        name, at = text_at(part, at)
        edges.append(Edge(target, name, how))
    return edges
