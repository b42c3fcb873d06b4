"""Presence: each worker holds a name in the store while it runs, with a note about itself."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.bounds import NOTE_MAX
from holdfast.core.clock import micros
from holdfast.core.errors import StoreError
from holdfast.loop import Outage, sleep_unless
from holdfast.store import Take
from holdfast.worker_registry import PREFIX, Present

if TYPE_CHECKING:
    from holdfast.worker.worker import Worker

logger = logging.getLogger("holdfast.worker")


LISTS = ("tenants", "queues", "types")
WHY_MAX = 200


def fitted(present: Present) -> str:
    """The worker's note, with its longest lists cut until it fits NOTE_MAX."""
    said = msgspec.structs.replace(present, why=present.why[:WHY_MAX])
    note = msgspec.json.encode(said)
    while len(note) > NOTE_MAX:
        sizes = {one: len(msgspec.json.encode(getattr(said, one))) for one in LISTS}
        longest = max(LISTS, key=sizes.__getitem__)
        kept = getattr(said, longest)[: len(getattr(said, longest)) // 2]
        cut = tuple(one for one in LISTS if one in said.cut or one == longest)
        said = msgspec.structs.replace(said, cut=cut, **{longest: kept})
        note = msgspec.json.encode(said)
    return note.decode()


class Presence:
    """Renews the worker's hold. A dead worker disappears when its hold expires."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._outage = Outage(logger, "registering the worker")
        self.answering = True
        """Whether the store answered the last renewal."""

    async def run(self, stop: asyncio.Event) -> None:
        worker = self._worker
        every = min(worker.config.beat_s, 10.0)
        while not stop.is_set():
            started = time.monotonic()
            await self._say(micros(3 * every))
            await sleep_unless(stop, max(0.0, every - (time.monotonic() - started)))
        await self._say(0)

    async def _say(self, length: int) -> None:
        name = self._worker.name
        try:
            note = fitted(self._present())
            await self._worker.app.store.hold([Take(PREFIX + name, name, length, note)])
            self.answering = True
            self._outage.over()
        except StoreError as error:
            self.answering = False
            self._outage.seen(error)
        except Exception:
            # A failure here must not affect any lease.
            logger.exception("presence failed")

    def _present(self) -> Present:
        worker = self._worker
        return Present(
            pid=os.getpid(),
            tenants=worker.watch.tenants,
            queues=worker.watch.queues,
            types=tuple(worker.app.registry.names()),
            concurrency=worker.concurrency,
            running=worker.running,
            held=len(worker.active_jobs),
            concurrency_min=worker.config.floor,
            concurrency_max=worker.config.concurrency,
            why=worker.why,
        )
