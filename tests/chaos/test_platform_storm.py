"""Limits over all tenants, in worker processes that are killed, while the limits change."""

from __future__ import annotations

import asyncio

import pytest
from bench.storm import KINDS, Shape, place_of, storm
from tests.servers.kinds import Missing

from holdfast.core.errors import StoreUnsupported


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_storm_exceeds_no_limit_and_leaks_no_place(kind: str) -> None:
    """P13: 8 workers, 20 tenants, a running limit and a rate over all of them, judged by the log.

    `python -m bench.storm` is the long form, and says how much of the rate was used.
    """
    try:
        with place_of(kind) as url:
            found = asyncio.run(storm(url, Shape(changes=60)))
    except Missing as missing:
        missing.end_test()
    except StoreUnsupported as refused:
        pytest.skip(str(refused))

    assert found.breaches == []
    assert found.leaked == []
    assert found.completed == found.jobs
    assert found.kills == 6
    assert found.rescued > 0
