"""Journals: entries and edges as lib_journal.lua and lib_joins.lua take and tell them, and back."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache
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
from holdfast.stores.redis.rows_text import LENGTH, TEXT_CACHE_MAX, raw, sized, text_at

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
ROW_EDGES_MAX = 400
"""Bytes of edges that are stored in the row of their job: it is read and written at each step."""

_KINDS = {ord(letter): kind for kind, letter in LETTERS.items()}
_HOW = {OnFailure.FAIL: b"f", OnFailure.RUN: b"r", OnFailure.SKIP: b"s"}
_HOW_OF = {each: how for how, letter in _HOW.items() for each in (letter[0], letter.upper()[0])}
_NO_JOIN = LENGTH.pack(0)
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


def edge_texts(edges: Sequence[Edge], single: Set[str]) -> bytes | list[Any] | None:
    """Edges as they are stored: few as one text, which is in the row; more of them in parts, each
    of which says how many there are. `single` are targets with one parent.
    """
    if not edges:
        return None
    number = (len(edges) + EDGES_PART - 1) // EDGES_PART
    parts = [
        b"".join([LENGTH.pack(number), *(_edge(each, single) for each in edges[at:][:EDGES_PART])])
        for at in range(0, len(edges), EDGES_PART)
    ]
    in_row = number == 1 and len(parts[0]) <= ROW_EDGES_MAX
    return parts[0] if in_row else [raw(part) for part in parts]


def _edge(edge: Edge, single: Set[str]) -> bytes:
    target, join = edge.target.encode(), edge.join
    start = _edge_start(edge.on_failure, edge.target in single and not join, len(target))
    return start + target + (sized(join) if join else _NO_JOIN)


@lru_cache(TEXT_CACHE_MAX)
def _edge_start(how: OnFailure, in_row: bool, length: int) -> bytes:
    """What stands before the target of an edge; `in_row`: its row should have its join."""
    letter = _HOW[how]
    return (letter.upper() if in_row else letter) + LENGTH.pack(length)


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
