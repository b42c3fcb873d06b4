"""What needs processes: forks, and over a real cluster workers that are killed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.herd import Herd, make_app, until_present
from tests.chaos.test_kill import until_ended
from tests.servers.foundationdb import FoundationCluster
from tests.stores.conftest import named_cluster

from holdfast.core.finding import Level
from holdfast.core.job import EventKind
from holdfast.operate import audit, examine

ROOT = Path(__file__).parent.parent.parent.parent
BOUND_S = 120
JOBS = 600
KILLS = 5
WORKERS = 3


@pytest.fixture
def cluster() -> Iterator[FoundationCluster]:
    """A real one, where the environment names it."""
    cluster = named_cluster()
    yield cluster
    cluster.clear()


def said_by_forks(*url: str) -> list[str]:
    """What `forks.py` says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.stores.foundationdb.forks", *url],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        cwd=ROOT,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_store_is_used_by_the_process_that_opened_it() -> None:
    """A child of a fork is refused with words until it opens the store itself."""
    fresh, parent, used, opened, still = said_by_forks()

    assert fresh == parent == opened == still == "created: True"
    assert used.startswith("refused: ")
    assert "before a fork" in used


def test_the_client_library_is_started_after_a_fork(cluster: FoundationCluster) -> None:
    """Its network thread does not survive one: the child of who opened is refused, not hung."""
    fresh, parent, used, opened, still = said_by_forks(cluster.lend())

    assert fresh == parent == still == "created: True"
    assert "before a fork" in used
    assert "before this process was forked" in opened


async def test_the_doctor_finds_a_cluster_that_is_up(cluster: FoundationCluster) -> None:
    """It opens, and its state of health is told."""
    found = {finding.what: finding.level for finding in await examine(cluster.lend())}

    assert (found["open"], found["cluster"]) == (Level.OK, Level.OK)
    assert "health" in found


async def test_workers_that_are_killed_lose_and_double_nothing(cluster: FoundationCluster) -> None:
    """P1, P2, P4: processes on a real cluster die at random instants; the log shows no breach."""
    url = cluster.lend()
    app = make_app(url)
    chance = random.Random(7)
    step = app.registry.named("step")
    assert step is not None
    async with app:
        tenant = app.tenant("acme")
        with Herd(url) as herd:
            herd.revive(WORKERS)
            await until_present(app.store, WORKERS)
            for _ in range(KILLS):
                await tenant.enqueue_many(step.kind(pause_s=0.1) for _ in range(JOBS // KILLS))
                herd.revive(WORKERS)
                herd.kill(chance.choice(herd.living))
            await until_ended(tenant, JOBS, BOUND_S, herd, WORKERS)
            codes = herd.stop()
        found = await audit(app.store)

    assert codes == [0] * WORKERS
    assert found.breaches == []
    assert len(found.ended(EventKind.COMPLETED)) == found.counts[EventKind.COMPLETED] == JOBS
    assert found.unended == set()
