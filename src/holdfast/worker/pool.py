"""Where handlers run that are no coroutines: threads that die with the process, and processes."""

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

from holdfast.codec import Codecs
from holdfast.context import Context, Fail
from holdfast.errors import InvalidPayload
from holdfast.job import JobRecord
from holdfast.typed import Job, JobFunction, JobType

Task = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """Up to `most` threads, started as needed.

    Daemons: a stuck handler never keeps the process alive.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle = threading.Semaphore(0)
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._started = 0

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Starts the call; the future ends when the thread does, cancelled or not.

        The call sees the caller's context variables, in a copy.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._tasks.put((loop, future, partial(copy_context().run, call)))
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name="holdfast-handler", daemon=True).start()
        return future

    def close(self) -> None:
        """Lets idle threads go; busy ones end after their call."""
        for _ in range(self._started):
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            loop, future, call = task
            try:
                result, error = call(), None
            except BaseException as raised:
                result, error = None, raised
            self._idle.release()
            with contextlib.suppress(RuntimeError):  # The loop is gone: nobody waits any more.
                loop.call_soon_threadsafe(_deliver, future, result, error)


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration) or not isinstance(error, Exception):
        # A future cannot carry these, or they would end the loop; as an error they can be told.
        future.set_exception(RuntimeError(f"handler raised {type(error).__name__}: {error}"))
    else:
        future.set_exception(error)


async def run_in_process(job_type: JobType, job: Job, record: JobRecord) -> Any:
    """Runs a plain handler in a child process; cancelling kills the child.

    The child gets the payload as bytes and finds the handler by its module and name, as on import.
    """
    from anyio import CapacityLimiter, to_process  # Only workers with cpu handlers pay for it.

    codecs = Codecs()
    sealed = codecs.seal(job_type.name, job_type.version, "msgpack", job)
    bare = msgspec.structs.replace(record, envelope=sealed, result=None)
    packed = msgspec.msgpack.encode(bare)
    # The worker's slots are the limit: a job must not spend its time in a second queue.
    free = CapacityLimiter(1)
    answer = await to_process.run_sync(
        _in_child, job_type.home, packed, cancellable=True, limiter=free
    )
    return msgspec.msgpack.decode(answer)


def _in_child(home: str, packed: bytes) -> bytes:
    # A Ctrl-C in the terminal reaches this process too; what becomes of it is the worker's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    record = msgspec.msgpack.decode(packed, type=JobRecord)
    module, _, path = home.partition(":")
    target: Any = importlib.import_module(module)
    for name in path.split("."):
        target = getattr(target, name)
    kind = target.kind if isinstance(target, JobFunction) else target
    codecs = Codecs()
    job = codecs.unseal(record.envelope, kind, record.envelope.version, {})
    result = job.run(Context(record))
    try:
        return codecs.seal(record.type, 1, "msgpack", result).body  # type: ignore[no-any-return]
    except InvalidPayload as error:
        raise Fail(f"result: {error}") from None
