"""Enqueue in the caller's transaction, encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.stores.postgres.test_using import by_asyncpg, by_psycopg, sync_psycopg, sync_sqlalchemy

from holdfast import App, Context
from holdfast.core.errors import KeyErased
from holdfast.encryption import stored_ring
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Desk

SECRET = "a-word-that-is-secret"


def keyed(desk: Desk) -> tuple[App, Any]:
    """An app with keys on the schema of the desk."""
    app = App(desk.url, keys={"m1": b"k" * 32})

    @app.job
    async def send(ctx: Context, to: str) -> str:
        return to

    return app, send


def payload(desk: Desk, id: str) -> bytes:
    """What the table has."""
    with psycopg.connect(desk.dsn) as connection:
        query = f'SELECT payload FROM "{desk.schema}".jobs WHERE id = %s'
        [(found,)] = connection.execute(query.encode(), (id,)).fetchall()
        return bytes(found)


@pytest.mark.parametrize("opened", [by_asyncpg, by_psycopg])
async def test_a_job_of_a_transaction_is_encrypted(desk: Desk, opened: Any) -> None:
    """Also the first of its tenant, which makes its key beside the transaction."""
    app, send = keyed(desk)
    async with app:
        tenant = app.tenant("acme")
        async with opened(desk) as connection:
            made = await tenant.enqueue(send(to=SECRET), using=connection)
        assert SECRET.encode() not in payload(desk, made.id)
        await drain(app)
        assert await made.wait() == SECRET
        await stored_ring(app.store).erase("acme")
        async with opened(desk) as connection:
            with pytest.raises(KeyErased):
                await tenant.enqueue(send(to=SECRET), using=connection)


@pytest.mark.parametrize("opened", [sync_psycopg, sync_sqlalchemy])
def test_a_job_of_a_blocking_connection_is_encrypted(server: Any, opened: Any) -> None:
    """Its key is read before, because nothing can be awaited in the thread of the connection."""
    from tests.stores.postgres.conftest import Desk

    desk = Desk(server)
    app, send = keyed(desk)
    with app.sync as bridge:
        tenant = bridge.tenant("acme")
        with opened(desk) as connection:
            made = tenant.enqueue(send(to=SECRET), using=connection)
        assert SECRET.encode() not in payload(desk, made.id)
        [found] = tenant.find().jobs
        assert found.envelope.body == b'{"to":"%s"}' % SECRET.encode()
