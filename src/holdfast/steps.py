"""The calls of a handler that are remembered between its runs; `Context` has them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, ParamSpec, Protocol, Self, TypeVar, overload

import msgspec

from holdfast.core.bounds import STEP_TRIES_MAX
from holdfast.core.check import check_seconds, check_whole
from holdfast.core.clock import seconds as seconds_of
from holdfast.core.errors import InvalidInput
from holdfast.core.journal import Join
from holdfast.core.retry import PRESETS, RetryPolicy, policy

P = ParamSpec("P")
R = TypeVar("R")

STEP_TRIES = 4
"""How often a step is tried with a policy that has no list of delays."""


class StepOptions(msgspec.Struct, frozen=True):
    """How a step is tried within its run."""

    retry: RetryPolicy | None = None
    tries: int = 1
    timeout: float | None = None


class RunJournal(Protocol):
    """What a run does with the journal of its job; see `holdfast/journal.py`."""

    async def step(
        self, name: str, fn: Any, args: Any, kwargs: Any, options: StepOptions
    ) -> Any: ...
    def step_here(
        self, name: str, fn: Any, args: Any, kwargs: Any, options: StepOptions
    ) -> Any: ...
    def sleep(self, name: str, length_s: float | None, until: datetime | None) -> None: ...
    async def wait_for(self, name: str, kind: Any, timeout: float | None) -> Any: ...
    async def map(self, name: str, job_type: Any, items: Any, on_failure: str) -> list[Any]: ...
    async def fan_out(self, name: str, job_type: Any, items: Any) -> Join: ...
    def parents(self) -> Join | None: ...
    def has_signal(self, name: str) -> bool: ...
    def cursor(self, name: str, fetch_after: Any) -> AsyncIterator[Any]: ...
    def log(self, text: str) -> None: ...
    def block(self, call: Coroutine[Any, Any, R]) -> R: ...


class TimedOut:
    """What `ctx.wait_for` returns if no signal came in time. It is false."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "TimedOut()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimedOut)

    def __hash__(self) -> int:
        return hash(TimedOut)


class Step:
    """`ctx.step`: runs a function once and remembers its result."""

    def __init__(self, journal: RunJournal, options: StepOptions) -> None:
        self._journal = journal
        self._options = options

    @overload
    async def __call__(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def __call__(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def __call__(self, name: str, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The result of `fn(*args, **kwargs)`, which runs unless an earlier attempt of this job has
        finished the step of this name. Results are stored as JSON.
        """
        return await self._journal.step(name, fn, args, kwargs, self._options)

    def with_options(
        self, *, retry: RetryPolicy | str | int | None = None, timeout: float | None = None
    ) -> Self:
        """The same with options: `retry` says how often and when the step is tried again within
        this run (a number, a preset or a policy), `timeout` limits each try.
        """
        return type(self)(self._journal, step_options(retry, timeout))


class SyncStep:
    """`ctx.step` of a handler that is no coroutine."""

    def __init__(self, journal: RunJournal, options: StepOptions) -> None:
        self._journal = journal
        self._options = options

    @overload
    def __call__(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    def __call__(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    def __call__(self, name: str, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """As `Step`. The function runs in the handler's thread."""
        return self._journal.step_here(name, fn, args, kwargs, self._options)

    def with_options(
        self, *, retry: RetryPolicy | str | int | None = None, timeout: float | None = None
    ) -> Self:
        """As `Step.with_options`; `timeout` is for coroutine functions only."""
        return type(self)(self._journal, step_options(retry, timeout))


def step_options(retry: RetryPolicy | str | int | None, timeout: float | None) -> StepOptions:
    """The options of a step. Raises InvalidInput or ConfigError, which name the wrong one."""
    if timeout is not None:
        check_seconds("timeout", timeout, 0.001)
    if retry is None:
        return StepOptions(timeout=timeout)
    if isinstance(retry, int):
        tries = check_whole("retry", retry, 0, STEP_TRIES_MAX - 1) + 1
        return StepOptions(PRESETS["brisk"], tries, timeout)
    chosen = policy(retry)
    tries = len(chosen.delays_s) + 1 if chosen.delays_s else STEP_TRIES
    return StepOptions(chosen, min(tries, STEP_TRIES_MAX), timeout)


async def next_of(pages: AsyncIterator[Any]) -> Any:
    return await anext(pages)


def length_s(
    seconds: float, minutes: float, hours: float, days: float, until: datetime | None
) -> float | None:
    """The length of a sleep; None if it ends at an instant."""
    length = seconds + 60 * minutes + 3600 * hours + 86_400 * days
    if until is None:
        return check_seconds("seconds", length, 0.001)
    if length:
        raise InvalidInput(field="until", why="give either a length or until")
    if until.tzinfo is None or until.utcoffset() is None:
        raise InvalidInput(field="until", why="has no time zone; use datetime(..., tzinfo=UTC)")
    return None


async def tried(run: Callable[[], Awaitable[Any]], options: StepOptions) -> Any:
    """Runs a step as often as its options say."""
    for number in range(1, options.tries + 1):
        try:
            async with asyncio.timeout(options.timeout):
                return await run()
        except Exception:
            if number == options.tries:
                raise
            await asyncio.sleep(pause_s(options, number))
    raise AssertionError("the last try returns or raises")


def pause_s(options: StepOptions, number: int) -> float:
    """How long a step waits after its try of this number."""
    assert options.retry is not None, "several tries need a policy"
    return seconds_of(options.retry.delay(number, random.random()))
