"""The model of a journal: what one job of the model remembers, and how far its joins are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core.bounds import LOGS_MAX
from holdfast.core.clock import Micros
from holdfast.core.journal import Entry, EntryKind, Join, join_of

REPLACED = (EntryKind.POSITION, EntryKind.ERROR, EntryKind.LOG)
"""Kinds of which the last entry of a name counts; of the others the first one does."""


@dataclass
class Joined:
    """A join: which ends it has counted."""

    total: int
    ends: list[bool] = field(default_factory=list)
    """For each job that has ended, whether it failed."""
    unsure: bool = False
    """Several jobs ended in one call, and which of them came first decides the numbers."""

    @property
    def left(self) -> int:
        return self.total - len(self.ends)

    def shows(self, join: Join) -> bool:
        """Whether a reader may be shown this."""
        if self.unsure:
            counted = self.total - join.left
            return join.total == self.total and 0 <= join.failed <= counted <= self.total
        return join == Join(self.total, self.left, sum(self.ends))


@dataclass
class Notes:
    """The entries of one job, each with its instant."""

    values: dict[tuple[EntryKind, str], tuple[bytes, Micros]] = field(default_factory=dict)
    joins: dict[str, Joined] = field(default_factory=dict)
    logs: int = 0

    def write(self, entries: Iterable[Entry], now: Micros) -> None:
        """P16: the first step, signal and join of a name counts; others are replaced."""
        for entry in entries:
            name = entry.name
            if entry.kind is EntryKind.LOG:
                name = str(self.logs % LOGS_MAX)
                self.logs += 1
            key = (entry.kind, name)
            if key in self.values and entry.kind not in REPLACED:
                continue
            self.values[key] = (entry.value, now)
            if entry.kind is EntryKind.JOIN:
                self.joins[name] = Joined(int(entry.value))

    def has(self, awaits: str | None) -> bool:
        """Whether a signal has come, or a join is complete."""
        if awaits is None:
            return False
        kind, _, name = awaits.partition(":")
        if kind == EntryKind.JOIN.value:
            return name in self.joins and self.joins[name].left == 0
        return (EntryKind.SIGNAL, name) in self.values

    def before(self, step: str) -> Notes | None:
        """P6: what a replay from this step starts with; None if there is no such step."""
        if (EntryKind.STEP, step) not in self.values:
            return None
        _, until = self.values[EntryKind.STEP, step]
        timed = (EntryKind.STEP, EntryKind.POSITION)
        kept = {
            (kind, name): (value, at)
            for (kind, name), (value, at) in self.values.items()
            if kind is EntryKind.SIGNAL or (kind in timed and at < until)
        }
        return Notes(kept)

    @property
    def signals(self) -> int:
        return sum(kind is EntryKind.SIGNAL for kind, _ in self.values)

    def check(self, entries: Iterable[Entry], kinds: Iterable[EntryKind]) -> None:
        """P16, P17: these are all entries of these kinds, with their values and instants."""
        found = {(entry.kind, entry.name): entry for entry in entries}
        expected = {key: value for key, value in self.values.items() if key[0] in kinds}
        assert found.keys() == expected.keys()
        assert len(found) == len(list(entries))
        for key, (value, at) in expected.items():
            assert found[key].at == at
            if key[0] is EntryKind.JOIN:
                assert self.joins[key[1]].shows(join_of(found[key]))
            else:
                assert found[key].value == value
