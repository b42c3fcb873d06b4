"""Packs: jobs of a call that are alike, told in one value; and what claims take of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec

from holdfast.job import Envelope, JobRecord, Lease, NewJob, Rules, State
from holdfast.lifecycle import Transition
from holdfast.store import Claim
from holdfast.stores.redis import layout
from holdfast.stores.redis.rows import (
    BROKEN,
    RULES_CACHE_MAX,
    Unreadable,
    pack,
    rules_of,
    rules_text,
    sized,
    text_at,
    unpack,
)

PACK_MIN = 8
"""Jobs of a call that make a pack; fewer are better off as rows."""
PACK_BYTES_MAX = 64 * 1024
PAYLOAD_MAX = 8 * 1024
"""A larger payload makes its job a row: a pack would hold few of them."""
PIECE_KEEP_US_MAX = 0
"""Jobs whose record stays for longer than this after their end are rows from their claim on."""
PIECED = "~"
"""Ends the nonce of a piece (lib_packs.lua): a token says if its job was leased with others."""

_HEAD = struct.Struct(">BBI4d")
"""In pieces, width of ids, max_attempts, keep, keep_failed, key_us, priority; as lib_packs.lua."""
_PIECE = struct.Struct(">BdddII")
"""0, created, updated, lease, number, length of the payloads before it; as lib_pieces.lua."""

_NO_PAYLOAD = len(pack(b""))


class Parcel(msgspec.Struct):
    """Jobs in a row that will be a pack."""

    first: int
    """The place of the first of them in its batch."""
    head: bytes
    ids: list[str]
    bodies: list[bytes]
    size: int = 0

    def texts(self) -> tuple[bytes, str, bytes, bytes]:
        """As enqueue.lua takes it: head, ids, where the payloads end, payloads."""
        number = len(self.ids)
        ends = struct.pack(f">{number}I", *accumulate(map(len, self.bodies)))
        return self.head, "".join(self.ids), ends, b"".join(self.bodies)


def parcels(jobs: Sequence[NewJob], places: Sequence[int]) -> list[Parcel] | None:
    """The jobs of these places in parcels; None if one may not be packed, or too many differ."""
    found: list[Parcel] = []
    if len(places) < PACK_MIN:
        return None
    first, last = None, Parcel(-1, b"", [], [])
    before = stem = ""
    for place in places:
        job = jobs[place]
        id, body = job.id, job.envelope.body
        if not _may_pack(job) or type(body) is not bytes or len(body) > PAYLOAD_MAX:
            return None
        if (
            first is None
            or id <= before
            or len(id) != len(before)
            or not id.startswith(stem)
            or not _alike(job, first)
            or place != last.first + len(last.ids)
            or len(last.ids) >= layout.PACK_MAX
            or last.size >= PACK_BYTES_MAX
        ):
            if (len(found) + 1) * PACK_MIN > len(places):
                return None
            first, stem = job, id[: layout.STEM_SIZE]
            last = Parcel(place, _head(job), [], [])
            found.append(last)
        last.ids.append(id)
        last.bodies.append(body)
        last.size += len(body)
        before = id
    return found


def _may_pack(job: NewJob) -> bool:
    """True for a job that is ready at once, is like most, and has an id that nobody can know."""
    return (
        job.fresh
        and not job.delay_us
        and not job.tags
        and job.key is None
        and job.group is None
        and job.ttl_us is None
        and job.run_at is None
        and job.origin is None
        and job.id.isascii()
    )


def _alike(job: NewJob, other: NewJob) -> bool:
    """Whether they differ in nothing but their ids and payloads."""
    envelope, sealed = job.envelope, other.envelope
    return (
        job.tenant == other.tenant
        and job.queue == other.queue
        and job.priority == other.priority
        and envelope.type == sealed.type
        and envelope.codec == sealed.codec
        and envelope.version == sealed.version
        and (job.rules is other.rules or job.rules == other.rules)
    )


def _head(job: NewJob) -> bytes:
    """What jobs that are alike share, as lib_packs.lua reads it."""
    envelope, rules = job.envelope, job.rules
    body = pack((envelope.codec, envelope.version, rules_text(rules), b""))[:-_NO_PAYLOAD]
    return b"".join(
        (
            _HEAD.pack(
                rules.keep_us <= PIECE_KEEP_US_MAX,
                len(job.id),
                rules.max_attempts,
                rules.keep_us,
                rules.keep_failed_us,
                -1 if rules.key_us is None else rules.key_us,
                job.priority,
            ),
            sized(job.tenant),
            sized(job.queue),
            sized(envelope.type),
            len(body).to_bytes(2),
            body,
        )
    )


# -- pieces ----------------------------------------------------------------------------------------


class Shared(msgspec.Struct, frozen=True):
    """What the jobs of a piece have in common, of their pack's head."""

    width: int
    priority: int
    tenant: str
    queue: str
    type: str
    codec: str
    version: int
    rules: Rules


