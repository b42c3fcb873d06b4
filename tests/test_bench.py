"""The benchmarks of scopes run, at a small size, and their figures make sense."""

from __future__ import annotations

from bench.claims import blocked_cost, depth_cost, tenants_cost
from bench.fairness import Mix, fairness
from bench.rules import RULES, rules_cost
from bench.stores import fresh


async def test_the_others_are_served_beside_a_loud_tenant_and_not_behind_it() -> None:
    """By tenants nearly all; first come first served over all, hardly any."""
    mix = Mix(loud=20_000, others=5, per_s=200, seconds=0.5, batch=100)

    quiet, fair, fifo = await fairness("memory://", mix)

    assert min(quiet.sent, fair.sent, fifo.sent) > 10
    assert fair.unserved < fair.sent / 4
    assert fifo.unserved > fair.unserved


async def test_the_costs_of_a_claim_are_measured_in_each_case() -> None:
    """Every case has had something to claim."""
    costs = [
        *await tenants_cost("memory://", 200),
        *await blocked_cost("memory://", 200),
        *await depth_cost("memory://", 2_000),
    ]

    assert len(costs) == 12
    assert all(cost.us > 0 for cost in costs)


async def test_every_rule_is_drained() -> None:
    """But for those that the store does not have."""
    found = await rules_cost("memory://", 200, 1)

    assert [one.rule for one in found] == [rule.name for rule in RULES if rule.url is None]
    assert all(one.per_s > 0 for one in found)


def test_each_part_has_a_store_of_its_own() -> None:
    """Beside the named one; memory is always new."""
    assert fresh("memory://", "x") == "memory://"
    assert fresh("sqlite:///a/b.db?events=off", "x").startswith("sqlite:///a/b-x-")
    assert fresh("sqlite:///a/b.db?events=off", "x").endswith(".db?events=off")
