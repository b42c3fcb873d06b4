"""Helpers for tests of flows: an app on the store under test, with job types that are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast.app import App
from holdfast.context import Context, Fail
from holdfast.core.capabilities import Capabilities
from holdfast.core.errors import InvalidInput
from holdfast.core.job import JobRecord, State
from holdfast.store import Store
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding
from holdfast.testing.drain import Drained, drain
from holdfast.workflow.run import FlowRun, FlowState


class Died(BaseException):
    """The process is gone."""


class Mortal:
    """A store whose process dies at a chosen call (0: at none): before it reaches the store, or
    after. It makes no further call until it is revived. Opening and closing it does nothing: the
    bench does that.
    """

    def __init__(self, real: Store, at: int = 0, *, late: bool = False) -> None:
        self._real = real
        self._late = late
        self.left = at
        self.dead = False
        self.calls: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._real.capabilities

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Died
            self.left -= 1
            self.calls.append(verb)
            self.dead = self.left == 0
            if self.dead and not self._late:
                raise Died
            answer = await getattr(self._real, verb)(*args, **kwargs)
            if self.dead:
                raise Died
            return answer

        return call

    def revive(self) -> None:
        """From now on no call fails."""
        self.left, self.dead = 0, False


class Flowing:
    """An app whose jobs note that they ran. Its jobs are `step`, `total`, `split` and `bad`."""

    def __init__(self, bench: Bench, *, at: int = 0, late: bool = False) -> None:
        bench.needs("steps")
        self.bench = bench
        self.mortal = Mortal(bench.store, at, late=late)
        self.app = App(cast(Store, self.mortal), keep_s=3600.0, keep_failed_s=3600.0)
        self.acme = self.app.tenant(ACME)
        self.ran: list[str] = []
        """The names of the jobs that ran, in order."""
        self.broken: set[str] = set()
        """The names of those that fail for good."""
        self._register()

    def _register(self) -> None:
        app = self.app

        @app.job(queue="work")
        async def step(ctx: Context, name: str) -> str:
            self.note(name)
            return name

        @app.job(queue="work")
        async def total(ctx: Context, name: str, parts: list[str]) -> str:
            self.note(name)
            return "+".join(parts)

        @app.job(queue="work")
        async def split(ctx: Context, name: str, number: int) -> list[str]:
            self.note(name)
            return [f"{name}{n}" for n in range(number)]

        @app.job(queue="work")
        async def undone(ctx: Context, what: str) -> None:
            self.note(f"undo {what}")

        self.step, self.total, self.split, self.undone = step, total, split, undone

    def note(self, name: str) -> None:
        """Notes that a job ran, or fails it."""
        if name in self.broken:
            raise Fail(f"{name} is broken")
        self.ran.append(name)

    def took(self, job: Any, /) -> Any:
        """The job itself. For a job type whose argument is a placeholder."""
        return job

    async def run(self, **options: Any) -> list[Drained]:
        """Runs everything that is due."""
        return await drain(self.app, **options)

    async def ended(self, run: FlowRun) -> FlowState:
        """Runs everything that is due, and returns how the flow has ended."""
        await self.run()
        return (await run.status()).state

    async def states(self, run: FlowRun) -> list[State | None]:
        """The states of the nodes, by number."""
        return [node.state for node in await run.nodes()]

    async def jobs(self) -> list[JobRecord]:
        """Every job of the tenant."""
        return list((await self.bench.store.find(finding(ACME, limit=1000))).jobs)

    async def alive(self) -> list[JobRecord]:
        """Every job of the tenant that has not ended."""
        ended = (State.COMPLETED, State.FAILED, State.CANCELED)
        return [job for job in await self.jobs() if job.state not in ended]


def refused(build: Callable[[], object]) -> str:
    """The text of the InvalidInput that the call raises."""
    try:
        build()
    except InvalidInput as error:
        return str(error)
    raise AssertionError("nothing was refused")
