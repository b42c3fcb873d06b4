"""Election of the process that does the upkeep.

The process that holds the name leads. If it dies, the hold expires and another process takes it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time

import msgspec

from holdfast.config import Config
from holdfast.core.clock import micros
from holdfast.core.errors import StoreError
from holdfast.loop import Duty, keep_turning
from holdfast.payload.bucket import Bucket
from holdfast.store import Store, Take
from holdfast.upkeep.deliver import Deliver
from holdfast.upkeep.prune import Prune
from holdfast.upkeep.reconcile import Reconcile
from holdfast.upkeep.recur import Recur
from holdfast.upkeep.rescue import Rescue
from holdfast.upkeep.sweep import Sweep

logger = logging.getLogger("holdfast")

NAME = "upkeep"
"""The hold that elects the process doing the upkeep."""


class Report(msgspec.Struct, frozen=True):
    """The note of the leader's hold: how far the upkeep is behind."""

    rescue_lag_s: float
    rescued: int
    pruned: int
    corrected: int = 0
    swept: int = 0


class Upkeep:
    """Takes part in the election and does the duties while it leads. Two leaders do no harm."""

    name = NAME

    def __init__(
        self, store: Store, config: Config, owner: str, bucket: Bucket | None = None
    ) -> None:
        self._store = store
        self._config = config
        # Host names and pids may be the same on many machines, but owner names must be unique.
        self._owner = f"{owner}-{secrets.token_hex(4)}"
        self.rescue = Rescue(store, config.rescue_every_s)
        self.prune = Prune(store, config.prune_every_s, config.events_keep_s)
        self.reconcile = Reconcile(store, config.reconcile_every_s)
        self.recur = Recur(store, config.recur_every_s)
        self.deliver = Deliver(store, config.deliver_every_s, config.events_keep_s)
        self.sweep = None if bucket is None else Sweep(store, bucket, config)
        self._leading_until = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(keep_turning(self, stop))
            duties = self.rescue, self.prune, self.reconcile, self.recur, self.deliver
            for duty in duties:
                group.create_task(keep_turning(_Led(self, duty), stop))
            if self.sweep is not None:  # It has an election of its own.
                group.create_task(keep_turning(self.sweep, stop))
        if self.leading:
            await self._resign()

    async def _resign(self) -> None:
        """Releases the hold, so that another process can lead at once."""
        self._leading_until = 0.0
        try:
            await self._store.hold([Take(NAME, self._owner, 0)])
        except StoreError as error:
            logger.warning("the hold of the upkeep was not released: %s", error)

    @property
    def leading(self) -> bool:
        return time.monotonic() < self._leading_until

    async def turn(self) -> float:
        """Takes or renews the hold, three times within its duration."""
        asked = time.monotonic()
        report = Report(
            self.rescue.lag_s,
            self.rescue.done,
            self.prune.done,
            self.reconcile.corrected,
            0 if self.sweep is None else self.sweep.deleted,
        )
        take = Take(
            NAME,
            self._owner,
            micros(self._config.leader_s),
            msgspec.json.encode(report).decode(),
        )
        [hold] = await self._store.hold([take])
        if hold.owner == self._owner:
            self._leading_until = asked + self._config.leader_s
        else:
            self._leading_until = 0.0
        return self._config.leader_s / 3 * (0.75 + random.random() / 2)


class _Led:
    """A duty that runs only while this process leads."""

    def __init__(self, upkeep: Upkeep, duty: Duty) -> None:
        self.name = duty.name
        self._upkeep = upkeep
        self._duty = duty

    async def turn(self) -> float:
        if self._upkeep.leading:
            return await self._duty.turn()
        return self._upkeep._config.rescue_every_s
