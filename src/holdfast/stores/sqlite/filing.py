"""How jobs get their places: those that were posted, and those that the writer packs itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice

import msgspec

from holdfast.clock import Micros
from holdfast.stores.sqlite import pack_statements as sql
from holdfast.stores.sqlite import packing
from holdfast.stores.sqlite.packing import (
    PACK_BYTES_MAX,
    PACK_MAX,
    Alike,
    Head,
    decode_bodies,
    decode_ids,
    encode,
    head_of,
    span,
)
from holdfast.stores.sqlite.packs import Held, Job, write_rows
from holdfast.stores.sqlite.transaction import Transaction

LARGE = 64
"""A parcel of so many jobs is a pack as it is; smaller ones are gathered."""


def unfiled(connection: sqlite3.Connection) -> bool:
    """True when jobs were posted that have no place in their line yet."""
    return connection.execute(sql.ANY_POSTED).fetchone() is not None


def keep(transaction: Transaction, alike: Alike) -> None:
    """Gives new jobs their places at once."""
    transaction.lines.add(alike.line)
    ats = [transaction.now] * len(alike.ids)
    _keep(transaction, Parcel(alike.head, alike.size, alike.ids, ats, alike.bodies))


def file(transaction: Transaction) -> None:
    """Gives the jobs that were posted their places, in the order in which they came."""
    if not transaction.posted:
        return
    for parcel in _parcels(transaction):
        _keep(transaction, parcel)
    _clear(transaction)
    transaction.record()  # The calls that follow may look at the log.


def only(transaction: Transaction) -> Parcel | None:
    """What was posted, if it is all alike and not much."""
    found = list(islice(_parcels(transaction), 2))
    return found[0] if len(found) == 1 and found[0].bodies is not None else None


def keep_held(transaction: Transaction, parcel: Parcel, held: Held) -> list[Job]:
    """Files all that was posted, which is this parcel, as held."""
    seq, head = _enter(transaction, parcel, "processing")
    jobs = parcel.jobs(seq)
    write_rows(transaction, head, jobs, held)
    _clear(transaction)
    return jobs


def _parcels(transaction: Transaction) -> Iterator[Parcel]:
    """What was posted, in its order: small parcels that are alike in one."""
    gathered: Parcel | None = None
    for n, head, at, size, number, ids, bodies in transaction.execute(sql.POSTED, (LARGE,)):
        some = None if bodies is None else decode_bodies(bodies)
        parcel = Parcel(head, size, decode_ids(ids), [at] * number, some, n)
        if gathered is not None and gathered.add(parcel):
            continue
        if gathered is not None:
            yield gathered
        gathered = parcel
    if gathered is not None:
        yield gathered


def _clear(transaction: Transaction) -> None:
    transaction.execute(sql.POSTED_CLEAR)
    transaction.posted = False


class Parcel(msgspec.Struct):
    """Jobs that are alike and came together, or one soon after the other."""

    head: str
    size: int
    ids: list[str]
    ats: list[Micros]
    bodies: list[bytes] | None
    """None: there are many, and they stay in `posted` until they are moved."""
    n: int = 0
    """Of its row in `posted`."""

    @property
    def shared(self) -> Head:
        return head_of(self.head)

    def jobs(self, seq: int) -> list[Job]:
        """With their sequences, from this one on."""
        assert self.bodies is not None, "only what is large leaves its bodies behind"
        seqs = range(seq, seq + len(self.ids))
        return list(zip(seqs, self.ids, self.bodies, self.ats, strict=True))

    def add(self, other: Parcel) -> bool:
        """Takes in what came next, if it is alike and there is room: then True."""
        if (
            other.head != self.head
            or self.bodies is None
            or other.bodies is None
            or len(self.ids) + len(other.ids) > PACK_MAX
            or self.size + other.size > PACK_BYTES_MAX
        ):
            return False
        self.size += other.size
        self.ids += other.ids
        self.ats += other.ats
        self.bodies += other.bodies
        return True


def _keep(transaction: Transaction, parcel: Parcel) -> None:
    if parcel.bodies is not None and len(parcel.ids) < packing.PACK_MIN:
        _keep_rows(transaction, parcel)
    else:
        _keep_pack(transaction, parcel)


def _keep_pack(transaction: Transaction, parcel: Parcel) -> None:
    seq, head = _enter(transaction, parcel, "enqueued")
    first_at, ats = parcel.ats[0], None
    if parcel.bodies is None:
        transaction.execute(sql.CONTENTS_MOVE, (seq, parcel.n))
    else:
        if parcel.ats.count(first_at) < len(parcel.ats):
            ats = encode(parcel.ats)
        ids, bodies = encode(parcel.ids), encode(parcel.bodies)
        transaction.execute(sql.CONTENTS_INSERT, (seq, parcel.head, first_at, ids, ats, bodies))
    loose, first_id, last_id = span(parcel.ids)
    transaction.execute(
        sql.PACK_INSERT,
        (
            seq,
            len(parcel.ids),
            parcel.size,
            head.tenant,
            head.queue,
            head.type,
            head.priority,
            first_at,
            loose,
            first_id,
            last_id,
        ),
    )
    transaction.packed = True


def _keep_rows(transaction: Transaction, parcel: Parcel) -> None:
    seq, head = _enter(transaction, parcel, "enqueued")
    write_rows(transaction, head, parcel.jobs(seq), None)


def _enter(transaction: Transaction, parcel: Parcel, place: str) -> tuple[int, Head]:
    """Counts and records the jobs of a parcel; gives the sequence of the first."""
    head = parcel.shared
    seq = transaction.seq + 1
    transaction.seq += len(parcel.ids)
    line = (head.tenant, head.queue, None)
    transaction.move(line, None, place, len(parcel.ids), parcel.size)
    jobs = zip(parcel.ats, parcel.ids, strict=True)
    transaction.note_new(head.tenant, head.queue, head.type, jobs)
    return seq, head
