"""An app on memory whose jobs call a service, and time that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.outbound.service import Service, serving

from holdfast import App, Context, JobRecord
from holdfast.outbound import Answer
from holdfast.outbound.request import Request
from holdfast.outbound.tries import NoAnswer, NotSent, Timing
from holdfast.testing import ManualClock, drain

Handler = Callable[[Context], Awaitable[Any]]


class Time:
    """Time that passes only in pauses, which it records."""

    def __init__(self, chances: Sequence[float] = ()) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []
        self._chances = list(chances)

    @property
    def timing(self) -> Timing:
        return Timing(self._clock, self._clock, self._sleep, self._chance)

    def _clock(self) -> float:
        return self.now_s

    async def _sleep(self, length_s: float) -> None:
        self.pauses.append(length_s)
        self.now_s += length_s

    def _chance(self) -> float:
        return self._chances.pop(0) if self._chances else 0.5


class Recorder:
    """A transport that answers by a script: a status, one with a Retry-After, or an error."""

    def __init__(self, *script: int | tuple[int, str] | Exception, takes_s: float = 0.0) -> None:
        self.script = list(script)
        self.sent: list[tuple[Request, float]] = []
        self.time: Time | None = None
        self.takes_s = takes_s

    async def send(self, request: Request, timeout_s: float) -> Answer:
        self.sent.append((request, timeout_s))
        if self.time is not None:
            self.time.now_s += min(self.takes_s, timeout_s)
        step = self.script.pop(0) if self.script else 200
        if isinstance(step, Exception):
            raise step
        status, after = step if isinstance(step, tuple) else (step, None)
        headers = {} if after is None else {"retry-after": after}
        return Answer(
            status=status, headers=headers, body=b"{}", method=request.method, place=request.place
        )


class Desk:
    """Runs one job of a handler at a time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.app = App("memory://", clock=self.clock, retry="brisk")
        self.runs = 0

    async def run(self, handler: Handler, *, runs: int = 1, **rules: Any) -> JobRecord:
        """The job after so many runs, with a day between them."""
        job_type = self.app.job(name=f"call-{self.runs}", **rules)(handler)
        self.runs += 1
        acme = self.app.tenant("acme")
        id = (await acme.enqueue(job_type())).id
        for number in range(runs):
            if number:
                self.clock.advance(24 * 3600)
            await drain(self.app)
        return await acme.get(id)

    async def lines(self, id: str) -> list[str]:
        """The log of the job."""
        journal = await self.app.tenant("acme").journal(id)
        return list(journal.log)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.app:
        yield desk


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


NOT_SENT = NotSent("refused")
NO_ANSWER = NoAnswer("reset")
