"""Limits that change all the time, under load and kills, are never exceeded and leak no place."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.chaos.herd import Herd, make_app, until_present
from tests.chaos.test_kill import until_ended

from holdfast import Tenant
from holdfast.core.job import EventKind, State
from holdfast.core.scope import TENANT_KINDS
from holdfast.listings import tallies
from holdfast.operate import audit

GROUPS = [f"g{number}" for number in range(5)]
CHANGES = 1_500
"""Some find the limit as they want it; a thousand change something."""
JOBS = 3_000


async def change_something(acme: Tenant, chance: random.Random) -> None:
    """Sets, raises, lowers or takes away a limit of a random scope."""
    most = chance.choice([None, *range(1, 9)])
    scope = chance.choice(["tenant", "queue", "group", "order"])
    if scope == "tenant":
        await acme.scope().set(max_running=None if most is None else most + 4)
    elif scope == "queue":
        await acme.queue("default").set(max_running=None if most is None else most + 2)
    elif scope == "group":
        await acme.group(chance.choice(GROUPS)).set(max_running=most)
    else:
        await acme.group(chance.choice(GROUPS)).set(ordered=chance.choice([True, None]))


@pytest.mark.slow
async def test_a_thousand_changes_under_kills_exceed_and_leak_nothing(tmp_path: Path) -> None:
    """P13: no lease above a limit in force when it was taken; no place is lost in the end."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = make_app(url)
    chance = random.Random(13)
    step = app.registry.named("step")
    assert step is not None
    groups: dict[str, str] = {}
    async with app:
        acme = app.tenant("acme")
        with Herd(url) as herd:
            herd.revive(3)
            await until_present(app.store, 3)
            for change in range(CHANGES):
                for number in range(JOBS // CHANGES):
                    group = chance.choice([*GROUPS, None])
                    id = f"{change}-{number}"
                    if group is None:
                        await acme.enqueue(step.kind(pause_s=0.02), id=id)
                    else:
                        groups[id] = group
                        await acme.enqueue(step.kind(pause_s=0.02), id=id, group=group)
                await change_something(acme, chance)
                if change % 50 == 25:
                    herd.revive(3)
                    herd.kill(chance.choice(herd.living))
            for scope in (acme.scope(), acme.queue("default"), *map(acme.group, GROUPS)):
                await scope.set(max_running=None)
            await asyncio.gather(*(acme.group(name).set(ordered=None) for name in GROUPS))
            await until_ended(acme, JOBS, 120, herd, 3)
            codes = herd.stop()
        found = await audit(app.store, lambda tenant, job_id: groups.get(job_id))

        assert codes == [0, 0, 0]
        assert found.breaches == []
        assert found.counts[EventKind.CONFIGURED] >= 1_000
        assert found.counts[EventKind.RESCUED] > 0
        assert len(found.ended(EventKind.COMPLETED)) == found.counts[EventKind.COMPLETED] == JOBS
        for kind in TENANT_KINDS:
            async for tally in tallies(app.store, "acme", by=kind):
                assert tally.counts == {State.COMPLETED: sum(tally.counts.values())}
        recounted = await app.store.count("acme", recount=True)
        assert [tally.correction for tally in recounted] == [0] * len(recounted)
