"""An app on a store of its own, on a manual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast import App
from holdfast.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory://"])
async def app(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[App]:
    app = App(request.param, clock=clock)
    async with app:
        yield app
