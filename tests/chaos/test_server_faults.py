"""Servers that die, hang or drop everybody, under steady load: nothing is lost, nothing is accepted
twice, and the work goes on by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
from tests.chaos.herd import Herd, make_app, until_present
from tests.servers.binaries import postgres_installs, redis_install
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres
from tests.servers.redis_node import RedisNode

from holdfast import App, Tenant
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import StoreError
from holdfast.core.job import Event, EventKind
from holdfast.operate import audit

Target = Postgres | RedisNode | Cluster

TICK_S = 0.05
EACH_TICK = 10
"""Jobs sent at once: 200 a second, which the machine does easily, faults or not."""
WORKERS = 2
STEADY_S = 6.0
WINDOW_S = 3.0
RECOVERY_S = 30.0
FROZEN_S = 10.0


class Sender:
    """Enqueues at a steady pace. An id counts once its enqueue returned; until then it is sent
    again, as a careful client does.
    """

    def __init__(self, tenant: Tenant, make: Callable[..., Any]) -> None:
        self._tenant = tenant
        self._make = make
        self.kept: list[str] = []
        self.faults = 0
        self._stop = asyncio.Event()

    async def run(self) -> None:
        number = 0
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                for _ in range(EACH_TICK):
                    number += 1
                    group.create_task(self._send(f"job{number}"))
                await asyncio.sleep(TICK_S)

    def stop(self) -> None:
        self._stop.set()

    async def _send(self, id: str) -> None:
        while True:
            try:
                await self._tenant.enqueue(self._make(pause_s=0.01), id=id)
            except StoreError:
                self.faults += 1
                await asyncio.sleep(0.2)
            else:
                self.kept.append(id)
                return


async def _kill_and_start(server: Target) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(1.0)
    await asyncio.to_thread(server.start)


async def _cut(server: Target) -> None:
    await asyncio.to_thread(server.cut)


async def _freeze(server: Target) -> None:
    await asyncio.to_thread(server.freeze)
    await asyncio.sleep(FROZEN_S)
    await asyncio.to_thread(server.thaw)


async def _kill_one_master(server: Target) -> None:
    assert isinstance(server, Cluster)
    await asyncio.to_thread(server.kill, 1)
    await asyncio.sleep(5.0)  # Longer than the nodes take to see it: the cluster is down meanwhile.
    await asyncio.to_thread(server.start, 1)
    await asyncio.to_thread(server.wait_ok)


def _servers() -> dict[str, Callable[[], Target]]:
    """Each as durable as it can be: what it confirmed, it must have."""
    made: dict[str, Callable[[], Target]] = {}
    for major, install in postgres_installs().items():
        made[f"postgres{major}"] = partial(Postgres, install)
    if (redis := redis_install()) is not None:
        made["redis"] = partial(RedisNode, redis, appendfsync="always")
        made["cluster"] = partial(Cluster, redis, appendfsync="always")
    return made


Fault = Callable[[Target], Coroutine[Any, Any, None]]

FAULTS: dict[str, Fault] = {"killed": _kill_and_start, "cut": _cut, "frozen": _freeze}
CASES = [
    *((kind, name) for kind in ("postgres15", "redis") for name in FAULTS),
    ("postgres18", "killed"),
    ("cluster", "cut"),
    ("cluster", "master killed"),
]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Target]:
    made = _servers().get(request.param)
    if made is None:
        pytest.skip(f"no binaries of {request.param}")
    with made() as server:
        yield server


async def completions(tenant: Tenant, since: int) -> list[Event]:
    """The tenant's completions after a cursor, in stored order."""
    found: list[Event] = []
    page = await tenant._store.events(tenant.name, since, PAGE_MAX)
    while page.events:
        found += [event for event in page.events if event.kind is EventKind.COMPLETED]
        page = await tenant._store.events(tenant.name, page.cursor, PAGE_MAX)
    return found


def best_rate(done: list[Event], start_s: float, end_s: float) -> float:
    """Completions a second in the best window of WINDOW_S between two instants."""
    instants = sorted(event.at / SECOND for event in done if start_s <= event.at / SECOND <= end_s)
    best, first = 0, 0
    for last, instant in enumerate(instants):
        while instant - instants[first] > WINDOW_S:
            first += 1
        best = max(best, last - first + 1)
    return best / WINDOW_S


async def steady_then(fault: Fault, server: Target, app: App, sender: Sender) -> tuple[float, ...]:
    """Load, the fault, and load again until the pace is back; the instants between them."""
    # Nothing is sent before: what had gathered would be done faster than jobs come.
    await until_present(app.store, WORKERS)
    sending = asyncio.create_task(sender.run())
    begun = time.time()
    await asyncio.sleep(STEADY_S)
    broken = time.time()
    await fault(server)
    healed = time.time()
    await asyncio.sleep(RECOVERY_S)
    ended = time.time()
    sender.stop()
    async with asyncio.timeout(60):
        await sending
    return begun, broken, healed, ended


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "fault"), [pytest.param(*case, id=" ".join(case)) for case in CASES],
    indirect=["server"],
)  # fmt: skip
async def test_a_server_fault_loses_nothing_and_work_goes_on(server: Target, fault: str) -> None:
    """P1, P2, P4: every acknowledged job completes once; the pace is back within 30 s."""
    url = server.fresh("chaos")
    app = make_app(url)
    step = app.registry.named("step")
    assert step is not None
    async with app:
        tenant = app.tenant("acme")
        sender = Sender(tenant, step.kind)
        with Herd(url) as herd:
            herd.revive(WORKERS)
            act = _kill_one_master if fault == "master killed" else FAULTS[fault]
            begun, broken, healed, ended = await steady_then(act, server, app, sender)
            async with asyncio.timeout(60):
                while len(done := await completions(tenant, 0)) < len(sender.kept):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
            assert all(worker.poll() is None for worker in herd.living), "a worker gave up"
            codes = herd.stop()
        found = await audit(app.store)

        before = best_rate(done, begun, broken)
        after = best_rate(done, healed, min(ended, healed + RECOVERY_S))
        print(f"{fault}: {before:.0f}/s before, {after:.0f}/s after, {sender.faults} failed calls")
        assert codes == [0, 0]
        assert found.breaches == []
        assert len(done) == len({event.job_id for event in done}) == len(sender.kept)
        assert {event.job_id for event in done} == set(sender.kept)
        assert after >= 0.95 * before
