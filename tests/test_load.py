"""One call for autoscalers: what can run, who is there, and how many there should be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, InvalidInput, operate
from holdfast.core import bounds
from holdfast.core.clock import SECOND
from holdfast.core.errors import StoreError, StoreUnavailable
from holdfast.load import Load
from holdfast.store import Claim, Take
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.worker_registry import PREFIX, Present


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    app = App(open_store(url, ManualClock()))
    if not app.store.capabilities.scopes:
        pytest.skip("this store keeps no scopes yet")

    @app.job(name="add", queue="sums")
    async def add(ctx: Context, a: int) -> int:
        return a

    async with app:
        yield app


async def put(app: App, number: int, tenant: str = "acme", **options: Any) -> None:
    found = app.registry.named("add")
    assert found is not None
    jobs = (found.kind(a=a) for a in range(number))
    await app.tenant(tenant).enqueue_many(jobs, **options)


async def worker(app: App, name: str, running: int, concurrency: int, **said: Any) -> None:
    facts: dict[str, Any] = {"tenants": None, "queues": None, "types": (), "pid": 1, "held": 0}
    note = Present(**{**facts, "running": running, "concurrency": concurrency, **said})
    text = msgspec.json.encode(note).decode()
    await app.store.hold([Take(f"{PREFIX}{name}", name, 3600 * SECOND, text)])


async def claim(app: App, limit: int) -> None:
    await app.store.claim(Claim(worker="w", nonce="n", limit=limit, lease_us=60 * SECOND))


async def test_an_empty_store_wants_nobody(app: App) -> None:
    """Scaling to zero is possible; a floor is the caller's to give."""
    none = await operate.load(app.store)
    some = await operate.load(app.store, at_least=2)

    assert (none.runnable, none.wanted, none.oldest_at, none.busy) == (0, 0, None, 0.0)
    assert some.wanted == 2


async def test_the_formula_is_the_documented_one(app: App) -> None:
    """(running + runnable / waiting_per_slot) / slots of a worker, rounded up."""
    await worker(app, "a", running=20, concurrency=20)
    await worker(app, "b", running=10, concurrency=20)
    await put(app, 95)

    found = await operate.load(app.store)
    eager = await operate.load(app.store, waiting_per_slot=1)
    bounded = await operate.load(app.store, waiting_per_slot=1, at_most=3)

    assert (found.workers, found.running, found.slots, found.busy) == (2, 30, 40, 0.75)
    assert found.wanted == 2  # (30 + 10) / 20
    assert (eager.wanted, bounded.wanted) == (7, 3)  # (30 + 95) / 20


async def test_the_oldest_wait_is_of_a_line_that_may_run(app: App) -> None:
    """A paused one would call for workers that cannot help."""
    await put(app, 1, tenant="paused")
    await app.tenant("paused").scope().pause("why", "ada")
    app.store.inner._clock.advance(50)  # type: ignore[attr-defined]
    await put(app, 1)
    app.store.inner._clock.advance(10)  # type: ignore[attr-defined]
    now = app.store.inner._clock.now()  # type: ignore[attr-defined]

    found = await operate.load(app.store, now=now)

    assert (found.runnable, found.waiting, found.oldest_wait_s) == (1, 2, 10.0)


async def test_limits_of_every_scope_bound_what_is_runnable(app: App) -> None:
    """The tenant's, the queue's, the group's own and the queue's for its groups."""

    async def runnable() -> int:
        return (await operate.load(app.store)).runnable

    acme = app.tenant("acme")
    await put(app, 10, group="a")
    await put(app, 10, group="b")
    seen = [await runnable()]
    await acme.scope().set(max_running=15)
    seen.append(await runnable())
    await acme.queue("sums").set(max_running=12)
    seen.append(await runnable())
    await acme.group("a").set(max_running=1)
    seen.append(await runnable())
    await acme.queue("sums").set(groups={"ordered": True})
    seen.append(await runnable())
    await claim(app, 1)
    seen.append(await runnable())

    assert seen == [20, 15, 12, 11, 2, 1]


async def test_only_what_was_asked_for_counts(app: App) -> None:
    """Tenants, queues, and the workers that serve them."""
    await put(app, 3)
    await put(app, 4, queue="mail")
    await put(app, 5, tenant="globex")
    await worker(app, "mine", 1, 10, tenants=("acme",))
    await worker(app, "theirs", 2, 10, tenants=("globex",), queues=("sums",))

    def seen(found: Load) -> tuple[int, int]:
        return found.runnable, found.running

    assert seen(await operate.load(app.store, tenants=["globex"])) == (5, 2)
    assert seen(await operate.load(app.store, queues=["mail"])) == (4, 1)
    assert seen(await operate.load(app.store)) == (12, 3)


