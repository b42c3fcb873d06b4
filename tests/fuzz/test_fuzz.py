"""The fuzzing loop, for a few seconds: `./scripts/fuzz` runs it for as long as you like."""

from __future__ import annotations

import pytest
from tests.fuzz.campaign import Plan, campaign


@pytest.mark.parametrize(
    ("store", "seconds"),
    [
        ("sqlite", 6.0),
        pytest.param("postgres", 60.0, marks=pytest.mark.slow),
        pytest.param("redis", 60.0, marks=pytest.mark.slow),
    ],
)
async def test_a_hostile_tenant_breaks_nothing_for_another(store: str, seconds: float) -> None:
    """P19: no 5xx, no promise broken, and the other tenant's jobs each run once."""
    plan = Plan(store=store, seconds=seconds, quiet_s=1.0, schema=False)

    found = await campaign(plan, lambda text: None)

    assert found.faults == []
    assert found.beside.jobs > 0
    assert sum(found.report.statuses.values()) > 20 * seconds
