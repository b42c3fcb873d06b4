"""Who is working? Each worker holds a name of its own while it lives and says what it does."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.clock import micros
from holdfast.errors import StoreError
from holdfast.limits import NOTE_MAX
from holdfast.loop import sleep_unless
from holdfast.roster import PREFIX, Present
from holdfast.store import Take

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
    """Renews the worker's hold; a worker that died is gone when it lapses."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.answering = True
        """Whether the store answered the last word; also while no claim asks it."""

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
        except StoreError as error:
            self.answering = False
            logger.warning("presence did not reach the store: %s", error)
        except Exception:
            # Nobody's leases may depend on whether this worker can be seen.
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
            held=len(worker.holdings),
            concurrency_min=worker.config.floor,
            concurrency_max=worker.config.concurrency,
            why=worker.why,
        )