async def test_a_number_that_cannot_be_is_refused(app: App) -> None:
    """By name."""
    with pytest.raises(InvalidInput, match="waiting_per_slot: is 0"):
        await operate.load(app.store, waiting_per_slot=0)
    with pytest.raises(InvalidInput, match="at_least: is 5"):
        await operate.load(app.store, at_least=5, at_most=4)


async def test_operators_reach_any_scope(app: App) -> None:
    """List, look, pause, explain and recount, without a tenant's handle."""
    await put(app, 1, id="j")
    await operate.scope(app.store, "acme", queue="sums").pause("why", "ada")

    [state] = (await operate.scopes(app.store)).values()

    assert state.settings.paused is not None
    assert (await operate.explain(app.store, "j")).gates[0].words.endswith("by ada: why")
    assert [tally.queue for tally in await operate.queues(app.store)] == ["sums"]
    assert await operate.reconcile(app.store) == 0


async def test_a_look_counts_so_many_queues_and_says_so(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: the answer is bounded, whatever a tenant has."""
    for number in range(4):
        await put(app, 1, queue=f"q{number}")
    assert (await operate.load(app.store)).whole

    monkeypatch.setattr(bounds, "LOAD_MAX", 3)
    found = await operate.load(app.store)

    assert (found.waiting, found.whole) == (3, False)


async def test_limits_of_all_tenants_bound_what_can_run(app: App) -> None:
    """Workers beyond them would wait."""
    if not app.store.capabilities.platform:
        pytest.skip("this store keeps no limits of the platform yet")
    for tenant in ("acme", "globex"):
        await put(app, 5, tenant)
        await put(app, 2, tenant, queue="mail")
    whole = app.platform()
    await whole.queue("sums").set(max_running=3)
    assert (await operate.load(app.store)).runnable == 7
    await whole.set(max_running=4)
    assert (await operate.load(app.store)).runnable == 4
    await claim(app, 1)
    assert (await operate.load(app.store)).runnable == 3
    await whole.queue("mail").pause("down", "ann")
    assert (await operate.load(app.store)).runnable <= 3
    await whole.pause("maintenance", "ann")
    paused = await operate.load(app.store)

    assert (paused.runnable, paused.oldest_at, paused.waiting) == (0, None, 13)
    assert (await operate.load(app.store, tenants=["acme"])).runnable > 0


async def test_limits_of_tiers_and_defaults_bound_what_can_run(app: App) -> None:
    """Of tenants, their queues and their groups: more workers would not run more jobs."""
    if not app.store.capabilities.tiers:
        pytest.skip("this store keeps no tiers yet")
    platform = app.platform()
    for tenant in ("acme", "globex"):
        await put(app, 20, tenant)
        await put(app, 10, tenant, group="g")

    async def runnable(**which: Any) -> int:
        return (await operate.load(app.store, **which)).runnable

    seen = [await runnable()]
    await platform.defaults().set(max_running=9)
    seen.append(await runnable())
    await platform.tier("pro").set(max_running=25, group={"max_running": 1})
    await app.tenant("acme").scope().set(tier="pro")
    seen.append(await runnable())
    await platform.defaults().set(queue={"max_running": 4})
    seen += [await runnable(), await runnable(tenants=["acme"])]
    await app.tenant("acme").queue("sums").set(max_running=29)
    seen.append(await runnable(tenants=["acme"]))

    assert seen == [60, 18, 9 + 21, 4 + 4, 4, 21]


@pytest.mark.parametrize(
    ("error", "said"), [(StoreError, 20), (StoreUnavailable, None)], ids=["forbidden", "away"]
)
async def test_a_reader_who_may_not_see_tiers_gets_the_load_without_them(
    app: App, monkeypatch: pytest.MonkeyPatch, error: type[StoreError], said: int | None
) -> None:
    """P19: a service tells tiers to the platform only. A store that is away is an error, though."""
    await put(app, 20)
    asked = app.store.settings

    async def settings(*puts: Any, under: str | None = None, **more: Any) -> Any:
        if under == "tier/":
            raise error(store="the service", why="not allowed")
        return await asked(*puts, under=under, **more)

    monkeypatch.setattr(app.store, "settings", settings)
    if said is None:
        with pytest.raises(error):
            await operate.load(app.store)
    else:
        assert (await operate.load(app.store)).runnable == said
