"""Ceilings and pauses of the platform: stores keep them as set and do not interpret them."""

from __future__ import annotations

from holdfast.core.errors import InvalidInput, PlatformOnly
from holdfast.core.rate import rate
from holdfast.core.scope import Ceiling, Pause, Scope
from holdfast.scopes import ScopeHandle
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.inside import crawl, each_tenant_scope


@each_tenant_scope
async def test_a_ceiling_holds_at_once_and_a_tenant_stays_below_it(
    bench: Bench, scope: Scope
) -> None:
    """P13, P19: the limit beside it is what claims keep to, whoever sets or clears it."""
    platform = ScopeHandle(bench.store, scope)
    tenant = ScopeHandle(bench.store, scope, platform=False)
    await crawl(bench, *"abcdef")

    set_to = await platform.set(ceiling={"max_running": 2, "rate": "100/s"})
    assert (set_to.settings.max_running, set_to.settings.rate) == (2, rate("100/s"))
    first = await bench.claim(10)
    for refused in (tenant.set(max_running=3), tenant.set(ceiling=None), tenant.set(rate="101/s")):
        try:
            await refused
        except (InvalidInput, PlatformOnly):
            continue
        raise AssertionError("the tenant lifted what the platform set")
    cleared = await tenant.set(max_running=None, rate=None)
    assert await bench.claim(10) == []
    raised = await platform.set(ceiling={"max_running": 4})
    second = await bench.claim(10)

    assert cleared.settings.ceiling == Ceiling(max_running=2, rate=rate("100/s"))
    assert (await platform.get()) == raised
    assert (len(first), len(second)) == (2, 2)


@each_tenant_scope
async def test_a_pause_of_the_platform_is_ended_by_the_platform(bench: Bench, scope: Scope) -> None:
    """P19: the pause stays until then, whatever else is set."""
    platform = ScopeHandle(bench.store, scope)
    tenant = ScopeHandle(bench.store, scope, platform=False)
    await crawl(bench, "a")
    paused = await platform.pause("overdue", "billing")

    for refused in (tenant.resume("ann"), tenant.pause("mine", "ann")):
        try:
            await refused
        except PlatformOnly:
            continue
        raise AssertionError("the tenant ended what the platform paused")
    limited = await tenant.set(max_running=5)
    assert await bench.claim(10) == []
    await platform.resume("billing")

    assert paused.settings.paused == Pause("overdue", "billing", platform=True)
    assert limited.settings.paused == paused.settings.paused
    assert len(await bench.claim(10)) == 1
