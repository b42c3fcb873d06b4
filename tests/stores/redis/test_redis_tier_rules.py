"""The rules of tiers in Lua are those of core/tiers.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.rate import Rate
from holdfast.core.scope import NO_SETTINGS, Ceiling, GroupRules, ScopeKind, ScopeSettings
from holdfast.core.tiers import Defaults, Layer, LimitRules, effective, name_of
from holdfast.store import Put
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import job, queue_of, tenant_of
from holdfast.testing.contract.tiers import FREE, PRO, layer


def some_limits(rng: random.Random) -> dict[str, Any]:
    """Of a scope: a limit, a rate, both or none."""
    return {
        "max_running": rng.choice((None, None, 1, 2, 3, 5)),
        "rate": rng.choice((None, None, *(Rate(1, 3600 * SECOND, n) for n in (1, 2, 4)))),
    }


def some_defaults(rng: random.Random) -> dict[str, Any]:
    """The fields of a tier, or of the platform's defaults. A limit has a ceiling only elsewhere:
    one that is above its own would be refused.
    """
    has_ceiling = rng.random() < 0.4
    return {
        **({"ceiling": Ceiling(**some_limits(rng))} if has_ceiling else some_limits(rng)),
        "max_queued": rng.choice((None, 3, 5)),
        "queue": rng.choice((None, LimitRules(**some_limits(rng)))),
        "group": rng.choice((None, LimitRules(**some_limits(rng)))),
    }


def most_of(limits: Any) -> int:
    """How many jobs may start, if the tokens of a rate do not come back meanwhile."""
    if limits is None:
        return 100
    return min(
        100 if limits.max_running is None else limits.max_running,
        100 if limits.rate is None else limits.rate.burst,
    )


@pytest.mark.parametrize("seed", range(40))
async def test_the_values_that_count_are_those_of_the_rules(bench: Bench, seed: int) -> None:
    """P13: own settings, tier, defaults and ceilings together, as core/tiers.py says."""
    rng = random.Random(seed)
    layers = {PRO: some_defaults(rng), "": some_defaults(rng)}
    for name, fields in layers.items():
        await layer(bench, name, **fields)
    own = ScopeSettings(tier=PRO, **some_limits(rng))
    of_queue = ScopeSettings(groups=rng.choice((None, GroupRules(max_running=2))))
    await bench.configure(tenant_of(), tier=PRO, max_running=own.max_running, rate=own.rate)
    if of_queue != NO_SETTINGS:
        await bench.configure(queue_of(), groups=of_queue.groups)
    found = [Layer(name, Defaults(**fields)) for name, fields in layers.items()]
    whole = effective(own, ScopeKind.TENANT, found)
    queue = effective(of_queue, ScopeKind.QUEUE, found)

    added = await bench.add(*(job(f"j{n}", group="g") for n in range(6)))

    cap = 6 if whole.max_queued is None else min(6, whole.max_queued)
    assert sum(each.created for each in added) == cap
    most = min(cap, most_of(whole), most_of(queue), most_of(queue.groups))
    assert len(await bench.claim(10)) == most


async def test_no_tier_is_made_beyond_their_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: refused, and nothing is changed."""
    monkeypatch.setattr("holdfast.core.bounds.TIERS_MAX", 2)
    await layer(bench, "", weight=1)
    await layer(bench, PRO, weight=1)

    with pytest.raises(InvalidInput, match="no more may be"):
        await layer(bench, FREE, weight=1)
    await layer(bench, PRO, weight=2)

    assert len(await bench.store.settings(under=name_of(""))) == 2


async def test_a_value_that_is_null_is_none(bench: Bench) -> None:
    """P7, P15: what a tenant stores, also in JSON that we would not write, fails no claim."""
    await bench.store.settings(
        [
            Put(tenant_of().name, b'{"max_running": null, "rate": null}', 0),
            Put(queue_of().name, b'{"groups": {"max_running": null}}', 0),
            Put(name_of(""), b'{"max_running": null, "queue": null, "weight": 2}', 0),
        ]
    )
    await bench.put("a", "b", group="g")

    assert len(await bench.claim(10)) == 2
