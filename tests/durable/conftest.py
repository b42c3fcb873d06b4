"""An app on a store of its own, on a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import App
from holdfast.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def app(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[App]:
    """The handlers of these tests on a store that encodes nothing, and on one that does."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    app = App(url, clock=clock)
    async with app:
        yield app
