"""Ticks whose workers die while they fire them, thousands of times."""

from __future__ import annotations

import random

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.ticking import Deadly, Died, Ticking, waiting

WHOLE = frozenset({"memory", "sqlite", "postgres15", "redis"})
"""Kinds of stores with ten thousand takeovers. The others share their rules with one of these."""


@pytest.fixture
def takeovers(request: pytest.FixtureRequest) -> int:
    return 10_000 if request.node.callspec.params["server"] in WHOLE else 1_000


async def test_thousands_of_takeovers_fire_each_tick_once(bench: Bench, takeovers: int) -> None:
    """P18: the worker that fires dies at a random call; all ticks come, none twice."""
    chance = random.Random(19)
    ticking = Ticking(bench)
    await ticking.set(every=90, missed="all", overlap="allow")
    begin = bench.clock.now()
    done = 0
    while done < takeovers:
        bench.clock.advance(chance.choice([61, 90, 200]))
        while (lease := await ticking.claim_tick()) is not None:
            dying = Deadly(bench.store, chance.randint(1, 7), late=chance.random() < 0.5)
            try:
                await ticking.fire(lease, dying)
            except Died:
                done += 1
                break
            await bench.end(lease, Completed())
        if done % 50 == 0:
            await ticking.jobs()
    bench.clock.advance(300)
    await ticking.run()

    expected = list(range(begin - begin % (90 * SECOND), bench.clock.now(), 90 * SECOND))
    assert sorted(ticking.instants) == [at for at in expected if begin < at <= bench.clock.now()]
    assert len(await waiting(bench)) == 1
