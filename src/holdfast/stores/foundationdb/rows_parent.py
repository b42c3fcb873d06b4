"""What the FoundationDB store keeps of an ended job as long as its edges are followed."""

from __future__ import annotations

import msgspec

from holdfast.core.job import State
from holdfast.stores.foundationdb.rows import Row


class Parent(msgspec.Struct, array_like=True, gc=False):
    """A job that has ended, whose edges are followed."""

    tenant: str
    id: str
    queue: str
    seq: int
    state: State
    """In which it ended, or was deleted."""
    edges: int
    few: tuple[tuple[str, str, str], ...]
    gone: bool
    """Whether the job was deleted, and its edges are to be deleted with the last of them."""
    followed: int = 0

    @classmethod
    def of(cls, row: Row, *, gone: bool = False) -> Parent:
        return cls(row.tenant, row.id, row.queue, row.seq, row.state, row.edges, row.few, gone)


_parent = msgspec.msgpack.Decoder(Parent)


def parent_of(value: bytes) -> Parent | None:
    """The parent; None for a value that is none."""
    try:
        return _parent.decode(value)
    except (msgspec.MsgspecError, UnicodeError):
        return None
