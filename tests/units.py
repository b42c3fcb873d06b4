"""Gives tests to the workers of xdist in units that belong together (`tests.plan.unit_of`)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.plan import unit_of
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """A worker that has finished a unit gets the next one, in the order of the collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class Units:
    """A plugin of the process that directs the workers."""

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Scheduler:
        return Scheduler(config, log)
