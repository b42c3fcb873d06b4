"""Runs steps: one transaction each, repeated after conflicts and outages, and done only once."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.core.errors import StoreError
from holdfast.core.job import By
from holdfast.stores.foundationdb import binding
from holdfast.stores.foundationdb.clock import Time
from holdfast.stores.foundationdb.errors import (
    NOT_COMMITTED,
    code_of,
    is_again,
    is_unknown,
    ours,
)
from holdfast.stores.foundationdb.layout import Keys, Space
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.retry_lock import RetryLock
from holdfast.stores.foundationdb.scope_cache import ScopeCache
from holdfast.stores.foundationdb.step import Step, mark_key

T = TypeVar("T")
Item = TypeVar("Item")

PAUSE_S_MAX = 1.0
"""The longest pause before another try; the first are shorter."""
DOUBLINGS_MAX = 6
MARKS_MAX = 100
"""Old marks that one step clears."""

Work = Callable[[Step], Awaitable[T]]
Ahead = Callable[[Step], None]


def signed(by: By | None, work: Work[T]) -> Work[T]:
    """The work, whose events say who wanted it."""
    words = None if by is None else by.words

    async def signs(step: Step) -> T:
        step.by = words
        return await work(step)

    return signs


def on(some: Item, work: Callable[[Step, Item], T]) -> Callable[[Step], T]:
    """The work on these, of a step."""
    return lambda step: work(step, some)


class Runner:
    """What all steps of one open store share. Any thread that runs an event loop may use it."""

    def __init__(
        self, database: Any, options: Options, time: Time, cache: ScopeCache | None = None
    ) -> None:
        self.database = database
        self.keys = Keys(b"")
        """The keys of the installation, once their prefix is known."""
        self.options = options
        self.time = time
        self._cache = cache or ScopeCache()
        self.check: Callable[[bytes | None, str], None] | None = None
        """Refuses steps if the installation has another format by now; None while it opens or
        migrates.
        """
        self.first = 0
        """The version from which sequences are counted."""
        self.tries = 0
        """Commits of steps that write; `again` of them failed."""
        self.again = 0
        self._retry_lock = RetryLock()
        self._marks: deque[bytes] = deque()
        self._chance = random.Random()

    async def read(self, work: Work[T]) -> T:
        """Runs work that only reads, at one version."""
        return await self._tried(lambda tries: self._look(work))

    async def write(
        self,
        work: Work[T],
        on_done: Callable[[Step], None] | None = None,
        ahead: Ahead | None = None,
    ) -> T:
        """Does the work once, even if the result of a commit is unknown. `on_done` is called with
        the step that was committed. `ahead` requests what each try will read, while the try waits
        for its version.
        """
        call = _Call(self, work, on_done, ahead)
        return await self._tried(call.attempt)

    async def bare(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Runs work that does not use our keys, and is safe to repeat, in one transaction."""

        async def attempt(tries: int) -> T:
            transaction = self._transaction()
            result = await work(transaction)
            await binding.ready(transaction.commit())
            return result

        return await self._tried(attempt)

    async def try_once(self, work: Work[Any]) -> None:
        """Runs work that is safe to repeat, in one transaction. If that fails, the work is left
        undone.
        """
        try:
            step = await self.step()
            await self.checked(step, work)
            step.flush()
            await binding.ready(step.tr.commit())
        except Exception as error:
            if not isinstance(ours(error, self.options.name), StoreError):
                raise

    async def _look(self, work: Work[T]) -> T:
        return await self.checked(await self.step(), work)

    async def checked(self, step: Step, work: Work[T]) -> T:
        """The result of the work, if the installation still has the format of this code.

        The format is read with a conflict range, so that a migration makes the steps under way
        conflict.
        """
        try:
            return await work(step)
        except Exception as error:
            if code_of(error) is not None:
                step.format = None  # The transaction is over; the next try checks again.
            raise
        finally:
            if self.check is not None and step.format is not None:
                self.check(await step.get(step.format), self.options.name)

    async def step(self, ahead: Ahead | None = None) -> Step:
        """A new transaction, with its version and its instant."""
        return await self.joined(self._transaction(), ahead)

    def _transaction(self) -> Any:
        transaction = self.database.create_transaction()
        transaction.options.set_timeout(int(self.options.timeout_s * 1000))
        return transaction

    async def joined(self, transaction: Any, ahead: Ahead | None = None) -> Step:
        """A step in a transaction that was begun already."""
        version = transaction.get_read_version()
        step = Step(transaction, self.keys, self.first, self._cache)
        step.events = self.options.events
        if self.check is not None:
            step.format = self.keys.all(Space.META)
            step.ask([step.format])
        if ahead is not None:
            ahead(step)
        step.begin(self.time.at(await binding.ready(version)))
        return step

    async def _tried(self, attempt: Callable[[int], Awaitable[T]]) -> T:
        ends = time.monotonic() + self.options.retry_s
        tries, beaten = 0, False
        while True:
            began = time.monotonic()
            try:
                if not beaten:
                    return await attempt(tries)
                async with self._retry_lock:
                    return await attempt(tries)
            except Exception as error:
                beaten = code_of(error) == NOT_COMMITTED
                may = is_again(error) or is_unknown(error)
                if not may or time.monotonic() >= ends:
                    fault = ours(error, self.options.name)
                    if fault is error:
                        raise
                    raise fault from error
            tries += 1
            await asyncio.sleep(self._pause(tries, time.monotonic() - began))

    def _pause(self, tries: int, took_s: float) -> float:
        """A random pause, up to as long as the try took, then twice as long and so on: tries that
        conflict must come apart, and how far depends on how long they take.
        """
        most = took_s * 2.0 ** min(tries - 1, DOUBLINGS_MAX)
        return self._chance.random() * min(PAUSE_S_MAX, most)

    def old_marks(self) -> list[bytes]:
        """Marks of calls that are over. The caller clears them."""
        marks: list[bytes] = []
        with suppress(IndexError):  # Other threads take some too.
            while len(marks) < MARKS_MAX:
                marks.append(self._marks.popleft())
        return marks

    def over(self, mark: bytes) -> None:
        self._marks.append(mark)


