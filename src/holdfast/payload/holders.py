"""Notes in the bucket that say which jobs and schedules may need a blob.

A blob that a caller has put is kept while a note names a job or a schedule that is there. The note
is written before the job is stored, so no stored job names a blob without one. Upkeep
(`upkeep/sweep.py`) may be about to delete the blob at that moment. So both sides write first and
look afterwards: a holder writes its note, then looks whether a sweep has written that the blob is
dying; a sweep writes that it is dying, then looks for notes. At least one of them sees the other.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict

from holdfast.core.edge_bounds import BLOB_HOLD_S, BLOB_KNOWN_MAX
from holdfast.core.errors import BlobsUnavailable
from holdfast.payload.bucket import Bucket
from holdfast.payload.layout import Holder, Placed, note_text

FIRST_S = 0.05
"""How long a holder waits at first for a sweep to decide. The time doubles."""


class Holders:
    """Writes the notes of one process. `known_s` is how long it relies on what it did before."""

    def __init__(self, bucket: Bucket, known_s: float) -> None:
        self._bucket = bucket
        self._known_s = known_s
        self._known: OrderedDict[str, float] = OrderedDict()
        """Paths of blobs and notes that this process wrote, and when."""
        self._missed: OrderedDict[str, float] = OrderedDict()
        """Paths of blobs that there were not, and when it looked. Ids are random, so nobody puts
        one later. A value may name many, and passes here twice: alone, and in a batch with others.
        """

    def wrote(self, path: str) -> None:
        """Notes that this process has just written this blob: no sweep deletes it for a while."""
        _remember(self._known, path)

    def recent(self, path: str) -> bool:
        """Whether this process wrote the blob or the note lately."""
        return self._lately(self._known, path)

    def _lately(self, known: OrderedDict[str, float], path: str) -> bool:
        at = known.get(path)
        return at is not None and time.monotonic() - at < self._known_s

    async def hold(self, blob: Placed, holder: Holder) -> bool:
        """Keeps the blob for the holder. False: there is no such blob, so nothing is to be kept."""
        note = blob.note(holder)
        if self.recent(note):
            return True
        fresh = self.recent(blob.path)
        if not fresh and await self._misses(blob):
            return False
        kept = await self._noted(blob, note, note_text(holder), fresh)
        if kept:
            self.wrote(note)
        return kept

    async def _misses(self, blob: Placed) -> bool:
        if self._lately(self._missed, blob.path):
            return True
        missed = await self._bucket.look(blob.path) is None
        if missed:
            _remember(self._missed, blob.path)
        return missed

    async def _noted(self, blob: Placed, note: str, text: bytes, fresh: bool) -> bool:
        pause_s, end = FIRST_S, time.monotonic() + BLOB_HOLD_S
        while True:
            await self._bucket.put(note, text)
            if fresh:
                return True
            if not await self._bucket.any_under(blob.dying):
                # In this order: a sweep deletes the blob before its own note.
                return await self._bucket.look(blob.path) is not None
            if time.monotonic() + pause_s > end:
                why = f"blob {blob.id} is being looked at by the upkeep; try again"
                raise BlobsUnavailable(bucket=self._bucket.shown, why=why)
            await _pause(pause_s)
            pause_s *= 2


def _remember(known: OrderedDict[str, float], path: str) -> None:
    known[path] = time.monotonic()
    known.move_to_end(path)
    while len(known) > BLOB_KNOWN_MAX:
        known.popitem(last=False)


async def _pause(length_s: float) -> None:
    """Waits, also in a coroutine that a blocking caller runs without an event loop."""
    if asyncio._get_running_loop() is None:
        threading.Event().wait(length_s)
    else:
        await asyncio.sleep(length_s)
