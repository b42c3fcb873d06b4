"""What a claim does with each job of a line where groups or types have limits."""

from __future__ import annotations

from holdfast.stores.notifier import Line
from holdfast.stores.sqlite.claim_platform import PlatformTurn
from holdfast.stores.sqlite.limits_platform import Rank
from holdfast.stores.sqlite.limits_room import Room, group_room
from holdfast.stores.sqlite.transaction import Transaction


class Look:
    """One visit of a claim to a line that looks at each job."""

    def __init__(self, transaction: Transaction, line: Line, turn: PlatformTurn) -> None:
        self._transaction = transaction
        self._line = line
        self._turn = turn
        self._rooms: dict[str, Room] = {}
        self.seqs: dict[int, None] = {}
        """The jobs to lease."""
        self.goes_on = True
        self.back: list[int] = []
        """Jobs of the last page whose groups have no room."""
        self.aside: list[tuple[int, str]] = []
        """Jobs of the last page that go aside, with their types."""
        self.freed: str | None = None
        """A group of which a job went aside, so that others of it may come before what follows."""

    def read(self, page: list[tuple[int, str | None, str, int]], wanted: int) -> None:
        """Looks at the first jobs of the line, until it has as many as wanted."""
        tenant, queue = self._line
        self.back, self.aside, self.freed = [], [], None
        for seq, group, type, priority in page:
            if seq in self.seqs:
                continue
            if len(self.seqs) == wanted or self.freed is not None:
                break
            if self._turn.typed and not self._has_type_room(seq, type, priority):
                if not self.goes_on:
                    break
                if self._transaction.scope_cache.gated(tenant, group, queue):
                    self.freed = group
            elif group is not None and not self._has_group_room(group):
                self.back.append(seq)
                self._transaction.groups_to_check.add((tenant, group))
            else:
                self.seqs[seq] = None
                if self._turn.typed:
                    self._turn.start(type)
        self.goes_on = self.goes_on and bool(self.back or self.aside)

    def _has_type_room(self, seq: int, type: str, priority: int) -> bool:
        """Without room the job goes aside, or the visit ends with it."""
        rank: Rank = (-priority, seq)
        if self._turn.waits(self._line, rank):
            self.goes_on = False
            return False
        if self._turn.allows(self._line, type, rank):
            return True
        if self._turn.sets_aside(self._line, type, rank):
            self.aside.append((seq, type))
        else:
            self.goes_on = False
        return False

    def _has_group_room(self, group: str) -> bool:
        tenant, queue = self._line
        if not self._transaction.scope_cache.gated(tenant, group, queue):
            return True
        room = self._rooms.get(group)
        if room is None:
            room = self._rooms[group] = group_room(self._transaction, tenant, group, queue)
        if room.left() == 0:
            return False
        room.start()
        return True

    def save(self) -> None:
        """Stores the tokens of groups that are left."""
        for room in self._rooms.values():
            room.save()
