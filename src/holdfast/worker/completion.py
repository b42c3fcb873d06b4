"""How a handler completes its own job, in a transaction of its own: see `holdfast.effects`.

From the ack until the end of the transaction the worker leaves the run alone, so that nothing
stops it between the two. If nobody knows whether a commit was done, the store is asked: renewing
the lease waits for the transaction, and says afterwards whether the job is completed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from holdfast.context import Fail
from holdfast.core.backoff import Delays
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, JobAlreadyTerminal, JobNotFound, StoreError
from holdfast.core.job import Completed, Failed, Outcome, State
from holdfast.core.journal import Entry
from holdfast.core.lifecycle import Transition, completion
from holdfast.dispatch import Dispatcher
from holdfast.held import Held
from holdfast.journal import RETRY_FIRST_S, RETRY_MOST_S
from holdfast.store import Acked, Extension
from holdfast.worker.lease import ActiveJob

T = TypeVar("T")


class OwnCompletion:
    """Of one run. Safe to use from the handler's thread."""

    def __init__(
        self,
        active: ActiveJob,
        store: Dispatcher,
        encode: Callable[[Any], Coroutine[Any, Any, Outcome | None]],
        lease_us: Micros,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._active = active
        self._store = store
        self._encode = encode
        self._lease_us = lease_us
        self._loop = loop
        self._entries: tuple[Entry, ...] = ()
        self._held: Held | None = None
        self._body: Any = None
        self.result: Any = None
        """The result of the job, before it was encoded."""

    @property
    def left_s(self) -> float:
        """How long the run may certainly go on."""
        return self._active.left_s()

    @property
    def has_unsent(self) -> bool:
        """Whether the run has logged something that `keep` would store."""
        return self._active.journal is not None and self._active.journal.has_unsent

    def check(self) -> None:
        """Refuses a transaction that could not complete the job."""
        if not self._store.capabilities.transactional_ack:
            raise InvalidInput(
                field="ctx",
                why="has a store that cannot complete a job in your transaction: only PostgreSQL"
                " and SQLite can",
            )
        if self._active.answer is not None:
            raise InvalidInput(field="ctx", why="has completed its job already")
        if self._held is not None:
            raise InvalidInput(field="ctx", why="has a transaction open already")
        assert self._active.context is not None, "the handler runs"
        self._active.context.check()

    def begun(self, locks_store: bool) -> None:
        """A transaction was begun, which may hold the write lock of the store."""
        self._held = Held(self._store if locks_store else None)
        self._held.take()

    async def keep(self) -> None:
        """Stores what the run has logged, before the transaction waits for nothing else."""
        journal = self._active.journal
        if journal is None or self._held is None:
            return
        entries = journal.unsent()
        if self._held.store is not None:
            self._entries = entries  # A call would wait for the transaction.
        elif entries:
            await journal.write(*entries)

    async def change(self, result: Any) -> Transition:
        """The completion with this result, as `ack` sends it. Raises what refuses the result. What
        maps it may wait, so it needs the worker's loop.
        """
        lease, self.result = self._active.lease, result
        outcome = await self._encode(result)
        if isinstance(outcome, Failed):
            raise Fail(outcome.error)
        assert isinstance(outcome, Completed)
        self._body = outcome.result
        change = completion(lease.job.tenant, lease.job.id, lease.token, outcome.result)
        if self._entries:
            change = msgspec.structs.replace(change, entries=self._entries)
        return await self._store.mapped(change)

    async def ack(self, connection: Any, change: Transition) -> None:
        """Completes the job in the transaction. Raises what refuses it."""
        self._active.acking = True
        answer = await self._store.ack_using(connection, change)
        if answer.error is not None:
            raise answer.error

    def ended(self, committed: bool) -> None:
        """The transaction has ended."""
        active, held = self._active, self._held
        if committed:
            active.answer = Acked(active.lease.job.id, State.COMPLETED)
            active.outcome = Completed(self._body)
        else:
            active.acking = False
            if active.journal is not None:
                active.journal.returned(self._entries)
        self._entries, self._held = (), None
        if held is not None:
            held.release()

    def close(self) -> None:
        """The handler has ended. What it has left open stops none of the worker's own calls."""
        if self._held is not None:
            self._held.release()

    async def was_committed(self) -> bool:
        """Asks the store whether the job is completed, as long as the lease may last."""
        job, token = self._active.lease.job, self._active.lease.token
        wish = Extension(tenant=job.tenant, id=job.id, token=token, lease_us=self._lease_us)
        if self._held is not None:
            self._held.release()
        delays = Delays(RETRY_FIRST_S, RETRY_MOST_S, chance=random.random)
        while True:
            sent_s = time.monotonic()
            try:
                [answer] = await self._store.extend([wish])
            except StoreError:
                pause_s = delays.next_s()
                if time.monotonic() + pause_s >= self._active.until_s:
                    return False
                await asyncio.sleep(pause_s)
                continue
            if answer.error is None:
                self._active.renewed(sent_s, self._lease_us / 1_000_000)
            brief = job.rules.keep_us <= 0  # Nothing else removes a job whose lease is valid.
            gone = isinstance(answer.error, JobNotFound) and brief
            return gone or isinstance(answer.error, JobAlreadyTerminal)

    def block(self, call: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the worker's loop, for a handler in a thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()
