"""The journals of jobs: their entries and joins, as they are stored. The row of a job says how much
its journal uses, or that it has none.

An entry is its instant, then its value. A join is (total, at, parts, left): `left` is how many ends
it awaits, or 0 where they are spread over as many parts as `parts` says, until the last of these is
empty. Behind its key are the number of ends that were failures, and these parts, each with the ends
that it awaits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.journal import (
    REMEMBERED,
    Entry,
    EntryKind,
    Join,
    Key,
    Size,
    join_entry,
    written,
)
from holdfast.core.lifecycle import Transition
from holdfast.store import Extension
from holdfast.stores.foundationdb.layout import (
    INLINE_MAX,
    number,
    seq_bytes,
    seq_number,
    text,
    texts,
    whole,
)
from holdfast.stores.foundationdb.overlay import Pair, count_of
from holdfast.stores.foundationdb.rows import Row, pack
from holdfast.stores.foundationdb.step import Step

JOIN_PARTS = 64
"""Parts of a wide join. One of a few jobs has none: as many ends meet in it only once."""
JOIN_FEW = 16
JOIN_SHARE = 4
"""Ends that a part awaits at least."""
NUMBERS = {
    EntryKind.STEP: b"\1",
    EntryKind.POSITION: b"\2",
    EntryKind.SIGNAL: b"\3",
    EntryKind.JOIN: b"\4",
    EntryKind.ERROR: b"\5",
    EntryKind.LOG: b"\6",
}
"""Part of the format. Those that a lease brings back come first."""
KIND_OF = {place[0]: kind for kind, place in NUMBERS.items()}
FAILED = b"\0"
"""Behind the key of a join, before its parts."""
_AT = 8
_END = b"\5"

_join = msgspec.msgpack.Decoder(tuple[int, int, int, int])


def entry_key(step: Step, name: tuple[str, str], key: Key) -> bytes:
    """The key of an entry of a job."""
    kind, named = key
    return step.keys.journal(*name) + NUMBERS[kind] + text(named)


def awaited_key(step: Step, name: tuple[str, str], awaits: str) -> bytes:
    """The key of the signal or join that a job awaits."""
    kind, _, named = awaits.partition(":")
    return entry_key(step, name, (EntryKind(kind), named))


def ask_entries(step: Step, name: tuple[str, str], entries: Iterable[Entry]) -> None:
    """Requests what `write` reads."""
    step.ask(entry_key(step, name, (each.kind, each.name)) for each in entries if _counts(each))


def _counts(entry: Entry) -> bool:
    return entry.kind in REMEMBERED


def entries_bytes(change: Transition | Extension) -> int:
    """What the entries of a change write, about."""
    return sum(len(entry.value) for entry in change.entries)


# -- writing ---------------------------------------------------------------------------------------


async def write(
    step: Step, row: Row, entries: Sequence[Entry], at: Micros | None = None
) -> str | None:
    """Stores what counts of the entries, or none of them and says what would be too much. The
    caller saves the row, which has the new size.
    """
    size = _size_of(row)
    known = {} if row.journal is None else await _known(step, row, entries)
    fresh, size = written(size, known, entries)
    if size.overflow is not None:
        return size.overflow
    row.journal = (size.steps, size.signals, size.bytes, size.logs)
    for entry in fresh:
        _put(step, row, entry, step.now if at is None else at)
    return None


def _size_of(row: Row) -> Size:
    return Size() if row.journal is None else Size(*row.journal)


async def _known(step: Step, row: Row, entries: Sequence[Entry]) -> dict[Key, int]:
    """The bytes of those of the entries that are stored."""
    asked = [(each.kind, each.name) for each in entries if _counts(each)]
    found = await step.get_many([entry_key(step, row.name, key) for key in asked], snapshot=True)
    return {
        key: _length(key[0], value)
        for key, value in zip(asked, found, strict=True)
        if value is not None
    }


def _length(kind: EntryKind, value: bytes) -> int:
    if kind is not EntryKind.JOIN:
        return max(0, len(value) - _AT)
    try:
        return len(str(_join.decode(value)[0]))
    except msgspec.MsgspecError:
        return 0


def _put(step: Step, row: Row, entry: Entry, at: Micros) -> None:
    key = entry_key(step, row.name, (entry.kind, entry.name))
    if entry.kind is not EntryKind.JOIN:
        step.put(key, whole(at) + entry.value)
        return
    total = int(entry.value)
    parts = 0 if total < JOIN_FEW else min(JOIN_PARTS, total // JOIN_SHARE)
    step.put(key, pack((total, at, parts, 0 if parts else total)))
    for part in range(parts):
        share = total // parts + (part < total % parts)
        step.put(key + bytes([1 + part]), seq_bytes(share))


async def has(step: Step, row: Row, awaits: str) -> bool:
    """Whether the signal has come, or the join is complete. A step that completes the join
    conflicts with this one.
    """
    if row.journal is None:
        return False
    found = await step.get(awaited_key(step, row.name, awaits))
    if found is None or awaits.startswith(EntryKind.SIGNAL.value):
        return found is not None
    try:
        return not any(_join.decode(found)[2:])
    except msgspec.MsgspecError:
        return False


# -- reading ---------------------------------------------------------------------------------------


def _remembered(step: Step, row: Row) -> Pair:
    prefix = step.keys.journal(*row.name)
    return prefix, prefix + _END


def ask_contents(step: Step, rows: Iterable[Row], most: int) -> None:
    """Requests the payloads and journals that leases of these jobs bring and that are not in their
    rows, up to so many bytes together.
    """
    for row in rows:
        size = _size_of(row)
        most -= row.size + (0 if size.left_out else size.bytes)
        if most < 0:
            return
        if row.size > INLINE_MAX:
            step.ask_under(step.keys.body(row.tenant, row.id), 0)
        if row.journal is not None and not size.left_out:
            step.ask_range(*_remembered(step, row), 0)


async def remembered(step: Step, row: Row) -> tuple[tuple[Entry, ...], int]:
    """What a lease of the job brings back, and how many entries it leaves out. Raises ValueError if
    an entry cannot be read: its step would be done again.
    """
    left_out = _size_of(row).left_out
    if row.journal is None or left_out:
        return (), left_out
    pairs = await step.range(*_remembered(step, row), snapshot=True)
    return tuple(_entries(step.keys.journal(*row.name), pairs, strict=True)), 0


async def fault(step: Step, row: Row) -> str | None:
    """Why nobody can run the job: its journal cannot be read."""
    try:
        await remembered(step, row)
    except ValueError as error:
        return f"its journal cannot be read: {error}"
    return None


async def read_entries(step: Step, row: Row) -> tuple[Entry, ...]:
    """All entries of a job that can be read."""
    if row.journal is None:
        return ()
    prefix = step.keys.journal(*row.name)
    pairs = await step.under(prefix, snapshot=True)
    return tuple(_entries(prefix, pairs, strict=False))


def _entries(prefix: bytes, pairs: Sequence[Pair], *, strict: bool) -> list[Entry]:
    entries: list[Entry] = []
    joins: dict[bytes, StoredJoin] = {}
    for key, value in pairs:
        rest = key[len(prefix) :]
        try:
            kind = KIND_OF[rest[0]]
            [name] = texts(rest[1:], 1)
            end = 1 + len(text(name))
            if kind is not EntryKind.JOIN:
                entries.append(_entry(kind, name, value))
            elif end == len(rest):
                joins[key] = StoredJoin.of(key, name, value)
            elif (join := joins.get(prefix + rest[:end])) is not None:
                join.add(rest[end:], value)
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            if strict:
                raise ValueError("it has an entry that is none") from error
    return entries + [join.entry for join in joins.values()]


def _entry(kind: EntryKind, name: str, value: bytes) -> Entry:
    if len(value) < _AT:
        raise ValueError("it has no instant")
    return Entry(kind, name, value[_AT:], number(value))


class StoredJoin(msgspec.Struct, gc=False):
    """A join as it is stored, with its parts."""

    key: bytes
    name: str
    total: int
    at: Micros
    parts: int
    """In how many parts it is kept; 0 when all of them are empty."""
    left: int
    failed: int = 0
    shares: dict[bytes, int] = {}
    """The keys of the parts, and how many ends each awaits."""
    chosen: bytes | None = None
    """The part in which this step counts."""

    @classmethod
    def of(cls, key: bytes, name: str, value: bytes) -> StoredJoin:
        return cls(key, name, *_join.decode(value))

    def add(self, place: bytes, value: bytes) -> None:
        """Adds what one of the keys behind it says."""
        if place == FAILED:
            self.failed = count_of(value)
        else:
            self.shares[self.key + place] = seq_number(value)

    @property
    def complete(self) -> bool:
        return not (self.parts or self.left)

    @property
    def value(self) -> bytes:
        return pack((self.total, self.at, self.parts, self.left))

    @property
    def entry(self) -> Entry:
        left = self.left + sum(self.shares.values())
        return join_entry(self.name, Join(self.total, left, self.failed), self.at)


async def read_join(step: Step, name: tuple[str, str], join: str) -> StoredJoin | None:
    """A join of a job, by snapshot; None if there is none that can be read."""
    key = entry_key(step, name, (EntryKind.JOIN, join))
    pairs = await step.under(key, snapshot=True)
    if not pairs or pairs[0][0] != key:
        return None
    try:
        found = StoredJoin.of(key, join, pairs[0][1])
    except msgspec.MsgspecError:
        return None
    for each, value in pairs[1:]:
        found.add(each[len(key) :], value)
    found.failed += step.added(key + FAILED)
    return found
