"""Calls over real connections, to a service of our own on loopback."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.outbound.conftest import Desk
from tests.outbound.killed import make_app
from tests.outbound.service import NEVER, RESET, Service

from holdfast import Context, Retry, State, SyncContext
from holdfast.core.edge_bounds import OUTBOUND_ANSWER_MAX
from holdfast.core.errors import InvalidInput, MissingExtra
from holdfast.outbound import Outbound, OutboundRefused
from holdfast.worker import Worker

ROOT = Path(__file__).parent.parent.parent
BOUND_S = 60.0


async def test_three_retries_of_a_job_make_one_object(desk: Desk, service: Service) -> None:
    """S4.18: every attempt has called the service, which has done the call once."""
    crm = Outbound(service.url)

    async def create(ctx: Context) -> str:
        answer = await crm.post(ctx, "/contacts", json={"name": "Ann"})
        if ctx.attempt < 4:
            raise Retry("the answer was not stored")
        found: str = answer.check().json()["id"]
        return found

    job = await desk.run(create, runs=4, max_attempts=5)

    assert (job.state, job.attempt) == (State.COMPLETED, 4)
    assert len(service.seen) == 4
    assert len(service.objects) == 1


async def test_two_jobs_make_two_objects(desk: Desk, service: Service) -> None:
    """X25: equal contents are no duplicates unless the handler says so."""
    crm = Outbound(service.url)

    async def create(ctx: Context) -> None:
        await crm.post(ctx, "/contacts", json={"name": "Ann"})

    await desk.run(create)
    await desk.run(create)

    assert len(service.objects) == 2


async def test_a_busy_service_is_called_at_growing_intervals(desk: Desk, service: Service) -> None:
    """S4.22, with real time: each interval is at least the pause before it."""
    service.plan = [429, 429, 429]
    crm = Outbound(service.url)

    async def create(ctx: Context) -> int:
        return (await crm.post(ctx, "/contacts")).tries

    job = await desk.run(create)

    at = [one.at_s for one in service.seen]
    gaps = [after - before for before, after in pairwise(at)]
    assert job.state is State.COMPLETED
    assert all(gap >= least for gap, least in zip(gaps, (0.2, 0.4, 0.8), strict=True))


async def test_a_call_whose_answer_was_lost_is_done_once(desk: Desk, service: Service) -> None:
    """The key makes the repetition safe."""
    service.plan = [RESET, NEVER, 502]
    crm = Outbound(service.url, timeout=0.3)

    async def create(ctx: Context) -> int:
        return (await crm.post(ctx, "/contacts", json=1)).check().tries

    job = await desk.run(create)

    assert job.state is State.COMPLETED
    assert len({one.key for one in service.seen}) == 1
    assert len(service.seen) == 4
    assert len(service.objects) == 1


async def test_a_service_that_is_down_gives_the_job_back(desk: Desk) -> None:
    """Its policy goes on, with what happened in the error and the log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        crm = Outbound(f"http://127.0.0.1:{port}", budget=0.5)

        async def create(ctx: Context) -> None:
            await crm.post(ctx, "/contacts")

        job = await desk.run(create)

    assert job.state is State.RETRYING
    assert "cannot be reached" in (job.error or "")
    assert len(await desk.lines(job.id)) == 2


async def test_a_request_arrives_as_it_was_meant(desk: Desk, service: Service) -> None:
    """Path, query, headers and body, with the path below the base."""
    crm = Outbound(f"{service.url}/v1/", headers={"Authorization": "Bearer t"})

    async def create(ctx: Context) -> None:
        await crm.put(ctx, "/contacts/ä b", params={"q": "a&b", "n": 2}, json={"name": "Ann"})
        await crm.patch(ctx, "/x", key="x", data=b"raw", headers={"Content-Type": "text/plain"})
        await crm.delete(ctx, "/y", key="y")
        await crm.get(ctx, "/z")

    job = await desk.run(create)

    put, patch, delete, get = service.seen
    assert job.state is State.COMPLETED
    assert (put.method, put.path) == ("PUT", "/v1/contacts/%C3%A4%20b?q=a%26b&n=2")
    assert (put.body, put.headers["content-type"]) == (b'{"name":"Ann"}', "application/json")
    assert put.headers["authorization"] == "Bearer t"
    assert put.headers["x-correlation-id"] == job.id
    assert (patch.body, patch.headers["content-type"]) == (b"raw", "text/plain")
    assert delete.key != patch.key != put.key
    assert (get.method, get.key) == ("GET", None)


async def test_a_redirect_is_not_followed(desk: Desk, service: Service) -> None:
    """It could lead anywhere, with the client's headers."""
    service.plan = [(302, {"location": "http://169.254.169.254/"})]
    crm = Outbound(service.url)

    async def create(ctx: Context) -> int:
        return (await crm.get(ctx, "/contacts")).status

    await desk.run(create)

    assert len(service.seen) == 1


async def test_an_answer_above_the_limit_is_not_read(desk: Desk, service: Service) -> None:
    """A service must not fill the memory of a worker."""
    service.body = bytes(OUTBOUND_ANSWER_MAX + 1)
    crm = Outbound(service.url)
    raised: list[OutboundRefused] = []

    async def create(ctx: Context) -> None:
        try:
            await crm.get(ctx, "/contacts")
        except OutboundRefused as error:
            raised.append(error)
        service.body = b"small"
        raised.append(OutboundRefused(why=(await crm.get(ctx, "/contacts")).text))

    job = await desk.run(create)

    assert "its answer is larger than" in str(raised[0].why)
    assert raised[1].why == "small"
    assert "its answer is larger than" in (await desk.lines(job.id))[0]


