"""A thread with a connection of its own, and the way of a call into it and of its answer back."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.core.errors import StoreUnavailable
from holdfast.stores.sqlite.errors import translated

T = TypeVar("T")
X = TypeVar("X")


class Call(Generic[X]):
    """One call: what to do with an X, and who waits for the answer."""

    __slots__ = ("act", "answer", "error", "future", "idle", "loop")

    def __init__(
        self,
        act: Callable[[X], Any],
        idle: Callable[[sqlite3.Connection], bool] | None = None,
    ) -> None:
        self.act = act
        self.idle = idle
        """Says, by reading only, that the call would find nothing to do; None: it always has."""
        self.answer: Any = None
        self.error: BaseException | None = None
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] | None = None

    def wait(self) -> asyncio.Future[Any]:
        """What the caller awaits while a thread serves the call."""
        self.future = self.loop.create_future()
        return self.future

    @property
    def abandoned(self) -> bool:
        """The caller was canceled and does not wait any more."""
        return self.future is not None and self.future.cancelled()

    def resolve(self) -> None:
        """Hands the answer over; runs on the caller's loop."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


class ConnectionThread(Generic[X]):
    """Serves calls one batch after another, in the order they came, until it is stopped.

    `serve(connection, calls)` gives each call an answer or an error, and decides what an X is. An
    error that it raises is the error of every call in the batch.
    """

    def __init__(
        self,
        name: str,
        path: str,
        connect: Callable[[], sqlite3.Connection],
        serve: Callable[[sqlite3.Connection, list[Call[X]]], None],
        batch_max: int,
    ) -> None:
        self._path = path
        self._connect = connect
        self._serve = serve
        self._batch_max = batch_max
        self._calls: queue.SimpleQueue[Call[X] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self._running = False
        self._waiting = 0
        """Calls that were accepted and are not served yet."""
        self._connection: sqlite3.Connection | None = None
        self._in_use = threading.Lock()
        """Held by the thread that uses the connection."""
        # A daemon, so that a program which forgets to close can still end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started: Call[Any] | None = None
        self._ended: Call[Any] | None = None

    async def start(self) -> None:
        """Opens the connection. Raises, and leaves nothing behind, when that fails."""
        self._started = Call(lambda _: None)
        started = self._started.wait()
        self._running = True
        self._thread.start()
        await started

    async def stop(self) -> None:
        """Serves what was accepted, closes the connection and ends the thread."""
        with self._lock:
            self._calls.put(None)
            self._stopped = True
            if self._running and self._ended is None:
                self._ended = Call(lambda _: None)
                self._ended.wait()
        if self._ended is not None and self._ended.future is not None:
            await self._ended.future
            self._thread.join()  # Its last act was to say so.

    async def call(self, act: Callable[[X], T]) -> T:
        """The answer of `act`, run in this thread."""
        answer: T = await self.submit(Call(act))
        return answer

    async def submit(self, call: Call[X]) -> Any:
        """The answer to a call, which this thread serves."""
        future = call.wait()
        with self._lock:
            if self._stopped:
                raise StoreUnavailable(store=self._path, why="it is closed")
            self._waiting += 1
            self._calls.put(call)
        return await future

    def borrow(self) -> sqlite3.Connection | None:
        """The connection, for use in the caller's own thread until `give_back`; None while calls
        wait for it, while it is in use, and when there is none.
        """
        if self._waiting or not self._in_use.acquire(blocking=False):
            return None
        with self._lock:
            free = not self._waiting and not self._stopped
        if free and self._connection is not None:
            return self._connection
        self._in_use.release()
        return None

    def give_back(self) -> None:
        self._in_use.release()

    def _run(self) -> None:
        assert self._started is not None
        try:
            self._connection = self._connect()
        except BaseException as error:
            self._started.error = translated(error, self._path)
        else:
            deliver([self._started])
            self._work(self._connection)
        with self._lock:
            self._running, self._stopped = False, True
        last: list[Call[Any]] = [one for one in (self._started, self._ended) if one is not None]
        deliver([*self._left(), *last])

    def _work(self, connection: sqlite3.Connection) -> None:
        try:
            while calls := self._next():
                with self._in_use:
                    try:
                        self._serve(connection, calls)
                    except BaseException as error:  # The next calls must be served all the same.
                        for call in calls:
                            call.error = call.error or translated(error, self._path)
                with self._lock:
                    self._waiting -= len(calls)
                deliver(calls)
        finally:
            with self._in_use:
                self._connection = None
                connection.close()

    def _left(self) -> list[Call[X]]:
        """The calls that came in vain, while the connection was being opened."""
        calls: list[Call[X]] = []
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call.error = StoreUnavailable(store=self._path, why="it could not be opened")
                calls.append(call)
        return calls

    def _next(self) -> list[Call[X]]:
        """Waits for a call, then takes all that wait with it; empty at the end."""
        calls: list[Call[X]] = []
        call = self._calls.get()
        while call is not None:
            calls.append(call)
            if len(calls) >= self._batch_max or self._calls.empty():
                return calls
            call = self._calls.get()
        if calls:
            self._calls.put(None)  # Serve these first, then meet the end again.
        return calls


def deliver(calls: list[Call[Any]]) -> None:
    """Hands the answers over: each event loop is woken once for all of its calls."""
    loops: dict[asyncio.AbstractEventLoop, list[Call[Any]]] = {}
    for call in calls:
        loops.setdefault(call.loop, []).append(call)
    for loop, its in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, its)
        except RuntimeError:  # The loop has closed: nobody is left to answer.
            continue


def _resolve(calls: list[Call[Any]]) -> None:
    for call in calls:
        call.resolve()
