"""Handlers in processes of their own. They live at the top of a module: a child imports it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio.to_process import current_default_process_limiter

from holdfast import App, Context, Fail, Job, Reason, Retry, State
from holdfast.store import Ref, Watch
from holdfast.testing import ManualClock
from holdfast.worker import Worker

app = App("memory://", clock=ManualClock(), poll_s=0.02, upkeep=False, concurrency=2)


@app.job(cpu=True, max_attempts=1, timeout=30)
def product(ctx: Context, numbers: list[int]) -> dict[str, Any]:
    result = 1
    for number in numbers:
        result *= number
    return {"pid": os.getpid(), "result": result, "who": [ctx.tenant, ctx.attempt]}


@app.job(cpu=True, max_attempts=1)
class Typed(Job):
    n: int

    def run(self, ctx: Context) -> int:
        return self.n * 2


@app.job(cpu=True, max_attempts=1)
def misfit(ctx: Context, how: str) -> Any:
    match how:
        case "fail":
            raise Fail("no use")
        case "retry":
            raise Retry("later", after=5)
        case "raise":
            raise ValueError("from the child")
        case "exit":
            raise SystemExit(3)
        case "die":
            os._exit(9)
        case "state":
            return ctx.state
        case _:
            return object()


@app.job(cpu=True, max_attempts=1, timeout=1)
def endless(ctx: Context, note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)  # Work without end: the fault that is injected.


@app.job(cpu=True, max_attempts=1, timeout=20)
def meet(ctx: Context, place: str, who: str) -> list[str]:
    """Waits until both have come."""
    Path(place, who).touch()
    while len(there := sorted(os.listdir(place))) < 2:
        time.sleep(0.01)  # In a child nothing else can be waited for.
    return there


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    """Works on this module's app until the test ends."""
    async with app:
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        yield worker
        worker.stop()
        await running


async def outcome(job: Job) -> tuple[State, Reason | None, str]:
    """How the job ended."""
    acme = app.tenant("acme")
    made = await acme.enqueue(job)
    record = await acme.get(made.id)
    while record.state in (State.ENQUEUED, State.PROCESSING):
        await app.store.wait(Watch(job=Ref("acme", made.id)), 5)
        record = await acme.get(made.id)
    return record.state, record.reason, record.error or ""


async def test_cpu_handlers_run_in_another_process_and_give_results(worker: Worker) -> None:
    """Functions and classes alike; the context says who and which attempt."""
    acme = app.tenant("acme")
    made = await acme.enqueue(product(numbers=[2, 3, 7]))
    typed = await acme.enqueue(Typed(n=4))

    answer = await acme.wait(made.id, timeout=30)

    assert (answer["result"], answer["who"]) == (42, ["acme", 1])
    assert answer["pid"] != os.getpid()
    assert await acme.wait(typed.id, timeout=30) == 8


async def test_what_a_child_raises_means_the_same_as_elsewhere(worker: Worker) -> None:
    """Wishes, failures, exits, a child that dies, and a result that cannot be written."""
    hows = ("fail", "raise", "exit", "die", "odd", "state")
    ends = {how: await outcome(misfit(how=how)) for how in hows}

    assert ends["fail"][:2] == (State.FAILED, Reason.PERMANENT)
    assert ends["raise"][:2] == (State.FAILED, Reason.MAX_ATTEMPTS)
    assert "from the child" in ends["raise"][2]
    assert "ctx.state: a handler with cpu=True runs in a child process" in ends["state"][2]
    assert ends["exit"][:2] == (State.FAILED, Reason.MAX_ATTEMPTS)
    assert ends["die"][:2] == (State.FAILED, Reason.MAX_ATTEMPTS)
    assert ends["odd"][:2] == (State.FAILED, Reason.PERMANENT)
    assert "result" in ends["odd"][2]


async def test_a_child_past_its_time_is_killed(worker: Worker, tmp_path: Path) -> None:
    """No process outlives its job."""
    note = tmp_path / "pid"
    await outcome(Typed(n=1))  # Now a child is there, and its start takes no time of the next job.

    state, reason, _ = await outcome(endless(note=str(note)))

    assert (state, reason) == (State.FAILED, Reason.TIMEOUT)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


async def test_the_slots_of_the_worker_are_the_only_limit(worker: Worker, tmp_path: Path) -> None:
    """A job with a slot runs at once; it does not queue again for a process in its own time."""
    current_default_process_limiter().total_tokens = 1
    acme = app.tenant("acme")

    made = [await acme.enqueue(meet(place=str(tmp_path), who=who)) for who in ("ann", "bob")]

    for one in made:
        assert await acme.wait(one.id, timeout=20) == ["ann", "bob"]
