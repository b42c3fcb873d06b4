"""One part of a bucket: which of its blobs nothing needs, and how they are deleted.

Two sweeps may look at the same part, and a new holder may come at any moment. A holder writes its
note first and then looks for the mark of a sweep (`payload/holders.py`); a sweep writes its mark
first and then looks for notes. Notes and marks carry names of their own, so no sweep removes what
another relies on, before it is older than the grace.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from holdfast.core.blob import named_in
from holdfast.core.clock import Micros, micros
from holdfast.core.edge_bounds import (
    BLOB_GRACE_S_MIN,
    BLOB_REPLAYS_MAX,
    BLOBS_AT_ONCE_MAX,
    SWEEP_FIND,
    SWEEP_HELD_MAX,
    SWEEP_PAGE,
    SWEEP_TENANTS_MAX,
)
from holdfast.core.errors import InvalidInput
from holdfast.core.job import JobRecord, replay_id
from holdfast.core.mapped import UNREADABLE, is_mapped_codec
from holdfast.core.schedule import decode
from holdfast.payload.bucket import Bucket, Stored
from holdfast.payload.layout import (
    BLOBS,
    CLOCK,
    DYING,
    HELD,
    Holder,
    HolderKind,
    Placed,
    holder_at,
    note_text,
    placed_at,
    read_note,
)
from holdfast.store import Find, Ref, Selection, Store

logger = logging.getLogger("holdfast")


class _Note(msgspec.Struct, frozen=True):
    stored: Stored
    holder: Holder | None
    """None: the note cannot be read, so it keeps the blob."""


class Parts:
    """Looks at parts of a bucket, for one sweep."""

    def __init__(self, store: Store, bucket: Bucket, grace_s: float) -> None:
        self._store = store
        self._bucket = bucket
        self._grace_us = micros(grace_s)
        self._patience_s = max(grace_s, BLOB_GRACE_S_MIN) / 2
        self._own = secrets.token_hex(8)
        self.deleted = 0
        self.bytes_of: dict[str, int] = {}
        """The bytes that tenants have in the parts that were looked at, by their segments."""

    async def look_at(self, part: str) -> None:
        """Deletes what nothing needs of one part."""
        now = await self._now()
        notes = await self._notes(f"{HELD}/{part}")
        async for page in self._bucket.under(f"{BLOBS}/{part}", SWEEP_PAGE):
            self._count(page)
            old = [one for one in page if self._is_old(one, now)]
            blobs = [blob for one in old if (blob := placed_at(one.path)) is not None]
            held = {blob: await self._held(blob, notes) for blob in blobs}
            for blob in held:
                if notes is not None:
                    notes.pop(blob, None)
            await self._decide(held, now)
        await self._clear(notes or {}, now)
        await self._clear_dying(f"{DYING}/{part}", now)

    def _count(self, page: Sequence[Stored]) -> None:
        for one in page:
            blob = placed_at(one.path)
            if blob is not None and (
                blob.tenant in self.bytes_of or len(self.bytes_of) < SWEEP_TENANTS_MAX
            ):
                self.bytes_of[blob.tenant] = self.bytes_of.get(blob.tenant, 0) + one.size

    async def _now(self) -> Micros:
        """The bucket's time: no other clock counts for the age of what is in it."""
        path = f"{CLOCK}/{self._own}"
        await self._bucket.put(path, b"")
        found = await self._bucket.look(path)
        await self._bucket.delete(path)
        return 0 if found is None else found.at

    def _is_old(self, stored: Stored, now: Micros) -> bool:
        return stored.at + self._grace_us <= now

    # -- who holds a blob ------------------------------------------------------------------------

    async def _notes(self, under: str) -> dict[Placed, list[Stored]] | None:
        """The notes of a part, by blob; None if they are too many to be read together."""
        found: dict[Placed, list[Stored]] = {}
        number = 0
        async for page in self._bucket.under(under, SWEEP_PAGE):
            number += len(page)
            if number > SWEEP_HELD_MAX:
                return None
            for stored in page:
                blob = placed_at(stored.path)
                if blob is not None:
                    found.setdefault(blob, []).append(stored)
        return found

    async def _held(self, blob: Placed, notes: dict[Placed, list[Stored]] | None) -> list[Stored]:
        if notes is not None:
            return notes.get(blob, [])
        return [
            stored async for page in self._bucket.under(blob.held, SWEEP_PAGE) for stored in page
        ]

    async def _read(self, stored: Sequence[Stored]) -> list[_Note]:
        found = []
        for one in stored:
            holder = holder_at(one.path)
            if holder is None:  # Its path has a hash; the text has the names.
                text = await self._bucket.read(one.path)
                if text is None:
                    continue
                holder = read_note(text)
            found.append(_Note(one, holder))
        return found

    async def _decide(self, held: dict[Placed, list[Stored]], now: Micros) -> None:
        """Deletes those of these old blobs that nothing holds."""
        kept = {
            blob for blob, notes in held.items() if any(not self._is_old(n, now) for n in notes)
        }
        read = {blob: await self._read(notes) for blob, notes in held.items() if blob not in kept}
        holders = {blob: _holders(blob, notes) for blob, notes in read.items()}
        alive = await self._alive(holders)
        alive |= {blob for blob, each in read.items() if any(one.holder is None for one in each)}
        dead = [blob for blob in read if blob not in alive]
        room = asyncio.Semaphore(BLOBS_AT_ONCE_MAX)

        async def drop(blob: Placed) -> None:
            async with room:
                await self._drop(blob, {note.stored.path for note in read[blob]}, now)

        await asyncio.gather(*map(drop, dead))

    async def _alive(self, holders: dict[Placed, list[Holder]]) -> set[Placed]:
        """The blobs of which a holder is there."""
        jobs = {
            Ref(one.tenant, one.name)
            for each in holders.values() for one in each if one.kind is HolderKind.JOB
        }  # fmt: skip
        there = await self._there(jobs)
        alive = set()
        for blob, each in holders.items():
            for one in each:
                if Ref(one.tenant, one.name) in there and one.kind is HolderKind.JOB:
                    alive.add(blob)
                    break
            else:
                if await self._kept_otherwise(blob, each):
                    alive.add(blob)
        return alive

    async def _kept_otherwise(self, blob: Placed, holders: Sequence[Holder]) -> bool:
        """Whether a schedule holds it, or a replay of a job that is gone."""
        for one in holders:
            if one.kind is HolderKind.SCHEDULE:
                if await self._scheduled(blob, one):
                    return True
                continue
            replays, name = [], one.name
            for _ in range(BLOB_REPLAYS_MAX):
                name = replay_id(one.tenant, name)
                replays.append(Ref(one.tenant, name))
            there = await self._there(replays)
            if there:
                # The next sweeps find it at once, and look for its replays from there on.
                newest = max(there, key=replays.index)
                holder = Holder(one.tenant, HolderKind.JOB, newest.id)
                await self._bucket.put(blob.note(holder), note_text(holder))
                return True
        return False

    async def _there(self, refs: Iterable[Ref]) -> set[Ref]:
        """Those of these jobs that there are, in any state."""
        ids: dict[str, list[str]] = {}
        for ref in refs:
            ids.setdefault(ref.tenant, []).append(ref.id)
        found = set()
        for tenant, own in ids.items():
            for first in range(0, len(own), SWEEP_FIND):
                select = Selection(tenant=tenant, ids=tuple(own[first : first + SWEEP_FIND]))
                async for job in _every(self._store, select):
                    found.add(Ref(job.tenant, job.id))
        return found

    async def _scheduled(self, blob: Placed, holder: Holder) -> bool:
        """Whether the schedule still names the blob. What cannot be read is kept."""
        for found in await self._store.settings(under=holder.name, limit=1):
            if found.name == holder.name:
                try:
                    job = decode(found.name, found.value).job
                    readable = job.codec != UNREADABLE and not is_mapped_codec(job.codec)
                    return not readable or blob.id in named_in(job.body)
                except InvalidInput:
                    return True
        return False

    # -- deleting --------------------------------------------------------------------------------

    async def _drop(self, blob: Placed, seen: set[str], now: Micros) -> None:
        """Deletes a blob that had no holder. First it says so, then it looks for new notes."""
        mark, began = f"{blob.dying}/{self._own}", time.monotonic()
        await self._bucket.put(mark, b"")
        notes = await self._held(blob, None)
        late = any(note.path not in seen or not self._is_old(note, now) for note in notes)
        paused = time.monotonic() - began > self._patience_s
        if not late and not paused:  # After a pause its mark may have been cleared by another.
            await self._bucket.delete(blob.path)
            for note in notes:
                await self._bucket.delete(note.path)
            self.deleted += 1
            logger.debug("blob %s of %s: deleted, nothing holds it", blob.id, blob.tenant)
        await self._bucket.delete(mark)

    async def _clear(self, notes: dict[Placed, list[Stored]], now: Micros) -> None:
        """Deletes old notes about blobs that are gone."""
        for blob, stored in notes.items():
            old = [note for note in stored if self._is_old(note, now)]
            if old and await self._bucket.look(blob.path) is None:
                for note in old:
                    await self._bucket.delete(note.path)

    async def _clear_dying(self, under: str, now: Micros) -> None:
        """Deletes marks of sweeps that died."""
        async for page in self._bucket.under(under, SWEEP_PAGE):
            for mark in page:
                if self._is_old(mark, now) and not mark.path.endswith(f"/{self._own}"):
                    await self._bucket.delete(mark.path)


def _holders(blob: Placed, notes: Sequence[_Note]) -> list[Holder]:
    found = [note.holder for note in notes if note.holder is not None]
    own = blob.own_holder
    return found if own is None else [own, *found]


async def _every(store: Store, select: Selection) -> AsyncIterator[JobRecord]:
    """All jobs of a selection: a page may end before its limit."""
    after: int | None = None
    while True:
        page = await store.find(Find(select=select, after=after, limit=SWEEP_FIND))
        for job in page.jobs:
            yield job
        if (after := page.cursor) is None:
            return
