"""Sources: the ways in which they tell what is new, and pushes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.context import Context
from holdfast.core.errors import SourceError
from holdfast.core.source import Item, Page
from holdfast.sources import Mark
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.sourcing import Remote, Sourcing

# -- other strategies ------------------------------------------------------------------------------


async def test_a_source_may_be_ordered_by_its_updates(bench: Bench) -> None:
    """S4.13: by time and id, with a window that is read again."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(1, 2, 3, 4), strategy="updated", overlap=10)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = {1: start, 2: start, 3: start, 4: start + timedelta(seconds=1)}

    def page(ctx: Context, cursor: Mark | None) -> Page:
        order = sorted(Mark(at, str(id)) for id, at in times.items())
        found = [mark for mark in order if cursor is None or mark > cursor][:3]
        return Page(
            [
                Item(int(one.id), at=one.at, body={"version": sourcing.remote.objects[int(one.id)]})
                for one in found
            ]
        )

    sourcing.fetch = page
    await sourcing.run()
    await sourcing.walk()
    sourcing.remote.put(2, 5)
    times |= {2: start + timedelta(seconds=60), 5: start - timedelta(seconds=8)}
    await sourcing.walk()

    assert sorted(sourcing.kinds()[4:]) == [("created", "5"), ("updated", "2")]
    await sourcing.check()


async def test_a_source_may_give_tokens(bench: Bench) -> None:
    """S4.28: an event log with tombstones: the cursor is whatever the source says (X40)."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(), strategy="token", page=2)
    log = [Item(1, 1), Item(2, 2), Item(1, 3), Item(2, 4, deleted=True), Item(3, 5)]

    def page(ctx: Context, cursor: dict[str, int] | None) -> Page:
        place = cursor["offset"] if cursor else 0
        part = log[place : place + 2]
        return Page(part, next={"offset": place + len(part)})

    sourcing.fetch = page
    await sourcing.run()
    await sourcing.walk()
    assert sourcing.kinds() == [
        ("created", "1"),
        ("created", "2"),
        ("updated", "1"),
        ("deleted", "2"),
        ("created", "3"),
    ]
    assert [change.version for change in sourcing.changes][-1] == 5
    log += [Item(1, 2), Item(3, 6)]
    await sourcing.walk()

    assert sourcing.kinds()[5:] == [("updated", "3")]
    assert (await sourcing.handle.status()).cursor == {"offset": 7}


async def test_a_token_that_does_not_move_is_refused(bench: Bench) -> None:
    """P19: a source cannot keep a poll for ever."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(), strategy="token")
    sourcing.fetch = lambda ctx, cursor: Page([Item(1)], next="same", more=True)

    with pytest.raises(SourceError, match="the cursor of the same page"):
        await sourcing.once()


async def test_a_generator_gives_pages(bench: Bench) -> None:
    """S4.28: one call may bring many."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(*range(1, 9)))

    async def pages(ctx: Context, cursor: int) -> Any:
        while found := sourcing.remote.items(cursor, 3):
            sourcing.remote.requests.append(cursor)
            yield Page(found)
            cursor = int(found[-1].id)

    sourcing.source.function = sourcing.source._listing = pages
    await sourcing.once()
    await sourcing.run()

    assert sourcing.remote.requests[:3] == [0, 3, 6]
    await sourcing.check()


# -- pushes ----------------------------------------------------------------------------------------


async def test_pushed_items_are_changes_too(bench: Bench) -> None:
    """S4.29: pushed twice, and polled after that, each is told once."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(1, 2))
    pushed = [sourcing.remote.item(1), sourcing.remote.item(2)]

    first = await sourcing.handle.push(pushed)
    again = await sourcing.handle.push(pushed)

    assert (first.created, again.created, again.updated, again.items) == (2, 0, 0, 2)
    await sourcing.run()
    await sourcing.walk()
    await sourcing.check()
    await sourcing.handle.push([Item(1, deleted=True)])
    sourcing.remote.drop(1)
    await sourcing.run()
    await sourcing.check()


async def test_a_source_that_only_pushes_is_listed(bench: Bench) -> None:
    """S4.30: pushes that were lost are found."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(1, 2, 3, 4), strategy="push", reconcile=600, every=None)
    pages: dict[Any, int] = {None: 0, "a": 2}

    def page(ctx: Context, cursor: str | None) -> Page:
        found = sourcing.remote.items(pages[cursor], 2)
        return Page(found, next="a" if cursor is None else None, more=cursor is None)

    sourcing.fetch = page
    await sourcing.handle.push([sourcing.remote.item(1)])
    await sourcing.run()
    assert sourcing.kinds() == [("created", "1")]
    await sourcing.walk(2, 600)

    await sourcing.check()
    assert len(sourcing.changes) == 4


async def test_an_older_version_changes_nothing(bench: Bench) -> None:
    """S4.40: versions that are numbers only grow, whatever order they come in."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote())

    await sourcing.handle.push([Item(1, 5), Item(1, 4), Item(1, 6), Item(1, 6)])
    await sourcing.handle.push([Item(1, 7, deleted=True), Item(1, 3)])
    await sourcing.run()

    assert [change.version for change in sourcing.changes] == [5, 6, 7]
    assert sourcing.kinds() == [("created", "1"), ("updated", "1"), ("deleted", "1")]
