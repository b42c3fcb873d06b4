"""One call with its tries: from a request to an answer, or back to the policy of the job.

left     what remains of the budget, of the lease and of the job's time-out
circuit  open: the service is left alone
send     one try, with a line in the log of the job
pause    longer after each try, at least as long as the service asked for
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn, Protocol

import msgspec

from holdfast.breaker import Breaker
from holdfast.context import Context, Retry
from holdfast.core.clock import seconds
from holdfast.core.errors import InvalidInput, OutboundLost, OutboundRefused
from holdfast.outbound.answer import Answer
from holdfast.outbound.lower import lower
from holdfast.outbound.request import Request
from holdfast.outbound.rules import AWAY, BUSY, LEAST_S, RETRIED, after_s, delay_s

SHOWN_CHARS_MAX = 200
"""Of a place or a reason, in a line of the log."""


class NotSent(Exception):
    """The request did not reach the service."""


class NoAnswer(Exception):
    """No answer came; the service may have done the call."""


class Transport(Protocol):
    """How one request reaches a service."""

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """The answer, whatever its status; NotSent or NoAnswer when there is none, and
        OutboundRefused for one that cannot be taken.
        """


class Timing(msgspec.Struct, frozen=True):
    """Time and randomness; tests pass others."""

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class _Tried(msgspec.Struct, frozen=True):
    """One try that may be followed by another."""

    why: str
    answer: Answer | None = None
    asked_s: float = 0.0
    """For how long the service asked to be left alone."""
    again: bool = True


class Caller:
    """Makes the calls of one client."""

    def __init__(
        self, transport: Transport, breaker: Breaker, timing: Timing, *, lower: bool
    ) -> None:
        self._transport = transport
        self._breaker = breaker
        self._timing = timing
        self._lower = lower

    async def call(self, ctx: Context, request: Request) -> Answer:
        """The answer. Raises Retry when the call may be made again, but not within this run."""
        clock = self._timing.clock
        end_s = clock() + request.budget_s
        number, why, asked_s = 0, "the lease of the job ends", 0.0
        while True:
            number += 1
            ctx.check()
            left_s = min(end_s - clock(), ctx.left_s)
            if left_s < LEAST_S:
                self._hand_over(ctx, request, why, asked_s)
            rest_s = self._breaker.admit()
            if rest_s > 0:
                _note(ctx, f"{_head(request)} not called: its circuit is open")
                self._hand_over(ctx, request, f"its circuit is open: {why}", rest_s)
            tried = await self._try(ctx, request, number, min(request.timeout_s, left_s))
            if not tried.again:
                return _ended(request, tried, number)
            why, asked_s = tried.why, tried.asked_s
            pause_s = max(delay_s(number, self._timing.chance()), asked_s)
            if self._lower and (asked_s > 0 or _is_busy(tried)):
                await lower(ctx, pause_s)
            if request.once or pause_s + LEAST_S > min(end_s - clock(), ctx.left_s):
                self._hand_over(ctx, request, why, asked_s)
            await self._timing.sleep(pause_s)

    async def _try(self, ctx: Context, request: Request, number: int, timeout_s: float) -> _Tried:
        begun_s = self._timing.clock()
        try:
            tried = self._weighed(request, await self._transport.send(request, timeout_s))
        except NotSent as error:
            self._breaker.failed()
            tried = _Tried(f"it cannot be reached ({error})")
        except NoAnswer as error:
            self._breaker.failed()
            tried = _Tried(f"it gave no answer ({error})", again=request.repeats)
        except OutboundRefused as error:
            self._breaker.worked()
            _note(ctx, str(error))
            raise
        took_s = self._timing.clock() - begun_s
        asked = f", asks for {tried.asked_s:g} s" if tried.asked_s else ""
        why = tried.why[:SHOWN_CHARS_MAX]
        _note(ctx, f"{_head(request)}: {why} in {took_s:.3f} s (try {number}{asked})")
        return tried

    def _weighed(self, request: Request, answer: Answer) -> _Tried:
        """Whether the answer is one, or a sign that the service has no time now."""
        status = answer.status
        if status in AWAY:
            self._breaker.failed()
        else:
            self._breaker.worked()
        asked_s = 0.0
        if status in RETRIED:
            asked_s = after_s(answer.headers.get("retry-after"), self._timing.now())
        again = status == BUSY or (status in AWAY and request.repeats)
        return _Tried(f"status {status}", answer, asked_s, again)

    def _hand_over(self, ctx: Context, request: Request, why: str, least_s: float) -> NoReturn:
        """Has the policy of the job decide when to go on, but not before `least_s`."""
        after = None
        if least_s > 0:
            job = ctx.job
            own_s = seconds(job.rules.retry.delay(job.attempt, self._timing.chance()))
            after = max(own_s, least_s)
        raise Retry(f"{_head(request)}: {why[:SHOWN_CHARS_MAX]}", after=after)


def _ended(request: Request, tried: _Tried, number: int) -> Answer:
    """What the handler gets."""
    if tried.answer is None:
        raise OutboundLost(method=request.method, place=request.place, why=tried.why)
    return msgspec.structs.replace(tried.answer, tries=number)


def _is_busy(tried: _Tried) -> bool:
    return tried.answer is not None and tried.answer.status == BUSY


def _head(request: Request) -> str:
    """The call for people: without its query and headers, which may be secret."""
    return f"{request.method} {request.place[:SHOWN_CHARS_MAX]}"


def _note(ctx: Context, line: str) -> None:
    """Adds a line to the log of the job. A run without a journal has none."""
    ctx.logger.debug("%s", line)
    with suppress(InvalidInput):
        ctx.log(line)
