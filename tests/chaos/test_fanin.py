"""Wide joins under duplicates and kill -9: the callback runs once, and memory is bounded (P17)."""

from __future__ import annotations

import pytest
from bench.fanin import Found, Shape, fan_in

STORES = ("sqlite", "postgres", "redis")
WORKER_MB = 128
"""What a worker takes at most, however many children a job has."""
CLIENT_MB = 128
"""What the process that starts them takes at most. It holds all nodes of a flow, of 10,000."""


def check(found: Found) -> None:
    assert found.faults == []
    assert found.kills > 0
    assert found.doubled["ack"] > 0
    assert found.worker_mb < WORKER_MB
    assert found.client_mb < CLIENT_MB


@pytest.mark.parametrize(
    ("url", "form"), [("sqlite", "map"), ("postgres", "flow"), ("redis", "batch")], indirect=["url"]
)
async def test_a_join_calls_back_once_under_kills(url: str, form: str) -> None:
    """P17, P4: with doubled acks and enqueues, and two starts at once."""
    check(await fan_in(url, Shape(form=form, children=900)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "children"), [("map", 100_000), ("flow", 100_000), ("batch", 9_999)]
)
@pytest.mark.parametrize("url", STORES, indirect=True)
async def test_a_join_of_the_widest_calls_back_once_under_kills(
    url: str, form: str, children: int
) -> None:
    """P17, P4: the long form of the above. `python -m bench.fanin` says how long a join takes."""
    check(await fan_in(url, Shape(form=form, children=children)))
