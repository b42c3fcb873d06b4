"""Duty: delete blobs that nothing needs any more.

A bucket has SWEEP_SHARDS parts; each turn looks at one, and a setting remembers which comes next.
So the work is bounded, goes on where another process left it, and never reads all jobs: it looks up
those that the blobs of the part are kept for (`payload/layout.py`).

A blob is deleted if it and its notes are older than the grace, by the bucket's clock, and none of
its holders is there: a job in any state, a replay of it, or a schedule that still names the blob.
So it goes soon after the retention of its job has ended. An orphan, whose enqueue never happened,
goes after the grace.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress

from holdfast.config import Config
from holdfast.core.clock import micros
from holdfast.core.edge_bounds import SWEEP_SHARDS
from holdfast.core.errors import HoldfastError, StaleSetting
from holdfast.core.outage import away
from holdfast.payload.bucket import Bucket
from holdfast.payload.layout import OWNER, shard
from holdfast.payload.usage import write_down
from holdfast.store import Put, Setting, Store, Take
from holdfast.upkeep.sweep_part import Parts

logger = logging.getLogger("holdfast")

NAME = "sweep"
"""The hold that elects the process that sweeps."""
HOLD_TURNS = 6
"""For how many turns it is taken. A dead process is replaced after them."""
CURSOR = "blobs/sweep"
"""The setting with the number of the part that comes next."""
IDENTITY = "blobs/bucket"
"""The setting with a random text that the bucket has too. It says whose bucket it is."""


class Sweep:
    """Looks at one part of the bucket per turn."""

    name = NAME

    def __init__(self, store: Store, bucket: Bucket, config: Config) -> None:
        self._store = store
        self._bucket = bucket
        self._every_s = config.blob_every_s
        self._tenant_max = config.blob_tenant_max
        self._seen = 0
        """Parts looked at since the round of this process began."""
        self._owner = f"{NAME}-{secrets.token_hex(8)}"
        self._parts = Parts(store, bucket, config.blob_grace_s)
        self._ours = False
        self._told = False

    @property
    def deleted(self) -> int:
        """Blobs deleted so far."""
        return self._parts.deleted

    async def turn(self) -> float:
        if not await self._leads() or not await self._is_ours():
            return self._every_s
        found = await self._setting(CURSOR)
        digits = "0" if found is None else found.value.decode("ascii", "replace")
        number = int(digits) % SWEEP_SHARDS if digits.isdecimal() and len(digits) < 9 else 0
        await self._parts.look_at(shard(number))
        await self._sum_up(number)
        following = b"%d" % ((number + 1) % SWEEP_SHARDS)
        with suppress(StaleSetting):  # Another process has moved it.
            version = 0 if found is None else found.version
            await self._store.settings([Put(CURSOR, following, version)])
        return self._every_s

    async def _sum_up(self, number: int) -> None:
        """After a round that was all its own: what tenants have."""
        self._seen = self._seen + 1 if number == self._seen else 0
        if number == SWEEP_SHARDS - 1 or self._seen == 0:
            if self._seen == SWEEP_SHARDS and self._tenant_max is not None:
                await write_down(self._bucket, self._parts.bytes_of, self._tenant_max)
            self._seen = 0
            self._parts.bytes_of.clear()

    async def look_at_all(self) -> None:
        """Looks at every part, for tests and for a bucket that is to be emptied."""
        for _ in range(SWEEP_SHARDS):
            await self.turn()

    async def _leads(self) -> bool:
        """Whether this process sweeps now. The election is one of its own, because the process that
        leads the upkeep may have no bucket. Two sweeps at once do no harm.
        """
        take = Take(NAME, self._owner, micros(HOLD_TURNS * self._every_s))
        try:
            [hold] = await self._store.hold([take])
        except HoldfastError as error:
            if away(error):
                raise
            return False  # A token that may not do the upkeep of all tenants.
        return hold.owner == self._owner

    async def _setting(self, name: str) -> Setting | None:
        for found in await self._store.settings(under=name, limit=1):
            if found.name == name:
                return found
        return None

    async def _is_ours(self) -> bool:
        """Whether the blobs are those of this store. A sweep for another store would find none of
        their jobs, and delete them all.
        """
        if self._ours:
            return True
        wanted = await self._identity()
        found = await self._bucket.read(OWNER)
        if found is None and wanted is not None:
            found = await self._bucket.put_once(OWNER, wanted)
        self._ours = wanted is not None and found == wanted
        if not self._ours and not self._told:
            self._told = True
            logger.error(
                "the bucket %s belongs to another store, so none of its blobs is deleted; give each"
                " store a prefix of its own",
                self._bucket.shown,
            )
        return self._ours

    async def _identity(self) -> bytes | None:
        """What the bucket must say; None if this store has none, but the bucket has one."""
        setting = await self._setting(IDENTITY)
        if setting is not None:
            return setting.value
        if await self._bucket.read(OWNER) is not None:
            return None
        made = secrets.token_hex(16).encode()
        with suppress(StaleSetting):
            await self._store.settings([Put(IDENTITY, made, 0)])
            return made
        setting = await self._setting(IDENTITY)
        return None if setting is None else setting.value