class _Call:
    """One call that writes, over all its tries."""

    def __init__(
        self,
        runner: Runner,
        work: Work[Any],
        on_done: Callable[[Step], None] | None,
        ahead: Ahead | None,
    ) -> None:
        self._runner = runner
        self._work = work
        self._on_done = on_done
        self._ahead = ahead
        self._nonce = os.urandom(12)
        self._mark: bytes | None = None
        self._unknown: dict[bytes, tuple[Step, Any]] = {}
        """Tries whose commit may have been done, and what they would answer."""

    async def attempt(self, tries: int) -> Any:
        runner = self._runner
        step = await runner.step(self._ahead)
        step.tries = tries
        if self._mark is None:
            self._mark = mark_key(runner.keys, step.at.version, self._nonce)
        if self._unknown:
            found = await binding.get(step.tr, self._mark)
            if found is not None:
                return self._done(*self._unknown[found])
        result = await runner.checked(step, self._work)
        await step.conclude()
        if not step.wrote and not self._unknown:
            return self._done(step, result, wrote=False)
        if not step.void:
            step.flush()
        number = tries.to_bytes(4, "big")
        step.mark(self._mark, number)
        marks = runner.old_marks()
        step.forget(marks)
        runner.tries += 1
        try:
            await binding.ready(step.tr.commit())
        except BaseException as error:
            runner.again += 1
            for mark in marks:
                runner.over(mark)
            if is_unknown(error):
                self._unknown[number] = step, result
            raise
        step.committed = step.tr.get_committed_version()
        return self._done(step, result)

    def _done(self, step: Step, result: Any, *, wrote: bool = True) -> Any:
        if self._mark is not None and wrote:
            self._runner.over(self._mark)
        if self._on_done is not None:
            self._on_done(step)
        return result
