"""The context of a run, and the exceptions by which a handler chooses another outcome."""

from __future__ import annotations

import logging
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol

import msgspec

from holdfast.core.bounds import PROGRESS_CHARS_MAX
from holdfast.core.check import check_seconds
from holdfast.core.errors import (
    HoldfastError,
    InvalidInput,
    JobCanceled,
    LeaseExpired,
    Timeout,
    WorkerShutdown,
)
from holdfast.core.job import JobRecord, effect_key, fence_of
from holdfast.core.tick import tick_of
from holdfast.job_logger import JobLogger, log_fields
from holdfast.payload.blobs import Blobs
from holdfast.payload.sync_blobs import SyncBlobs
from holdfast.run_here import run_here
from holdfast.steps import (
    RunJournal,
    Step,
    StepOptions,
    SyncStep,
    TimedOut,
    length_s,
    next_of,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Not Any by default: with that, mypy knows no result of any handler.
    State_co = TypeVar("State_co", default=object, covariant=True)
else:
    from typing import TypeVar

    State_co = TypeVar("State_co", covariant=True)

T = TypeVar("T")

logger = logging.getLogger("holdfast.job")


class Retry(Exception):
    """Raise it to retry the job, optionally with another delay than the retry policy's."""

    def __init__(self, why: str = "", *, after: float | None = None) -> None:
        super().__init__(why)
        self.after = None if after is None else check_seconds("after", after)


class Fail(Exception):
    """Raise it to fail the job permanently: it becomes a dead letter without a retry."""


class Snooze(Exception):
    """Raise it to run the job again later. It costs no attempt."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = check_seconds("seconds", seconds)


class StopReason(StrEnum):
    """Why a run must stop before its handler has finished."""

    CANCELED = "canceled"
    """The job was canceled. It will not run again."""
    LEASE_LOST = "lease_lost"
    """The worker did not renew the lease in time. Another worker may be running the job."""
    SHUTDOWN = "shutdown"
    """The worker is stopping. The job is released with its attempt and runs again."""
    TIMEOUT = "timeout"
    """The run exceeded the time-out of the job. It counts as a failed attempt."""


_ERRORS: dict[StopReason, type[HoldfastError]] = {
    StopReason.CANCELED: JobCanceled,
    StopReason.LEASE_LOST: LeaseExpired,
    StopReason.SHUTDOWN: WorkerShutdown,
    StopReason.TIMEOUT: Timeout,
}


class Client(Protocol):
    """The calls that a handler can make for its own tenant; see `holdfast.Tenant`."""

    @property
    def enqueue(self) -> Callable[..., Awaitable[Any]]: ...

    @property
    def group(self) -> Callable[[str], Any]: ...

    @property
    def blobs(self) -> Blobs: ...


class Completion(Protocol):
    """What `effects.exactly_once` does with a run; see `holdfast/worker/completion.py`."""

    @property
    def left_s(self) -> float: ...
    @property
    def has_unsent(self) -> bool: ...
    def check(self) -> None: ...
    def begun(self, locks_store: bool) -> None: ...
    async def keep(self) -> None: ...
    async def change(self, result: Any) -> Any: ...
    async def ack(self, connection: Any, change: Any) -> None: ...
    def ended(self, committed: bool) -> None: ...
    async def was_committed(self) -> bool: ...
    def block(self, call: Coroutine[Any, Any, T]) -> T: ...


class Missing(StrEnum):
    """Why a run has no state."""

    LIFESPAN = "this app opens none: give it a lifespan, App(..., lifespan=...)"
    CHILD = (
        "a handler with cpu=True runs in a child process, where the lifespan is not open; pass"
        " what it needs as arguments, or open it in the handler's module"
    )


class Context(Generic[State_co]):
    """One run of one job. Safe to use from the handler's thread.

    `Context[Resources]` tells type checkers the type of `state`.
    """

    def __init__(
        self,
        job: JobRecord,
        client_of: Callable[[str], Client] | None = None,
        state: Any = Missing.LIFESPAN,
        journal_of: Callable[[], RunJournal] | None = None,
        left_s: Callable[[], float] = lambda: math.inf,
        *,
        completion_of: Callable[[Any], Completion] | None = None,
        run: Any = None,
    ) -> None:
        """`run`: what `completion_of` is called with; a partial would cost each job 5 us."""
        self.job = job
        self._completion_of = completion_of
        self._run = run
        self._completion: Completion | None = None
        self._journal_of = journal_of
        self._left_s = left_s
        self._journal: RunJournal | None = None
        self._state = state
        self.tenant = job.tenant
        self.job_id = job.id
        self.attempt = job.attempt
        self.max_attempts = job.max_attempts
        self.fence = fence_of(job)
        """A number that grows with each lease of the id, to refuse writes of an older run."""
        self._client_of = client_of
        self.latest_progress: str | None = None
        self._stopping: StopReason | None = (
            None  # Only the worker's loop writes it, so it needs no lock.
        )

    @property
    def state(self) -> State_co:
        """What the app's lifespan yielded. Raises InvalidInput if there is none."""
        state: State_co | Missing = self._state
        if isinstance(state, Missing):
            raise InvalidInput(field="ctx.state", why=state.value)
        return state

    @property
    def effect_key(self) -> str:
        """A text that is the same for every attempt of this job and differs for any later job with
        the same id. Send it as the idempotency key of an effect.
        """
        return effect_key(self.job)

    @property
    def left_s(self) -> float:
        """How many seconds this run may certainly still take: until its lease or its time-out ends.
        It grows when the lease is renewed. Infinite where there is neither (`app.run_now`).
        """
        return self._left_s()

    @property
    def tick(self) -> datetime | None:
        """The instant of the schedule that this job stands for, in UTC; None if no tick made it."""
        return tick_of(self.job.tags)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds the tenant and the job id to its lines."""
        return JobLogger(logger, log_fields(self.job))

    @property
    def stopping(self) -> StopReason | None:
        """Why this run must stop, or None while it may continue."""
        return self._stopping

    @property
    def canceled(self) -> bool:
        """Whether the job was canceled: the only reason to undo what was done so far."""
        return self._stopping is StopReason.CANCELED

    def check(self) -> None:
        """Raises JobCanceled, LeaseExpired, WorkerShutdown or Timeout if the run must stop.

        Call it in the loops of handlers in threads, which cannot be interrupted.
        """
        if self._stopping is not None:
            raise _ERRORS[self._stopping](id=self.job_id)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Reports the progress of the job.

        The latest progress is sent to the store at most once a second. The call is cheap.
        """
        text = msgspec.json.encode({"done": done, "total": total, "note": note}).decode()
        if len(text) > PROGRESS_CHARS_MAX:
            raise InvalidInput(
                field="note", why=f"progress is longer than {PROGRESS_CHARS_MAX} characters"
            )
        self.latest_progress = text

    async def enqueue(self, job: Any, **options: Any) -> Any:
        """Enqueues a follow-up job of the same tenant."""
        return await self.client.enqueue(job, **options)

    @property
    def client(self) -> Client:
        """The calls for the job's own tenant. Raises InvalidInput if this run has no store."""
        if self._client_of is None:
            raise InvalidInput(field="ctx", why="this run has no store to enqueue to")
        return self._client_of(self.tenant)

    @property
    def completion(self) -> Completion:
        """What `effects.exactly_once` works with. Raises InvalidInput if this run has no store."""
        if self._completion is None:
            if self._completion_of is None:
                raise InvalidInput(field="ctx", why="this run has no store to complete its job in")
            self._completion = self._completion_of(self._run)
        return self._completion

    @property
    def blobs(self) -> Blobs:
        """The blobs of the job's tenant. What the run puts or reads is kept as long as its job.
        Raises ConfigError if the app has no bucket.
        """
        return self.client.blobs.held_by(self.job)

    # -- what the job remembers ------------------------------------------------------------------

    @property
    def journal(self) -> RunJournal:
        """The journal of the job. Raises InvalidInput if this run has none."""
        if self._journal is None:
            if self._journal_of is None:
                raise InvalidInput(field="ctx", why="this run has no store to remember steps in")
            self._journal = self._journal_of()
        return self._journal

    @property
    def step(self) -> Step:
        """`await ctx.step(name, fn, *args, **kwargs)` runs a function once; see `Step`."""
        return Step(self.journal, StepOptions())

    async def sleep(
        self,
        name: str,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | None = None,
    ) -> None:
        """Continues the job after this time. Until then it is parked: it holds no slot and uses no
        attempt. The handler runs again from its beginning, and finds its steps done.
        """
        self.journal.sleep(name, length_s(seconds, minutes, hours, days, until), until)

    async def wait_for(
        self, name: str, kind: type[T], *, timeout: float | None = None
    ) -> T | TimedOut:
        """The value of the signal of this name, or TimedOut if none has come in time. Until then
        the job is parked. Both are remembered.
        """
        found: T | TimedOut = await self.journal.wait_for(name, kind, timeout)
        return found

    async def map(
        self, name: str, job_type: Any, items: Iterable[Any], *, on_failure: str = "raise"
    ) -> list[Any]:
        """Makes a job of each item, parks this one until they have all ended, and returns their
        results in order. An item is the first argument of the job type, or a ready job.

        Raises ChildrenFailed, which names the failed ones. `on_failure="collect"` puts their errors
        into the list instead.
        """
        return await self.journal.map(name, job_type, items, on_failure)

    def cursor(self, name: str, fetch_after: Any) -> AsyncIterator[Any]:
        """Yields pages. `fetch_after(position)` returns a page and the position after it, or None
        at the end; the first position is None. The position is stored with each heartbeat, when the
        job parks and when it ends, so that a later attempt goes on near where this one was.
        """
        return self.journal.cursor(name, fetch_after)

    def log(self, text: str) -> None:
        """Adds a line to the log that is kept with the job. The newest lines are kept."""
        self.journal.log(text)

    def stop(self, reason: StopReason) -> None:
        """Tells the handler to stop. The worker calls it; the first reason is kept."""
        if self._stopping is None:
            self._stopping = reason


class SyncContext(Context[State_co]):
    """The context of a handler that is no coroutine: the same calls without await."""

    @property
    def step(self) -> SyncStep:  # type: ignore[override]
        return SyncStep(self.journal, StepOptions())

    def sleep(  # type: ignore[override]
        self,
        name: str,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        until: datetime | None = None,
    ) -> None:
        self.journal.sleep(name, length_s(seconds, minutes, hours, days, until), until)

    def wait_for(  # type: ignore[override]
        self, name: str, kind: type[T], *, timeout: float | None = None
    ) -> T | TimedOut:
        found: T | TimedOut = self.journal.block(self.journal.wait_for(name, kind, timeout))
        return found

    def map(  # type: ignore[override]
        self, name: str, job_type: Any, items: Iterable[Any], *, on_failure: str = "raise"
    ) -> list[Any]:
        return self.journal.block(self.journal.map(name, job_type, items, on_failure))

    def cursor(self, name: str, fetch_after: Any) -> Iterator[Any]:  # type: ignore[override]
        pages = self.journal.cursor(name, fetch_after)
        while True:
            try:
                page = self.journal.block(next_of(pages))
            except StopAsyncIteration:
                return
            yield page

    @property
    def blobs(self) -> SyncBlobs:  # type: ignore[override]
        return SyncBlobs(self.journal.block, super().blobs)

    def enqueue(self, job: Any, **options: Any) -> Any:
        work = super().enqueue(job, **options)
        if options.get("using") is not None:  # A connection belongs to its thread.
            return run_here(work, "using", "use it in a coroutine (async def)")
        return self.journal.block(work)
