"""Sources: what a source holds is polled, kept as a shadow, and told as jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.context import Context, Retry
from holdfast.core.edge_bounds import SHADOW_BODY_MAX, SOURCE_RUN_PAGES
from holdfast.core.errors import SourceError, SourceNotFound
from holdfast.core.job import Completed
from holdfast.core.source import Item, Page
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding, tenant_of
from holdfast.testing.contract.sourcing import CHANGES, NAME, POLLS, Remote, Sourcing, polled

# -- polls -----------------------------------------------------------------------------------------


async def test_each_object_becomes_a_job(bench: Bench) -> None:
    """S4.28, S4.29: page by page; what was told is not told again."""
    sourcing = await polled(bench, *range(1, 8))

    assert sourcing.kinds() == [("created", str(id)) for id in range(1, 8)]
    assert sourcing.remote.requests == [0, 3, 6]
    await sourcing.walk(2)
    assert len(sourcing.changes) == 7
    await sourcing.check()


async def test_a_poll_reads_only_what_is_new(bench: Bench) -> None:
    """S4.11, S4.12: after the highest id that it has seen."""
    sourcing = await polled(bench, 1, 2, 3, 4)
    sourcing.remote.put(7, 9)

    await sourcing.walk(2)

    assert sourcing.remote.requests[2:] == [4, 9]
    await sourcing.check()
    assert (await sourcing.handle.status()).cursor == 9


async def test_the_overlap_finds_ids_that_were_committed_late(bench: Bench) -> None:
    """S4.13, S4.41: and objects of the window that have changed."""
    sourcing = await polled(bench, 1, 2, 4, 8, overlap=5)
    sourcing.remote.put(5, 6, 8)

    await sourcing.walk()

    assert sourcing.remote.requests[2] == 3
    assert sourcing.kinds()[4:] == [("created", "5"), ("created", "6"), ("updated", "8")]
    await sourcing.check()


async def test_a_source_that_was_away_is_caught_up(bench: Bench) -> None:
    """S4.41: errors are told with the source, the poll is retried, and no change is lost."""
    sourcing = await polled(bench, 1, 2)
    sourcing.remote.put(3, 4, 1)

    def away(ctx: Context, cursor: Any) -> Page:
        raise OSError("connection refused")

    sourcing.fetch = away
    await sourcing.walk()
    status = await sourcing.handle.status()
    assert (status.state, status.polled_at is not None) == ("failing", True)
    assert status.fault is not None
    assert (status.fault.code, status.fault.why) == ("OSError", "connection refused")
    sourcing.fetch = None
    await sourcing.walk()

    assert (await sourcing.handle.status()).state == "ok"
    assert sourcing.kinds()[2:] == [("created", "3"), ("created", "4")]


async def test_a_poll_waits_as_long_as_the_source_says(bench: Bench) -> None:
    """S4.22: a Retry-After of the outbound client is an error with a delay."""
    sourcing = await polled(bench, 1)

    def busy(ctx: Context, cursor: Any) -> Page:
        raise Retry("429", after=90)

    sourcing.fetch = busy
    await sourcing.walk()
    sourcing.fetch = None
    sourcing.remote.put(2)
    await sourcing.walk(1, 89)
    assert len(sourcing.changes) == 1
    await sourcing.walk(1, 2)
    assert len(sourcing.changes) == 2


async def test_a_long_poll_lets_others_have_their_turn(bench: Bench) -> None:
    """P15, P19: one run reads so many pages, and the next one goes on behind them."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(*range(1, 3 * SOURCE_RUN_PAGES + 5)))
    await sourcing.once()

    status = await sourcing.handle.status()
    assert (status.state, status.cursor) == ("behind", 3 * SOURCE_RUN_PAGES)
    await sourcing.run()

    await sourcing.check()
    assert (await sourcing.handle.status()).state == "ok"


async def test_a_source_that_never_ends_is_bounded(bench: Bench) -> None:
    """P15, P19: a poll ends after its pages, and says so; the next one goes on."""
    sourcing = await polled(bench, *range(1, 30), pages=4)

    status = await sourcing.handle.status()

    assert (status.cursor, status.state) == (12, "failing")
    assert status.fault is not None
    assert "4 pages" in status.fault.why
    await sourcing.walk(2)
    await sourcing.check()
    assert (await sourcing.handle.status()).fault is None


GARBAGE: list[tuple[str, Callable[[Any], Any]]] = [
    ("must be holdfast.sources.Page", lambda cursor: [Item(1)]),
    ("must be holdfast.sources.Page", lambda cursor: None),
    ("must be a list", lambda cursor: Page("items")),
    ("must be holdfast.sources.Item", lambda cursor: Page([{"id": 1}])),
    ("id: must be a number or text", lambda cursor: Page([Item(None)])),  # type: ignore[arg-type]
    ("id: must not be empty", lambda cursor: Page([Item("")])),
    ("is not a number from 1", lambda cursor: Page([Item("nine")])),
    ("is not a number from 1", lambda cursor: Page([Item(-5)])),
    ("at most 1000", lambda cursor: Page([Item(id) for id in range(10, 1020)])),
    ("bytes, at most", lambda cursor: Page([Item(9, body="x" * SHADOW_BODY_MAX)])),
    ("cannot be written as JSON", lambda cursor: Page([Item(9, body=object())])),
    ("goes backwards", lambda cursor: Page([Item(9), Item(1)])),
    ("repeats", lambda cursor: Page([Item(2)], more=True)),
    ("the page is empty", lambda cursor: Page([], more=True)),
]


