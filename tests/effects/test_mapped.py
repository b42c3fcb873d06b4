"""`exactly_once` on a store that encrypts: the result is encrypted, and nothing waits inside."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from tests.effects.conftest import Place
from tests.effects.test_exactly_once import TAKE, Opened, write

from holdfast import App, Context, State, SyncContext
from holdfast.core.mapped import MARK
from holdfast.effects import exactly_once
from holdfast.store import Find, Selection
from holdfast.stores import open_store
from holdfast.testing import drain

SECRET = {"paid": "marker-of-the-result"}


@pytest.fixture
def app(place: Place) -> App:
    """A second app on the same store, with keys."""
    return App(place.url, clock=place.clock, keys={"m1": b"k" * 32}, tenant="acme")


def coroutine(app: App, place: Place) -> Any:
    @app.job
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection, exactly_once(ctx, connection) as effect:
            await write(connection)
            effect.result = SECRET

    return take


def plain_function(app: App, place: Place) -> Any:
    @app.job
    def take(ctx: SyncContext[Any]) -> None:
        with closing(place.connect()) as connection, exactly_once(ctx, connection) as effect:
            connection.execute(TAKE)
            effect.result = SECRET

    return take


@pytest.mark.parametrize("made_by", [coroutine, plain_function])
async def test_the_result_is_stored_encrypted(place: Place, app: App, made_by: Any) -> None:
    """P4: the write, the completion and its encrypted result are one."""
    take = made_by(app, place)
    async with app:
        job = await app.enqueue(take())
        [run] = await drain(app)

        assert (run.answer.state, run.answer.error) == (State.COMPLETED, None)
        assert place.cents() == [70, 0]
        assert await job.wait() == SECRET
    plain = open_store(place.url, place.clock)
    await plain.open()
    page = await plain.find(Find(select=Selection(tenant="acme")))
    await plain.close()
    assert page.jobs[0].result.startswith(MARK)
    assert b"marker" not in page.jobs[0].result
