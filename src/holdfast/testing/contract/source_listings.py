"""Sources: full listings find what polls missed, and what is gone (S4.14, S4.30)."""

from __future__ import annotations

import pytest

from holdfast.context import Context
from holdfast.core.source import Item, Page
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.sourcing import Remote, Sourcing, polled


async def test_a_listing_finds_what_polls_missed_and_what_is_gone(bench: Bench) -> None:
    """S4.14, S4.30, X40: late commits below the overlap, changes of old objects, deletions."""
    sourcing = await polled(bench, *range(1, 12), reconcile=3600)
    sourcing.remote.drop(2, 7)
    sourcing.remote.put(3)
    sourcing.remote.drop(11)
    await sourcing.walk()
    assert len(sourcing.changes) == 11

    await sourcing.walk(12)

    assert sorted(sourcing.kinds()[11:]) == [
        ("deleted", "11"),
        ("deleted", "2"),
        ("deleted", "7"),
        ("updated", "3"),
    ]
    await sourcing.check()
    await sourcing.walk(24)
    await sourcing.check()
    assert len(sourcing.changes) == 15


async def test_objects_that_go_during_a_poll_are_still_told(bench: Bench) -> None:
    """S4.19: G5, no missed events: deleted between two pages, before and behind the cursor."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(*range(1, 10)), reconcile=3600)

    def page(ctx: Context, cursor: int) -> Page:
        found = sourcing.remote.items(cursor, 3)
        if cursor == 3 and 2 in sourcing.remote.objects:
            sourcing.remote.drop(2, 8)
        return Page(found)

    sourcing.fetch = page
    await sourcing.run()
    await sourcing.walk(14)

    told = sourcing.kinds()
    assert ("created", "2") in told
    assert ("deleted", "2") in told
    assert ("created", "8") not in told
    await sourcing.check()


@pytest.mark.parametrize("left", [0, 4])
async def test_a_listing_that_lacks_too_much_takes_nothing_for_gone(
    bench: Bench, left: int
) -> None:
    """P19: an empty or a torn listing is garbage, until somebody says that it is right."""
    sourcing = await polled(bench, *range(1, 11), reconcile=3600)
    had = dict(sourcing.remote.objects)
    sourcing.remote.drop(*range(1, 11 - left))

    await sourcing.walk(13)

    status = await sourcing.handle.status()
    assert status.state == "failing"
    assert status.listing_fault is not None
    assert "nothing was taken for gone" in status.listing_fault.why
    assert await sourcing.shadow() == had
    await sourcing.handle.reconcile_now(any_share=True)
    await sourcing.run()
    await sourcing.check()
    assert (await sourcing.handle.status()).state == "ok"


async def test_a_listing_that_breaks_off_takes_nothing_for_gone(bench: Bench) -> None:
    """P19: it goes on where it was, when the source is there again."""
    sourcing = await polled(bench, *range(1, 20), reconcile=3600)
    sourcing.remote.drop(2)
    broken, asked = True, []

    def page(ctx: Context, cursor: int) -> Page:
        asked.append(cursor)
        if broken and cursor == 10:
            raise OSError("reset by peer")
        return Page(sourcing.remote.items(cursor, 3))

    sourcing.fetch = page
    await sourcing.walk(12)
    assert len(sourcing.changes) == 19
    assert (await sourcing.handle.status()).listing is not None
    broken = False
    asked.clear()
    await sourcing.walk()

    assert 10 in asked
    assert 0 not in asked
    assert sourcing.kinds()[19:] == [("deleted", "2")]


async def test_what_comes_while_a_listing_goes_on_is_not_taken_for_gone(bench: Bench) -> None:
    """S4.30: an object that is made behind the listing's position, and one that is pushed."""
    sourcing = await polled(bench, *range(1, 20), reconcile=3600, deletes=1.0, overlap=100)

    def page(ctx: Context, cursor: int) -> Page:
        if cursor == 9:
            sourcing.remote.put(*({30} - sourcing.remote.objects.keys()))
        return Page(sourcing.remote.items(cursor, 3))

    sourcing.fetch = page
    await sourcing.walk(14)
    await sourcing.handle.reconcile_now()
    await sourcing.run()

    assert sourcing.kinds()[19:] == [("created", "30")]
    await sourcing.check()


async def test_tombstones_are_dropped_after_their_time(bench: Bench) -> None:
    """P15: an object that comes back after that makes a new change, not the old one again."""
    sourcing = await polled(bench, 1, 2, 3, 4, reconcile=600, keep_gone=1000)
    sourcing.remote.drop(2)
    await sourcing.walk(3)
    assert (await sourcing.handle.status()).tombstones == 1
    await sourcing.walk(6)
    assert (await sourcing.handle.status()).tombstones == 0

    sourcing.remote.put(2)
    await sourcing.walk(3)

    assert sourcing.kinds()[4:] == [("deleted", "2"), ("created", "2")]
    await sourcing.check()


async def test_an_object_that_was_made_anew_is_found_by_a_listing(bench: Bench) -> None:
    """S4.30: although its versions count from one again. A late push of its old state is not."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(1, 2, 3, 4), reconcile=600)
    known = {id: Item(id, 5, {"version": 1}) for id in sourcing.remote.objects}
    sourcing.fetch = lambda ctx, cursor: Page([one for id, one in known.items() if id > cursor][:3])
    await sourcing.handle.push(known.values())
    await sourcing.handle.push([Item(2, 6, deleted=True)])
    assert (await sourcing.handle.push([Item(2, 4, {"version": 1})])).created == 0

    known[2] = Item(2, 1, {"version": 1})
    await sourcing.run()
    await sourcing.walk(3)

    assert sourcing.kinds()[4:] == [("deleted", "2"), ("created", "2")]
    assert await sourcing.shadow() == sourcing.remote.objects
