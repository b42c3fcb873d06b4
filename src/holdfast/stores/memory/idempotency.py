"""Idempotency keys: which job a key stands for, and for how long."""

from __future__ import annotations

import heapq

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, NewJob
from holdfast.stores.memory.rows import Row

Key = tuple[str, str, str, str]
"""(tenant, queue, type, key)"""


class KeyHold(msgspec.Struct, frozen=True):
    """Which job a key stands for, until its end (None) or until an instant."""

    id: str
    until: Micros | None


class Keys:
    """The idempotency keys of the tables."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.keys: dict[Key, KeyHold] = {}
        self.key_ends: list[tuple[Micros, Key]] = []

    def key_holder(self, key: Key, now: Micros) -> str | None:
        """The id of the job that a key stands for now."""
        hold = self.keys.get(key)
        if hold is None:
            return None
        row = self.rows.get((key[0], hold.id))
        # The id may have been pruned and used again, for a job without this key.
        if row is not None and row.state not in TERMINAL and key_of(row.new) == key:
            return hold.id
        return hold.id if hold.until is not None and hold.until > now else None

    def take_key(self, row: Row, now: Micros) -> None:
        key = key_of(row.new)
        if key is not None:
            length = row.new.rules.key_us
            until = None if length is None else now + length
            self.keys[key] = KeyHold(row.new.id, until)
            if until is not None:
                heapq.heappush(self.key_ends, (until, key))

    def prune_keys(self, now: Micros) -> None:
        """Drops keys whose time has passed and whose job has ended."""
        while self.key_ends and self.key_ends[0][0] <= now:
            _, key = heapq.heappop(self.key_ends)
            if self.key_holder(key, now) is None:
                self.keys.pop(key, None)

    def forget_key(self, row: Row) -> None:
        """Frees the key of a job that is as if it had never been."""
        key = key_of(row.new)
        if key is not None and self.keys[key].id == row.new.id:
            del self.keys[key]

    def release_key(self, row: Row, now: Micros) -> None:
        """Frees the key of a finished job; a timed one stays until its time."""
        key = key_of(row.new)
        if key is None:
            return
        hold = self.keys.get(key)
        if hold is not None and hold.id == row.new.id and (hold.until or 0) <= now:
            del self.keys[key]


def key_of(new: NewJob) -> Key | None:
    return None if new.key is None else (new.tenant, new.queue, new.envelope.type, new.key)
