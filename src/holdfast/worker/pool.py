"""Threads and child processes for handlers that are not coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import queue
import signal
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from holdfast.context import Context, Fail, Missing
from holdfast.core.codec import Codecs
from holdfast.core.errors import InvalidPayload
from holdfast.core.job import JobRecord
from holdfast.journal import Park
from holdfast.typed import Job, JobFunction, JobType

Task = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """Up to `most` threads, started as needed.

    They are daemon threads, so a stuck handler does not keep the process alive.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle = threading.Semaphore(0)
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._started = 0

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Starts the call. The future is done when the thread's call ends, cancelled or not.

        The call gets a copy of the caller's context variables.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._tasks.put((loop, future, partial(copy_context().run, call)))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name="holdfast-handler", daemon=True).start()
        return future

    def close(self) -> None:
        """Ends idle threads now and busy threads after their call."""
        for _ in range(self._started):
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._do(*task)
            del task  # An idle thread would keep the run alive.

    def _do(
        self,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        call: Callable[[], Any],
    ) -> None:
        try:
            result, error = call(), None
        except BaseException as raised:
            result, error = None, raised
        self._idle.release()
        with contextlib.suppress(RuntimeError):  # The loop is closed, so nothing waits any more.
            loop.call_soon_threadsafe(_deliver, future, result, error)


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration) or not isinstance(error, Exception | Park):
        # These would end the event loop, so they are wrapped in an ordinary error.
        future.set_exception(RuntimeError(f"handler raised {type(error).__name__}: {error}"))
    else:
        future.set_exception(error)


async def run_in_process(job_type: JobType, job: Job, record: JobRecord) -> Any:
    """Runs a plain handler in a child process. Cancelling kills the child.

    The child gets the payload as bytes and imports the handler by its module and name.
    """
    from anyio import (
        CapacityLimiter,
        to_process,
    )  # Imported here, so that only workers with cpu handlers pay for it.

    codecs = Codecs()
    sealed = codecs.seal(job_type.name, job_type.version, "msgpack", job)
    bare = msgspec.structs.replace(record, envelope=sealed, result=None)
    packed = msgspec.msgpack.encode(bare)
    # The worker's slots are the limit; a job must not wait in a second queue.
    free = CapacityLimiter(1)
    answer = await to_process.run_sync(
        _in_child, job_type.home, packed, cancellable=True, limiter=free
    )
    return msgspec.msgpack.decode(answer)


def _in_child(home: str, packed: bytes) -> bytes:
    # Ctrl-C in a terminal also reaches this process. The worker decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    record = msgspec.msgpack.decode(packed, type=JobRecord)
    module, _, path = home.partition(":")
    target: Any = importlib.import_module(module)
    for name in path.split("."):
        target = getattr(target, name)
    kind = target.kind if isinstance(target, JobFunction) else target
    codecs = Codecs()
    job = codecs.unseal(record.envelope, kind, record.envelope.version, {})
    result = job.run(Context(record, state=Missing.CHILD))
    try:
        return codecs.seal(record.type, 1, "msgpack", result).body  # type: ignore[no-any-return]
    except InvalidPayload as error:
        raise Fail(f"result: {error}") from None