async def test_a_plain_function_calls_without_await(desk: Desk, service: Service) -> None:
    """One implementation: its calls run on the worker's loop, with the same keys and log."""
    service.plan = [429]
    crm = Outbound(service.url)

    def create(ctx: SyncContext) -> str:
        first = crm.sync.post(ctx, "/contacts", json={"name": "Ann"}).check()
        crm.sync.get(ctx, "/a")
        crm.sync.put(ctx, "/b", key="b")
        crm.sync.patch(ctx, "/c", key="c")
        crm.sync.delete(ctx, "/d", key="d")
        found: str = first.json()["id"]
        return found

    job = await desk.run(create)  # type: ignore[arg-type]

    assert job.state is State.COMPLETED
    assert len(await desk.lines(job.id)) == 6


async def test_a_call_without_await_is_refused_in_a_coroutine(desk: Desk, service: Service) -> None:
    """It would block the loop that it waits for."""
    crm = Outbound(service.url)
    raised: list[InvalidInput] = []

    async def create(ctx: Context) -> None:
        try:
            crm.sync.post(ctx, "/contacts")
        except InvalidInput as error:
            raised.append(error)

    await desk.run(create)

    assert "use await" in str(raised[0])


async def test_a_run_without_a_store_calls_too(desk: Desk, service: Service) -> None:
    """`run_now`, and handlers with cpu=True: there is no log then, and no lease."""
    crm = Outbound(service.url)

    @desk.app.job(name="now")
    async def create(ctx: Context) -> bool:
        in_thread = await asyncio.to_thread(crm.sync.post, ctx, "/contacts", key="thread")
        return in_thread.ok and (await crm.post(ctx, "/contacts")).ok

    assert await desk.app.run_now(create()) is True
    assert len(service.objects) == 2


async def test_each_event_loop_has_connections_that_end_with_it(
    desk: Desk, service: Service
) -> None:
    """A client is made at import and used by any loop; none leaves sockets open."""
    crm = Outbound(service.url)
    links: list[dict[Any, Any]] = []

    @desk.app.job(name="loops")
    async def look(ctx: Context) -> None:
        transport: Any = crm._caller._transport
        await asyncio.to_thread(crm.sync.get, ctx, "/of-a-thread")
        links.append(dict(transport._links))
        await crm.get(ctx, "/here")
        links.append(dict(transport._links))

    await desk.app.run_now(look())

    first, second = links
    assert [(loop.is_closed(), link.session.closed) for loop, link in first.items()] == [
        (True, True)
    ]
    assert [(loop.is_closed(), link.session.closed) for loop, link in second.items()] == [
        (False, False)
    ]


async def test_a_worker_killed_after_its_call_sends_the_same_key_again(
    tmp_path: Path, service: Service
) -> None:
    """S4.18, S4.37: kill -9 between the call and the ack makes no second object."""
    store, mark = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "died"
    app = make_app(store, service.url, mark)
    kind = app.registry.named("create")
    assert kind is not None
    async with app:
        id = (await app.tenant("acme").enqueue(kind.kind())).id
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.outbound.killed", store, service.url, str(mark), cwd=ROOT
        )
        async with asyncio.timeout(BOUND_S):
            assert await dying.wait() == -9
        worker = Worker(app)
        running = asyncio.create_task(worker.run())
        try:
            assert await app.tenant("acme").wait(id, timeout=BOUND_S) == "object 1"
        finally:
            worker.stop()
            await running

    assert len(service.seen) == 2
    assert len({one.key for one in service.seen}) == 1
    assert len(service.objects) == 1


def test_the_client_names_its_extra() -> None:
    """Importing the names needs no package; making a client says which one is missing."""
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from holdfast.outbound import Outbound\n"
        "try:\n    Outbound('https://api.example.com')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.startswith(MissingExtra.__name__)
    assert "pip install 'holdfast[outbound]'" in done.stdout


@pytest.mark.parametrize("status", [200, 503])
async def test_a_call_in_a_long_run_is_cut_at_its_timeout(
    desk: Desk, service: Service, status: int
) -> None:
    """A service that does not answer cannot hold a slot for longer than the job's time-out."""
    service.plan = [NEVER] * 9 if status == 200 else [NEVER, status]
    crm = Outbound(service.url, timeout=60, budget=60)
    begun_s = time.monotonic()

    async def create(ctx: Context) -> None:
        await crm.post(ctx, "/contacts")

    job = await desk.run(create, timeout=0.5)

    assert job.state is State.RETRYING
    assert time.monotonic() - begun_s < BOUND_S


async def test_a_call_can_be_a_step(desk: Desk, service: Service) -> None:
    """P16: a later attempt finds the answer and does not call."""
    crm = Outbound(service.url)

    async def create(ctx: Context) -> str:
        answer = await ctx.step("create", crm.post, ctx, "/contacts", json={"name": "Ann"})
        if ctx.attempt == 1:
            raise Retry("once more")
        found: str = answer.check().json()["id"]
        return found

    job = await desk.run(create, runs=2)

    assert job.state is State.COMPLETED
    assert len(service.seen) == 1
