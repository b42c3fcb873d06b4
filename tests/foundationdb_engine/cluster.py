"""A database on which a property of FoundationDB is tested, and what tests do with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass
class Cluster:
    """A database with the binding that speaks to it, and room for the keys of one test."""

    db: Any
    binding: Any
    prefix: bytes
    pass_time: Callable[[float], object]

    def key(self, name: bytes) -> bytes:
        return self.prefix + name

    def span(self) -> tuple[bytes, bytes]:
        """The range of all keys of this test."""
        return self.prefix, self.prefix + b"\xff"

    def put(self, *names: bytes, value: bytes = b"old") -> int:
        """Writes the keys in a transaction of its own; gives its version."""
        tr = self.db.create_transaction()
        for name in names:
            tr[self.key(name)] = value
        tr.commit().wait()
        version: int = tr.get_committed_version()
        return version

    def value(self, name: bytes) -> bytes | None:
        tr = self.db.create_transaction()
        found: bytes | None = tr[self.key(name)].value
        return found

    def names(self, tr: Any = None, **how: Any) -> list[bytes]:
        """The keys of this test that a transaction sees, a new one if none is given."""
        tr = tr or self.db.create_transaction()
        rows = tr.get_range(*self.span(), **how).to_list()
        return [row.key[len(self.prefix) :] for row in rows]

    def assert_fails(self, code: int, call: Callable[[], Any]) -> None:
        """The call, or the future that it gives, fails with this code."""
        with pytest.raises(self.binding.FDBError) as told:
            call().wait()
        assert told.value.code == code
