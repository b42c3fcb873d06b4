"""A row that remembers the newest run: older ones write no more (P3)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import psycopg
import pytest
from tests.effects.conftest import Place

from holdfast import Context
from holdfast.core.errors import InvalidInput
from holdfast.effects import StaleFence, guard, guard_sync
from holdfast.testing import drain

ROW = {"id": 1}


def fence_of(place: Place, id: int = 1) -> Any:
    with closing(place.connect()) as connection:
        found = connection.execute(f"SELECT fence FROM accounts WHERE id = {id}").fetchone()
    return found[0]


async def test_a_row_takes_equal_and_higher_fences_and_refuses_lower_ones(place: Place) -> None:
    """A run may write again; one that came before it may not."""
    with closing(place.connect()) as connection:
        for fence in (5, 5, 9):
            guard_sync(connection, "accounts", ROW, fence)
        connection.commit()
        with pytest.raises(StaleFence, match="a newer run has written the row") as refused:
            guard_sync(connection, "accounts", ROW, 8)
        connection.rollback()

    assert fence_of(place) == 9
    assert (refused.value.found, refused.value.fence) == (9, 8)


async def test_a_row_that_is_missing_is_made_or_refused(place: Place) -> None:
    """A table of fences alone is filled as it goes."""
    place.run("CREATE TABLE fences (job text, part integer, at bigint, PRIMARY KEY (job, part))")
    key = {"job": "j1", "part": 2}
    try:
        with closing(place.connect()) as connection:
            with pytest.raises(InvalidInput, match="insert=True"):
                guard_sync(connection, "fences", key, 3, column="at")
            guard_sync(connection, "fences", key, 3, column="at", insert=True)
            with pytest.raises(StaleFence):
                guard_sync(connection, "fences", key, 2, column="at", insert=True)
            connection.commit()
            rows = connection.execute("SELECT job, part, at FROM fences").fetchall()
    finally:
        place.run("DROP TABLE fences")

    assert [tuple(row) for row in rows] == [("j1", 2, 3)]


async def test_a_run_that_lost_its_lease_writes_nothing_to_a_guarded_row(place: Place) -> None:
    """P3: two runs of one job, the older one comes to its write last."""
    released, taken = asyncio.Event(), asyncio.Event()
    refused: list[StaleFence] = []

    @place.app.job
    async def pay(ctx: Context[Any]) -> None:
        if ctx.attempt == 1:
            taken.set()
            await released.wait()
        with closing(place.connect()) as connection:
            try:
                guard_sync(connection, "accounts", ROW, ctx.fence)
            except StaleFence as error:
                refused.append(error)
                return
            connection.execute(f"UPDATE accounts SET cents = {ctx.attempt} WHERE id = 1")
            connection.commit()

    await place.app.tenant("acme").enqueue(pay())
    first = asyncio.create_task(drain(place.app))
    await taken.wait()
    place.clock.advance(61)
    await drain(place.app)
    released.set()
    await first

    assert (len(refused), place.cents()) == (1, [2, 0])


@pytest.mark.parametrize("where", ["postgres15"], indirect=True)
async def test_guards_wait_for_each_other(place: Place) -> None:
    """Between the guard and the commit nobody else passes."""
    async with (
        await psycopg.AsyncConnection.connect(place.dsn) as one,
        await psycopg.AsyncConnection.connect(place.dsn) as two,
    ):
        await guard(one, "accounts", ROW, 9)
        waiting = asyncio.create_task(guard(two, "public.accounts", ROW, 8))
        await asyncio.sleep(0)
        await one.commit()
        with pytest.raises(StaleFence):
            await waiting
        with pytest.raises(InvalidInput, match="await guard"):
            guard_sync(two, "accounts", ROW, 10)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"table": 'a"; DROP TABLE accounts; --'}, "table"),
        ({"table": "a.b.c"}, "table"),
        ({"key": {}}, "key"),
        ({"key": {"id = 1 OR 1": 1}}, "key"),
        ({"column": "fence; --"}, "column"),
        ({"fence": -1}, "fence"),
        ({"fence": 2**60}, "fence"),
    ],
    ids=str,
)
async def test_names_that_are_no_names_are_refused(
    place: Place, wrong: dict[str, Any], field: str
) -> None:
    """They are part of the statement; values never are."""
    good: dict[str, Any] = {"table": "accounts", "key": ROW, "fence": 1, "column": "fence"}
    with closing(place.connect()) as connection:
        with pytest.raises(InvalidInput, match=field):
            guard_sync(connection, **(good | wrong))
        guard_sync(connection, "accounts", {"id": 2}, 1)
