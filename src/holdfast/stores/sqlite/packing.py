"""Jobs that are alike, told in one value: what they share is said once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from holdfast.job import NewJob, Rules
from holdfast.stores.sql_rows import RULES_CACHE_MAX, rules_text
from holdfast.stores.sqlite.layout import INLINE_MAX

T = TypeVar("T")

SPREAD_MS = 1000
"""How far apart in time the ids of one pack may have been made. The packs that may hold an id are
then those of a second, however many wait.
"""

PACK_MIN = 8
"""Fewer jobs than this are rows: a pack would cost them more."""
PIECE_KEEP_US_MAX = 0
"""Jobs whose record stays for longer than this after their end are rows from their claim on."""
PACK_MAX = 256
PACK_BYTES_MAX = 64 * 1024
"""A claim of one job reads its whole pack, so a pack stays small."""

encode = msgspec.msgpack.Encoder().encode
decode_ids = msgspec.msgpack.Decoder(list[str]).decode
decode_ats = msgspec.msgpack.Decoder(list[int]).decode
decode_sizes = decode_ats
decode_bodies = msgspec.msgpack.Decoder(list[bytes]).decode


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What the jobs of a pack share."""

    tenant: str
    queue: str
    type: str
    codec: str
    version: int
    priority: int
    max_attempts: int
    keep_us: int
    rules: str


class Alike(msgspec.Struct):
    """Jobs that differ in nothing but their id and their payload."""

    head: str
    line: tuple[str, str]
    """(tenant, queue)"""
    ids: list[str]
    bodies: list[bytes]
    size: int = 0

    @property
    def full(self) -> bool:
        return len(self.ids) >= PACK_MAX or self.size >= PACK_BYTES_MAX


_encode_head = msgspec.json.Encoder().encode


@lru_cache(RULES_CACHE_MAX)
def head_of(text: str) -> Head:
    return msgspec.json.decode(text, type=Head)


class Texts:
    """The heads of new jobs as text. Most jobs are like the one before. For any thread."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str, str, str, str, int, int], Rules, str] | None = None

    def of(self, job: NewJob) -> str:
        envelope, last = job.envelope, self._last
        like = (
            job.tenant,
            job.queue,
            envelope.type,
            envelope.codec,
            envelope.version,
            job.priority,
        )
        # Rules by identity: to hash them takes longer than all of the rest.
        if last is not None and job.rules is last[1] and like == last[0]:
            return last[2]
        rules = job.rules
        head = Head(*like, rules.max_attempts, rules.keep_us, rules_text(rules))
        text = _encode_head(head).decode()
        self._last = like, rules, text
        return text


def alike(jobs: Sequence[NewJob], texts: Texts) -> list[Alike] | None:
    """The jobs, neighbours that are alike in one; None if any of them may not be packed."""
    found: list[Alike] = []
    last: Alike | None = None
    for job in jobs:
        body = job.envelope.body
        if not may_pack(job) or type(body) is not bytes:
            return None
        head = texts.of(job)
        if last is None or head != last.head or last.full:
            last = Alike(head, (job.tenant, job.queue), [], [])
            found.append(last)
        last.ids.append(job.id)
        last.bodies.append(body)
        last.size += len(body)
    return found


def may_pack(job: NewJob) -> bool:
    """True for a job that is ready at once, is like most, and has an id that nobody can know."""
    body = job.envelope.body
    return (
        job.fresh
        and job.key is None
        and job.group is None
        and job.ttl_us is None
        and job.run_at is None
        and not job.delay_us
        and not job.tags
        and job.origin is None
        and type(body) is bytes
        and len(body) <= INLINE_MAX
    )


# -- pieces ----------------------------------------------------------------------------------------


def undone(items: Sequence[T], done: bytes) -> list[T]:
    """Those of a piece that have not ended: `done` has a bit for each."""
    ended = int.from_bytes(done, "little")
    return [item for index, item in enumerate(items) if not ended >> index & 1]


# -- names -----------------------------------------------------------------------------------------


def span(ids: list[str]) -> tuple[bool, str, str]:
    """Whether the ids say nothing of when they were made, the least of them and the greatest."""
    first, last = min(ids), max(ids)
    made, until = _made_ms(first), _made_ms(last)
    close = made is not None and until is not None and until - made <= SPREAD_MS
    return not close, first, last


def latest(id: str) -> str | None:
    """What the greatest id of a pack that holds this one is below; None if it says nothing."""
    made = _made_ms(id)
    if made is None:
        return None
    digits = f"{made + SPREAD_MS + 1:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _made_ms(id: str) -> int | None:
    """When an id of ours was made: it is a UUID of version 7."""
    if len(id) != 36 or id[14] != "7" or id[8] != "-":
        return None
    try:
        return int(id[:8] + id[9:13], 16)
    except ValueError:
        return None
