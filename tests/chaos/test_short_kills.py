"""kill -9 of workers and of servers, in short: every run of the tests has some of each.

The long forms, with hundreds of kills and with a pace to come back to, are the tests beside it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
from tests.chaos.herd import Herd, make_app, until_present
from tests.chaos.test_kill import until_ended
from tests.chaos.test_server_faults import FAULTS, Sender, completions
from tests.servers.binaries import postgres_installs
from tests.servers.kinds import KINDS, Missing, install_of
from tests.servers.postgres import Postgres
from tests.servers.redis_node import RedisNode

from holdfast import App
from holdfast.audit import Audit
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import EventKind
from holdfast.operate import audit
from holdfast.store import Store

WORKERS = 3
KILLS = 4
EACH = 30
"""Jobs for each kill."""
SOME = 100
"""Jobs before the server is killed, and after it is back."""
BOUND_S = 60.0


def _make(kind: str) -> Postgres | RedisNode:
    """As durable as it can be: what it confirmed, it must have."""
    if kind == "redis":
        return RedisNode(install_of(kind), appendfsync="always")
    newest = max(postgres_installs(), default=None)
    return Postgres(install_of(KINDS[0] if newest is None else f"postgres{newest}"))


@pytest.fixture(scope="module", params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | RedisNode]:
    """A server of this module's own: it is killed."""
    try:
        made = _make(request.param)
    except Missing as missing:
        missing.end_test()
    with made as server:
        yield server


async def until_leased(store: Store, after: int) -> int:
    """Waits, within bounds, for a lease past a cursor; returns the cursor of the present end."""
    async with asyncio.timeout(BOUND_S):
        while True:
            page = await store.events("acme", after, PAGE_MAX)
            if any(event.kind is EventKind.LEASED for event in page.events):
                return (await store.events("acme", -1, 1)).cursor
            after = page.cursor
            await asyncio.sleep(0.01)


async def until_true(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _clean(found: Audit, jobs: int) -> None:
    assert found.breaches == []
    assert found.unended == set()
    assert len(found.ended(EventKind.COMPLETED)) == found.counts[EventKind.COMPLETED] == jobs


async def _kill_under_load(app: App, herd: Herd) -> int:
    """One worker at a time, then all of them; returns the number of jobs."""
    chance, tenant, cursor = random.Random(39), app.tenant("acme"), 0
    step = app.registry.named("step")
    assert step is not None
    herd.revive(WORKERS)
    await until_present(app.store, WORKERS)
    for kill in range(KILLS):
        await tenant.enqueue_many(step.kind(pause_s=0.5) for _ in range(EACH))
        cursor = await until_leased(app.store, cursor)
        last = kill == KILLS - 1
        for victim in list(herd.living) if last else [chance.choice(herd.living)]:
            herd.kill(victim)
        herd.revive(WORKERS)
    return KILLS * EACH


async def test_workers_killed_under_load_lose_and_double_nothing(
    server: Postgres | RedisNode,
) -> None:
    """P1, P2, P4: kill -9 of workers that hold leases; each job completes once."""
    url = server.fresh("workers")
    app = make_app(url)
    async with app:
        with Herd(url) as herd:
            jobs = await _kill_under_load(app, herd)
            await until_ended(app.tenant("acme"), jobs, BOUND_S, herd, WORKERS)
            await until_present(app.store, WORKERS)  # So that each can hear the signal.
            codes = herd.stop()
        found = await audit(app.store)

    assert codes == [0] * WORKERS
    _clean(found, jobs)
    assert found.counts[EventKind.RESCUED] > 0


async def test_a_server_killed_under_load_loses_nothing_that_it_confirmed(
    server: Postgres | RedisNode,
) -> None:
    """P1, P2, P4: kill -9 of the server and a start; each acknowledged job completes once."""
    url = server.fresh("server")
    app = make_app(url)
    step = app.registry.named("step")
    assert step is not None
    async with app:
        tenant = app.tenant("acme")
        sender = Sender(tenant, step.kind)
        with Herd(url) as herd:
            herd.revive(1)
            await until_present(app.store, 1)
            sending = asyncio.create_task(sender.run())
            await until_true(lambda: len(sender.kept) >= SOME)
            before = server.pid
            await FAULTS["killed"](server)
            assert server.pid != before
            back = len(sender.kept)
            await until_true(lambda: len(sender.kept) >= back + SOME)
            sender.stop()
            async with asyncio.timeout(BOUND_S):
                await sending
                while len(done := await completions(tenant, 0)) < len(sender.kept):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert [worker.poll() for worker in herd.living] == [None], "the worker gave up"
            codes = herd.stop()
        found = await audit(app.store)

    assert codes == [0]
    assert sorted(event.job_id for event in done) == sorted(sender.kept)
    _clean(found, len(sender.kept))