@lru_cache(RULES_CACHE_MAX)
def _shared(head: bytes) -> Shared:
    _, width, *_, priority = _HEAD.unpack_from(head)
    tenant, at = text_at(head, _HEAD.size)
    queue, at = text_at(head, at)
    type, at = text_at(head, at)
    codec, version, rules, _ = unpack(head[at + 2 :] + pack(b""))
    return Shared(width, int(priority), tenant, queue, type, codec, version, rules_of(rules))


def is_piece(row: bytes) -> bool:
    """A row has a state; a piece has none."""
    return row[0] == 0


def leases(told: Sequence[Any], claim: Claim, step: int) -> Iterator[Lease | Unreadable]:
    """The leases of a piece as told; the sequences of its jobs are so far apart."""
    first, row, many = told
    _, created, updated, until, number, base = _PIECE.unpack_from(row)
    try:
        shared = _shared(row[_PIECE.size :])
    except BROKEN as error:
        yield from _unreadable(told, claim, step, str(error))
        return
    created_at, updated_at, lease_until = int(created), int(updated), int(until)
    tenant, queue, type, width = shared.tenant, shared.queue, shared.type, shared.width
    codec, version, rules, priority = shared.codec, shared.version, shared.rules, shared.priority
    worker, start = claim.worker, f"{claim.nonce}{PIECED}."
    ids = many[: width * number].decode()
    ends = struct.unpack_from(f">{number}I", many, width * number)
    at = width * number + 4 * number
    shift = at - base
    seq = int(first)
    for index, end in enumerate(ends):
        yield Lease(
            JobRecord(
                tenant,
                ids[index * width : index * width + width],
                queue,
                Envelope(type, codec, version, many[at : shift + end]),
                rules,
                priority,
                None,
                None,
                (),
                None,
                seq,
                State.PROCESSING,
                1,
                1,
                0,
                0,
                created_at,
                updated_at,
                created_at,
                None,
                lease_until,
                worker,
            ),
            f"{start}{seq}",
            lease_until,
        )
        at = shift + end
        seq += step


def _unreadable(told: Sequence[Any], claim: Claim, step: int, why: str) -> Iterator[Unreadable]:
    """The jobs of a piece, of which nobody can read what they share."""
    first, row, many = told
    number = _PIECE.unpack_from(row)[4]
    width = _HEAD.unpack_from(row, _PIECE.size)[1]
    tenant, _ = text_at(row, _PIECE.size + _HEAD.size)
    for index in range(number):
        id = many[index * width : index * width + width].decode()
        token = f"{claim.nonce}{PIECED}.{int(first) + index * step}"
        yield Unreadable(tenant, id, token, why)


# -- completions -----------------------------------------------------------------------------------


class _Run(msgspec.Struct):
    tenant: str
    nonce: str
    first: int
    width: int
    after: int
    """The sequence that would go on."""
    ids: list[str]
    results: list[Any]
    places: list[int]


class Runs:
    """Completions of jobs that were leased in pieces, those that follow each other in one."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._runs: list[_Run] = []
        self._last: _Run | None = None

    def add(self, place: int, change: Transition, nonce: str, seq: int, result: Any) -> None:
        last, id = self._last, change.id
        if (
            last is None
            or seq != last.after
            or nonce != last.nonce
            or change.tenant != last.tenant
            or len(id) != last.width
            or not id.isascii()
        ):
            # An id of other letters is none of a pack: nothing goes on from it.
            width = len(id) if id.isascii() else -1
            last = self._last = _Run(change.tenant, nonce, seq, width, seq, [], [], [])
            self._runs.append(last)
        last.ids.append(id)
        last.places.append(place)
        last.after += self._step
        if result is not None or last.results:
            last.results += [None] * (len(last.ids) - 1 - len(last.results))
            last.results.append(result)

    def told(self) -> list[tuple[Any, ...]]:
        """As ack.lua takes them."""
        return [
            (run.tenant, run.nonce, run.first, len(run.ids), "".join(run.ids), run.results)
            for run in self._runs
        ]

    def answers(self, answers: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The answer for each place."""
        for run, answer in zip(self._runs, answers, strict=True):
            each = answer if isinstance(answer, list) else [answer] * len(run.places)
            yield from zip(run.places, each, strict=True)
