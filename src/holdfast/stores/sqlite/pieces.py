"""Pieces of packs: what a claim took of one, and which of it is done. Completed many at a time."""

from __future__ import annotations

from typing import Any

from holdfast.job import EventKind
from holdfast.lifecycle import Transition
from holdfast.store import Ref
from holdfast.stores.sqlite import pack_statements as sql
from holdfast.stores.sqlite import packs
from holdfast.stores.sqlite.packing import decode_ids, decode_sizes, head_of
from holdfast.stores.sqlite.transaction import Transaction


class _Piece:
    __slots__ = (
        "done",
        "end",
        "ended",
        "head",
        "ids",
        "pack",
        "seq",
        "size",
        "sizes",
        "token",
        "until",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...]) -> None:
        self.seq: int
        self.until: int
        self.seq, self.pack, number, self.token, self.until, sizes, done, head, ids = row
        self.end = self.seq + number
        self.head = head_of(head)
        start = self.seq - self.pack
        self.ids = decode_ids(ids)[start : start + number]
        self.sizes = decode_sizes(sizes)
        self.done = int.from_bytes(done, "little")
        """A bit for each job that has ended."""
        self.ended = self.size = 0
        """How many ended since it was last saved, and their bytes."""


class Pieces:
    """The pieces that a batch of completions is about."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._found: list[_Piece] = []
        self._last: _Piece | None = None

    def find(self, seq: int) -> bool:
        """True when the job of this sequence was taken in a piece."""
        return self._of(seq) is not None

    def complete(self, seq: int, change: Transition) -> bool:
        """True when the job is completed by this, as of the next `flush`."""
        piece = self._of(seq)
        transaction = self._transaction
        if piece is None or piece.until <= transaction.now or piece.head.keep_us > 0:
            return False
        at = seq - piece.seq
        if (
            piece.done >> at & 1
            or change.id != piece.ids[at]
            or change.token != f"{piece.token}{seq}"
            or change.tenant != piece.head.tenant
        ):
            return False
        piece.done |= 1 << at
        piece.ended += 1
        piece.size += piece.sizes[at]
        transaction.ended.append(Ref(change.tenant, change.id))
        name = (change.tenant, change.id, piece.head.queue, piece.head.type)
        transaction.note(EventKind.COMPLETED, name, 1, 1)
        return True

    def flush(self) -> None:
        """Writes what ended. The calls that follow may open a piece: all are read anew."""
        transaction = self._transaction
        for piece in self._found:
            if not piece.ended:
                continue
            where = (piece.head.tenant, piece.head.queue, None)
            transaction.move(where, "processing", None, piece.ended, -piece.size)
            number = piece.end - piece.seq
            if piece.done == (1 << number) - 1:
                transaction.execute(sql.PIECE_DROP, (piece.seq,))
            else:
                done = piece.done.to_bytes((number + 7) // 8, "little")
                transaction.execute(sql.PIECE_DONE, (done, piece.seq))
            transaction.execute(sql.PACK_LESS, (piece.ended, piece.pack))
            if transaction.execute(sql.PACK_LEFT, (piece.pack,)).fetchone() == (0,):
                packs.drop(transaction, piece.pack)
        self._found.clear()
        self._last = None

    def _of(self, seq: int) -> _Piece | None:
        last = self._last
        if last is not None and last.seq <= seq < last.end:
            return last
        for piece in self._found:
            if piece.seq <= seq < piece.end:
                self._last = piece
                return piece
        if not self._transaction.pieces:
            return None
        row = self._transaction.execute(sql.COMPLETING, (seq,)).fetchone()
        if row is None or seq >= row[0] + row[2]:
            return None
        piece = self._last = _Piece(row)
        self._found.append(piece)
        return piece
