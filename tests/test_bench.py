"""The benchmarks of scopes run, at a small size, and their figures make sense."""

from __future__ import annotations

import pytest
from bench import parked
from bench.claims import blocked_cost, depth_cost, tenants_cost
from bench.fairness import Mix, fairness
from bench.places import place
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


async def test_claims_find_nothing_of_parked_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """P16: `measure` refuses a claim that finds anything else."""
    monkeypatch.setattr(parked, "WATCH_S", 0.1)
    monkeypatch.setattr(parked, "START_S", 0.1)
    with place("sqlite-normal") as where:
        before, after = await parked.measure(where.fresh("parked"), where, 1_500)

    assert (before.parked, after.parked) == (0, 1_500)
    assert min(before.vain_us, before.one_us, after.vain_us, after.one_us) > 0
