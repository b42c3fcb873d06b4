"""What waits at limits of the platform leaves no pointer that leads to nothing, and is not lost."""

from __future__ import annotations

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.job import Completed
from holdfast.core.scope import PLATFORM, Pause, Scope
from holdfast.stores.foundationdb import limits_platform
from holdfast.stores.foundationdb.layout import Keys, Space
from holdfast.stores.foundationdb.overlay import count_of
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, MAIL, ids, over_all, type_of

PREFIX = "c"
SPACES = (Space.PLATFORM, Space.ASIDE, Space.ASIDE_LINES)


def _kept(engine: Engine, *spaces: Space) -> int:
    """How many keys there are in these spaces."""
    keys, tr = Keys(PREFIX.encode() + b"\0"), engine.database().create_transaction()
    return sum(len(list(tr.get_range_startswith(keys.all(space)))) for space in spaces)


async def test_a_line_that_is_set_aside_again_is_found(bench: Bench) -> None:
    """P10: also by the claim after one that found nothing at the limit before."""
    await bench.configure(over_all(MAIL), max_running=1)
    await bench.put("a", "b")
    for _ in "ab":
        first = await bench.one()
        assert await bench.claim(1) == []
        await bench.end(first, Completed())
    assert await bench.claim(1) == []

    await bench.put("c", tenant=ACME)
    await bench.put("d", tenant=GLOBEX)
    started = []
    for _ in "cd":
        [lease] = await bench.claim(10)
        started += ids([lease])
        await bench.end(lease, Completed())

    assert sorted(started) == ["c", "d"]


@pytest.mark.parametrize("scope", [over_all(MAIL), type_of("send")], ids=["queue", "type"])
async def test_a_limit_that_is_gone_leaves_nothing(
    bench: Bench, engine: Engine, scope: Scope
) -> None:
    """What waited is claimed, and claims read one key again."""
    await bench.configure(scope, paused=Pause("because", "ann"))
    for tenant in (ACME, GLOBEX):
        await bench.put("a", "b", tenant=tenant)
    assert await bench.claim(10) == []
    assert _kept(engine, *SPACES) > 0

    await bench.configure(scope)
    leases = await bench.claim(10)
    for _ in range(3):
        assert await bench.claim(10) == []

    assert len(leases) == 4
    assert _kept(engine, *SPACES) == 0


async def test_nothing_starts_until_the_running_jobs_are_counted(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P13: who set the limit may have died before it counted; the next claim does."""
    await bench.put("a", "b", "c")
    assert len(await bench.claim(2)) == 2

    async def dies(_: object) -> None:
        return

    with monkeypatch.context() as patch:
        patch.setattr(limits_platform, "count_uncounted", dies)
        await bench.configure(PLATFORM, max_running=2)
    assert await bench.running(PLATFORM) == 0

    assert await bench.claim(10) == []
    assert await bench.running(PLATFORM) == 2


async def test_a_scope_without_settings_is_not_counted(bench: Bench, engine: Engine) -> None:
    """A limit that is gone costs nothing."""
    await bench.configure(over_all(MAIL), max_running=5)
    await bench.configure(over_all(MAIL))
    await bench.put("a")
    assert len(await bench.claim(1)) == 1

    key = Keys(PREFIX.encode() + b"\0").scope(Space.COUNTS, over_all(MAIL))
    tr = engine.database().create_transaction()
    assert [count_of(value) for _, value in tr.get_range_startswith(key)] == []
