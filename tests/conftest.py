"""What all tests share: the same examples on every machine, so that a failure can be had again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.servers.kinds import Servers

pytest.register_assert_rewrite("holdfast.testing.contract")

settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HOLDFAST_HYPOTHESIS", "fixed"))


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The private servers of this run, started when asked for."""
    from tests.servers.kinds import Servers

    with Servers() as servers:
        yield servers
