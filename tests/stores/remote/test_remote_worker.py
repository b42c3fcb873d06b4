"""From end to end: a service in a process of its own, and a worker that knows only its URL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers.process import free_port
from tests.servers.service import Host
from tests.stores.remote.conftest import Tokens

from holdfast import App, Context, State, StopReason
from holdfast.core.job import Event, EventKind
from holdfast.operate import audit
from holdfast.service.rights import Caller, Right
from holdfast.worker import Worker

BOUND_S = 60.0
JOBS = 60


class Serving:
    """`holdfast serve` on one port and one store; it may be killed and started again."""

    def __init__(self, store: str) -> None:
        self._port = free_port()
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "-q", "serve", f"--port={self._port}"]
        env = {**os.environ, "HOLDFAST_STORE": self._store}
        self._process = subprocess.Popen(command, env=env)

    async def ready(self) -> None:
        """Returns when it answers; fails when it does not within bounds."""
        async with asyncio.timeout(BOUND_S):
            while not await asyncio.to_thread(self._answers):
                assert self._process is not None
                assert self._process.poll() is None, "the service has ended"
                await asyncio.sleep(0.05)  # nothing else can be waited for

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(f"sqlite:///{tmp_path}/jobs.db")
    try:
        yield serving
    finally:
        serving.kill()


async def test_a_killed_service_loses_no_job(serving: Serving, tmp_path: Path) -> None:
    """Jobs run, the service is killed under them and comes back: all complete, none is doubled."""
    serving.start()
    await serving.ready()
    app = App(
        f"{serving.url}?timeout_s=30&breaker=50&breaker_s=0.2",
        lease_s=5.0,
        concurrency=8,
        poll_s=0.2,
    )
    runs: Counter[int] = Counter()
    some, back = asyncio.Event(), asyncio.Event()

    @app.job(max_attempts=10)
    async def work(ctx: Context, number: int) -> int:
        runs[number] += 1
        if sum(runs.values()) >= JOBS // 3:
            some.set()
            await back.wait()  # Held, with its lease, while the service is away.
        return number

    async with app, asyncio.timeout(BOUND_S):
        acme = app.tenant("acme")
        kept = [await acme.enqueue(work(number=number)) for number in range(JOBS)]
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        await some.wait()

        serving.kill()
        late = asyncio.create_task(acme.enqueue(work(number=JOBS)))
        serving.start()
        await serving.ready()
        back.set()
        kept.append(await late)

        assert [await acme.wait(one.id, timeout=BOUND_S) for one in kept] == list(range(JOBS + 1))
        worker.stop()
        await running
    serving.kill()

    direct = App(f"sqlite:///{tmp_path}/jobs.db")
    async with direct:
        found = await audit(direct.store)
        [tally] = await direct.store.count("acme")
    assert found.breaches == []
    assert found.unended == set()
    assert found.counts[EventKind.COMPLETED] == JOBS + 1
    assert tally.counts == {State.COMPLETED: JOBS + 1}
    assert set(runs) == set(range(JOBS + 1))


async def test_a_worker_needs_no_right_but_to_work(
    own_host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    """With a token of one tenant: it claims, beats, settles and is present, without a complaint."""
    place = own_host.place(
        "rights",
        auth=Tokens(
            Caller(name="worker", tenant="acme", rights=frozenset({Right.WORK})),
            Caller(name="client", tenant="acme", rights=frozenset({Right.PRODUCE, Right.READ})),
        ),
    )
    worker_app = App(place.remote(token="worker"), lease_s=0.5, leader_s=0.5, poll_s=0.2)
    client_app = App(place.remote(token="client"))
    beaten = asyncio.Event()

    @worker_app.job()
    async def work(ctx: Context, number: int) -> int:
        await beaten.wait()  # Until a lease was renewed.
        return 2 * number

    @client_app.job(name="work")
    async def ask(ctx: Context, number: int) -> int:
        raise NotImplementedError

    async with worker_app, client_app, asyncio.timeout(BOUND_S):
        acme = client_app.tenant("acme")
        worker = Worker(worker_app)
        running = asyncio.create_task(worker.run())
        kept = [await acme.enqueue(ask(number=number)) for number in range(5)]
        async for event in acme.events(after=0):
            if isinstance(event, Event) and event.kind is EventKind.EXTENDED:
                break
        explained = await acme.explain(kept[0].id)
        beaten.set()
        results = [await acme.wait(one.id) for one in kept]
        worker.stop()
        await running

    assert results == [0, 2, 4, 6, 8]
    assert explained.state is State.PROCESSING
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


async def test_a_cancel_reaches_a_worker_that_may_only_work(own_host: Host) -> None:
    """P5: within seconds, though it may not read jobs and its heartbeats are 20 s apart."""
    place = own_host.place(
        "cancels",
        auth=Tokens(
            Caller(name="worker", tenant="acme", rights=frozenset({Right.WORK})),
            Caller(name="client", tenant="acme", rights=frozenset({Right.PRODUCE, Right.OPERATE})),
        ),
    )
    worker_app = App(place.remote(token="worker"))
    client_app = App(place.remote(token="client"))
    started, stopped = asyncio.Event(), asyncio.Event()
    seen: list[StopReason | None] = []

    @worker_app.job()
    async def work(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.stopping)
            stopped.set()

    @client_app.job(name="work")
    async def ask(ctx: Context) -> None:
        raise NotImplementedError

    async with worker_app, client_app:
        worker = Worker(worker_app, drain_s=0.0)
        running = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(10):
                kept = await client_app.tenant("acme").enqueue(ask())
                await started.wait()
                assert await client_app.tenant("acme").cancel(kept.id)
                await stopped.wait()
        finally:
            worker.stop()
            await running

    assert seen == [StopReason.CANCELED]


async def test_a_job_continues_where_it_stopped(own_host: Host) -> None:
    """Steps, a signal and children over HTTP: `work` is enough for all but the children, which are
    enqueued and read.
    """
    rights = frozenset({Right.WORK, Right.PRODUCE, Right.READ})
    place = own_host.place(
        "steps",
        auth=Tokens(
            Caller(name="worker", tenant="acme", rights=frozenset({Right.WORK})),
            Caller(name="mapper", tenant="acme", rights=rights, queues=("lines",)),
            Caller(name="client", tenant="acme", rights=frozenset({Right.PRODUCE, Right.READ})),
        ),
    )
    orders = App(place.remote(token="worker"), poll_s=0.2)
    lines = App(place.remote(token="mapper"), poll_s=0.2)
    client = App(place.remote(token="client"))
    charged: list[str] = []

    def charge(order: str) -> str:
        charged.append(order)
        return f"receipt of {order}"

    @orders.job(queue="orders")
    async def fulfil(ctx: Context, order: str) -> str:
        receipt = await ctx.step("charge", charge, order)
        ctx.log(f"attempt {ctx.attempt}")
        if await ctx.wait_for("approved", bool) is not True:
            raise RuntimeError("not approved")
        return str(receipt)

    @lines.job(queue="lines")
    async def ship(ctx: Context, line: int) -> int:
        return 2 * line

    @lines.job(queue="lines")
    async def deliver(ctx: Context, number: int) -> list[int]:
        return await ctx.map("lines", ship, range(number))

    @client.job(queue="orders", name="fulfil")
    async def ask(ctx: Context, order: str) -> str:
        raise NotImplementedError

    @client.job(queue="lines", name="deliver")
    async def ask_for(ctx: Context, number: int) -> list[int]:
        raise NotImplementedError

    async with orders, lines, client, asyncio.timeout(BOUND_S):
        acme = client.tenant("acme")
        workers = [Worker(orders), Worker(lines)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        order, delivery = await acme.enqueue(ask(order="a")), await acme.enqueue(ask_for(number=3))
        async for event in acme.events(after=0, job_id=order.id):
            if isinstance(event, Event) and event.note == "signal:approved":
                break
        assert await acme.signal(order.id, "approved", True)
        results = [await acme.wait(one.id, timeout=BOUND_S) for one in (order, delivery)]
        journal = await acme.journal(order.id)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)

    assert results == ["receipt of a", [0, 2, 4]]
    assert charged == ["a"]
    assert [step.name for step in journal.steps] == ["charge"]
    assert list(journal.log) == ["attempt 1", "attempt 1"]
