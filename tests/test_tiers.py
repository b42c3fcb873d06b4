"""Tiers and the platform's defaults, as a program uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.core.errors import InvalidInput, StaleSetting, StoreUnsupported
from holdfast.core.rate import rate
from holdfast.core.tiers import Effective
from holdfast.store import Claim


@pytest.fixture
async def app() -> AsyncIterator[App]:
    app = App("memory://")

    @app.job(name="noop")
    async def noop(ctx: Context) -> None: ...

    async with app:
        yield app


async def claimed(app: App, *tenants: str) -> int:
    for tenant in tenants:
        await app.tenant(tenant).enqueue_many([app.registry.named("noop").kind() for _ in range(9)])  # type: ignore[union-attr]
    claim = Claim(worker="w", nonce="n1", limit=100, lease_us=10**9)
    return len(await app.store.claim(claim))


async def test_a_tenant_has_the_defaults_until_it_is_in_a_tier(app: App) -> None:
    """The same handle for both; what nobody sets is built in."""
    platform, acme = app.platform(), app.tenant("acme").scope()
    await platform.defaults().set(max_running=2, rate="9/s")
    await platform.tier("pro").set(max_running=4, weight=3)

    before = await acme.effective()
    await acme.set(tier="pro")
    after = await acme.effective()

    assert before["max_running"] == Effective(2, "platform")
    assert before["max_queued"] == Effective(None, "built-in")
    assert before["weight"] == Effective(1, "built-in")
    assert after["max_running"] == Effective(4, "tier pro")
    assert after["weight"] == Effective(3, "tier pro")
    assert after["rate"] == Effective(rate("9/s"), "platform")
    assert await claimed(app, "acme", "globex") == 6


async def test_own_settings_are_told_as_own(app: App) -> None:
    """Of a tenant, of its queue and of a group."""
    acme = app.tenant("acme")
    await app.platform().defaults().set(queue={"max_running": 7, "rate": "5/s"})
    await acme.queue("mail").set(max_running=3)
    await acme.group("g").set(max_running=1)

    mail = await acme.queue("mail").effective()

    assert mail["max_running"] == Effective(3, "own")
    assert mail["rate"] == Effective(rate("5/s"), "platform")
    assert (await acme.group("g").effective())["max_running"] == Effective(1, "own")
    assert (await app.platform().effective())["rate"] == Effective(None, "built-in")


async def test_a_change_of_a_tier_names_only_what_it_changes(app: App) -> None:
    """None removes a value; a part of it may be named alone."""
    tier = app.platform().tier("pro")
    await tier.set(max_running=4, queue={"max_running": 2, "rate": "3/s"}, ceiling={"rate": "9/s"})

    state = await tier.set(max_running=None, queue={"rate": None}, ceiling=None)

    assert state == await tier.get()
    assert state.version == 2
    assert state.defaults.max_running is None
    assert state.defaults.queue is not None
    assert (state.defaults.queue.max_running, state.defaults.queue.rate) == (2, None)
    assert state.defaults.ceiling is None


async def test_tiers_are_listed_by_name_after_the_defaults(app: App) -> None:
    """With what they set, and their versions."""
    platform = app.platform()
    for tier in ("pro", "free"):
        await platform.tier(tier).set(weight=2)
    await platform.defaults().set(max_queued=5)

    assert [each.tier for each in await platform.tiers()] == ["", "free", "pro"]


async def test_a_tier_that_nobody_is_in_can_be_deleted(app: App) -> None:
    """One with tenants cannot, and one that does not exist is an error."""
    platform, acme = app.platform(), app.tenant("acme").scope()
    await platform.tier("pro").set(weight=2)
    await acme.set(tier="pro")
    with pytest.raises(InvalidInput, match="1 tenant is in 'pro'"):
        await platform.tier("pro").delete()
    await acme.set(tier=None)
    await platform.tier("pro").delete()

    assert await platform.tiers() == []
    with pytest.raises(InvalidInput, match="no tier 'pro'"):
        await platform.tier("pro").delete()


async def test_a_change_for_another_version_is_refused(app: App) -> None:
    """Nothing is changed."""
    tier = app.platform().tier("pro")
    await tier.set(weight=2)

    with pytest.raises(StaleSetting):
        await tier.set(expect=7, weight=3)
    assert (await tier.get()).defaults.weight == 2
    with pytest.raises(StaleSetting):
        await tier.delete(expect=7)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("max_running", {"max_running": 0}),
    ("rate", {"rate": "100"}),
    ("burst", {"burst": 3}),
    ("queue.rate", {"queue": {"rate": "1/w"}}),
    ("queue.weight", {"queue": {"weight": 1}}),
    ("queue.max_running", {"queue": {"max_running": 0}}),
    ("group.rate", {"group": {"rate": "0/s"}}),
    ("ceiling.rate", {"ceiling": {"rate": "100"}}),
    ("group.burst", {"group": {"rate": "5/s", "burst": 0}}),
    ("weigth", {"weigth": 1}),
    ("max_running", {"max_running": 9, "ceiling": {"max_running": 8}}),
    ("rate", {"rate": "9/s", "ceiling": {"rate": "8/s"}}),
    ("set", {}),
]


@pytest.mark.parametrize(("field", "changes"), BAD, ids=lambda each: str(each)[:30])
async def test_a_bad_default_is_refused_by_name(
    app: App, field: str, changes: dict[str, Any]
) -> None:
    """P15: and nothing is changed."""
    with pytest.raises(InvalidInput) as caught:
        await app.platform().defaults().set(**changes)

    assert caught.value.facts["field"] == field
    assert await app.platform().tiers() == []


async def test_a_default_above_the_ceiling_is_told_with_both_numbers(app: App) -> None:
    """Whichever of the two is changed; the tier stays as it was."""
    tier = app.platform().tier("pro")
    with pytest.raises(InvalidInput, match=r"rate: is 9/s, above the ceiling of 8/s"):
        await tier.set(rate="9/s", ceiling={"rate": "8/s"})
    await tier.set(max_running=9)

    with pytest.raises(InvalidInput, match=r"max_running: is 9, above the ceiling of 8"):
        await tier.set(ceiling={"max_running": 8})

    assert ((await tier.get()).version, (await tier.get()).defaults.ceiling) == (1, None)


async def test_an_unknown_tier_is_answered_with_the_right_word(app: App) -> None:
    """P15: the tenant stays where it is."""
    await app.platform().tier("premium").set(weight=2)

    with pytest.raises(InvalidInput, match="premium"):
        await app.tenant("acme").scope().set(tier="premum")
    with pytest.raises(InvalidInput, match="must not be empty"):
        app.platform().tier("")


@pytest.fixture
def blocking() -> Iterator[App]:
    app = App("memory://")
    with app.sync:
        yield app


def test_blocking_code_has_the_same_handles(blocking: App) -> None:
    """Without await."""
    platform = blocking.sync.platform()
    platform.defaults().set(max_running=3)
    assert platform.tier("pro").set(weight=2).version == 1
    assert [each.tier for each in platform.tiers()] == ["", "pro"]
    platform.tier("pro").delete()
    assert platform.tier("pro").get().version == 0
    found = blocking.sync.tenant("acme").scope().effective()
    assert found["max_running"] == Effective(3, "platform")


async def test_a_store_without_tiers_refuses_them(tmp_path: Any) -> None:
    """Visibly, as its capabilities say."""
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        if app.store.capabilities.tiers:
            pytest.skip("this store has them")
        with pytest.raises(StoreUnsupported, match="tiers"):
            await app.platform().defaults().set(max_running=1)
        with pytest.raises(StoreUnsupported, match="tiers"):
            await app.tenant("acme").scope().set(tier="pro")
