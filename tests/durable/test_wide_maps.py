"""Maps of more children than one call makes, whose parents are cut off while they make them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast import App, Context, RetryPolicy
from holdfast.core.bounds import BATCH_MAX
from holdfast.core.errors import StoreUnavailable
from holdfast.stores import open_store
from holdfast.testing import Faults, ManualClock, drain

WIDE = 2 * BATCH_MAX + 500


class Wide:
    """An app whose parents make so many children, and whose store can fail."""

    def __init__(self, clock: ManualClock) -> None:
        self.faults = Faults(open_store("memory://", clock))
        self.app = App(self.faults.store)
        self.acme = self.app.tenant("acme")
        self.number = WIDE
        self.ran: list[int] = []

        @self.app.job(queue="children")
        async def child(ctx: Context, number: int) -> int:
            self.ran.append(number)
            return number

        @self.app.job(queue="parents", retry=RetryPolicy(base_s=0.0, cap_s=0.0))
        async def parent(ctx: Context) -> int:
            found = await ctx.map("all", child, range(self.number))
            await ctx.step("after", len, found)
            return sum(found)

        self.child, self.parent = child, parent

    def cut_off(self, first: int) -> None:
        """Fails the call that makes the children from this number on."""
        self.faults.fail_if(
            "enqueue",
            lambda jobs: getattr(jobs[0].envelope.body, "number", None) == first,
            StoreUnavailable(store="memory", why="told to fail"),
        )

    def made(self) -> list[int]:
        """How many jobs each call was to make."""
        return [len(args[0]) for args in self.faults.calls["enqueue"]]


@pytest.fixture
async def wide(clock: ManualClock) -> AsyncIterator[Wide]:
    wide = Wide(clock)
    async with wide.app:
        yield wide


async def test_a_wide_map_goes_on_where_the_last_attempt_was(wide: Wide) -> None:
    """P16, P17: what was made is not made again, so a parent that is cut off often gets done."""
    job = await wide.acme.enqueue(wide.parent())
    wide.cut_off(2 * BATCH_MAX)
    await drain(wide.app, queues=["parents"], max_jobs=1)
    wide.faults.heal()
    await drain(wide.app)

    assert await wide.acme.wait(job) == sum(range(WIDE))
    assert wide.made() == [1, BATCH_MAX, BATCH_MAX, 500, 500]
    assert sorted(wide.ran) == list(range(WIDE))


async def test_a_replay_makes_all_children_of_its_own(wide: Wide, clock: ManualClock) -> None:
    """P17: it has the positions of its origin, whose children are others."""
    job = await wide.acme.enqueue(wide.parent())
    wide.cut_off(2 * BATCH_MAX)
    await drain(wide.app, queues=["parents"], max_jobs=1)
    wide.faults.heal()
    clock.advance(1)
    await drain(wide.app)

    wide.number = BATCH_MAX
    replay = await wide.acme.replay(job.id, from_step="after")
    wide.cut_off(0)
    await drain(wide.app, queues=["parents"], max_jobs=1)
    wide.faults.heal()
    await drain(wide.app)

    assert await wide.acme.wait(replay) == sum(range(BATCH_MAX))


async def test_a_small_map_leaves_no_position(wide: Wide) -> None:
    """P16: it counts once among the steps of a job."""
    wide.number = BATCH_MAX
    job = await wide.acme.enqueue(wide.parent())
    await drain(wide.app)

    journal = await wide.acme.journal(job.id)
    assert journal.positions == []