@pytest.mark.parametrize(("why", "page"), GARBAGE, ids=[f"{n}" for n in range(len(GARBAGE))])
async def test_garbage_changes_nothing(bench: Bench, why: str, page: Callable[[Any], Any]) -> None:
    """P19: no row, no job and no step of the cursor; the source says what was wrong."""
    sourcing = await polled(bench, 1, 2)
    sourcing.fetch = lambda ctx, cursor: page(cursor)

    with pytest.raises(SourceError) as caught:
        await sourcing.once()

    assert why in str(caught.value)
    status = await sourcing.handle.status()
    assert (status.cursor, status.totals.created, status.state) == (2, 2, "failing")
    await sourcing.check()


async def test_a_page_that_takes_too_long_is_given_up(bench: Bench) -> None:
    """P15: the time-out is told as the fault."""
    sourcing = await polled(bench, 1, page_timeout=0.01)

    async def slow(ctx: Context, cursor: Any) -> Page:
        await asyncio.Event().wait()
        raise AssertionError

    sourcing.fetch = slow
    with pytest.raises(SourceError, match="took longer"):
        await sourcing.once()


# -- room, pauses and ends -------------------------------------------------------------------------


async def test_a_full_tenant_waits_without_a_loss(bench: Bench) -> None:
    """P19: what has room is made, the cursor stays until all of a page is, and the poll waits."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(*range(1, 10)), page=9)
    await sourcing.run()
    await bench.configure(tenant_of(), max_queued=4)

    for _ in range(20):
        await sourcing.walk(1, 30)

    await sourcing.check()
    assert len(sourcing.changes) == 9
    assert (await sourcing.handle.status()).cursor == 9


async def test_a_paused_source_is_not_read(bench: Bench) -> None:
    """S4.31: until it is resumed; then nothing is missing."""
    sourcing = await polled(bench, 1)
    await sourcing.handle.pause("they migrate", "ann")
    sourcing.remote.put(2)
    sourcing.remote.requests.clear()
    await sourcing.walk(2)

    status = await sourcing.handle.status()
    assert (sourcing.remote.requests, status.state) == ([], "paused")
    assert status.paused is not None
    assert (status.paused.reason, status.paused.author) == ("they migrate", "ann")
    await sourcing.handle.resume()
    await sourcing.walk()
    await sourcing.check()


async def test_a_reset_reads_everything_again_and_tells_nothing_twice(bench: Bench) -> None:
    """S4.40: the shadow knows what was told."""
    sourcing = await polled(bench, 1, 2, 3, 4)
    await sourcing.handle.reset()
    sourcing.remote.put(2)

    await sourcing.walk()

    assert 0 in sourcing.remote.requests[2:]
    assert sourcing.kinds()[4:] == [("updated", "2")]
    await sourcing.check()


async def test_a_deleted_source_that_comes_back_tells_all_again(bench: Bench) -> None:
    """P12: the jobs of its changes have new ids, although the old ones may still be kept."""
    sourcing = await polled(bench, *range(1, 6))

    assert await sourcing.handle.delete() == 5

    with pytest.raises(SourceNotFound):
        await Sourcing(bench, Remote()).app.tenant(ACME).source("other").status()
    await sourcing.handle.poll_now()
    await sourcing.run()
    assert len(sourcing.changes) == 10
    assert await sourcing.shadow() == sourcing.remote.objects


async def test_changes_can_be_applied_in_order(bench: Bench) -> None:
    """P9: one at a time, by their numbers."""
    bench.needs("sources")
    bench.needs("scopes")
    sourcing = Sourcing(bench, Remote(), ordered=True)
    await sourcing.handle.push([Item(id, 1) for id in range(1, 6)])
    await sourcing.handle.push([Item(id, 2) for id in range(1, 6)])

    leases = await bench.claim(10, queues=(CHANGES,))
    assert len(leases) == 1
    await bench.end(leases[0], Completed())
    await sourcing.run()

    numbers = [change.number for change in sourcing.changes]
    assert numbers == sorted(numbers) == list(range(2, 11))


async def test_a_poll_that_is_asked_for_twice_is_one(bench: Bench) -> None:
    """P12."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(1))

    first = await sourcing.handle.poll_now()
    again = await sourcing.handle.poll_now()

    assert (first.created, again.created, first.id) == (True, False, again.id)
    found = await bench.store.find(finding(ACME, queues=(POLLS,)))
    assert [job.type for job in found.jobs] == [f"poll/{NAME}"]


async def test_a_source_of_many_tenants_has_a_shadow_for_each(bench: Bench) -> None:
    """P7, P19: each with a cursor of its own; one that fails, fails alone."""
    bench.needs("sources")
    lists = {"acme": Remote(1, 2), "globex": Remote(5)}
    sourcing = Sourcing(bench, Remote(), tenants=lambda: list(lists))

    def page(ctx: Context, cursor: int) -> Page:
        if ctx.tenant == "globex" and not lists["acme"].objects.get(3):
            raise OSError("away")
        return Page(lists[ctx.tenant].items(cursor, 3))

    sourcing.fetch = page
    await sourcing.run()
    await sourcing.walk()
    assert len(sourcing.changes) == 2
    lists["acme"].put(3)
    await sourcing.walk(2)

    assert sorted(change.id for change in sourcing.changes) == ["1", "2", "3", "5"]
    status = await sourcing.app.tenant("globex").source(NAME).status()
    assert (status.cursor, status.objects, status.state) == (5, 1, "ok")
