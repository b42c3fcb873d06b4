"""A nightly report: a schedule in the code, and one for each customer that is set live.

Run it:  python examples/nightly_report.py

It travels through two nights on a clock of its own, so it takes no time.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from holdfast import App, Context
from holdfast.core.clock import instant
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain

clock = ManualClock(instant(datetime(2026, 11, 17, 12, tzinfo=UTC)))
app = App(open_store("memory://", clock), tenant="main")


@app.schedule("0 6 * * mon-fri", zone="Europe/Berlin", overlap="skip", missed="one", within=3600)
async def report(ctx: Context) -> None:
    """Runs on working days at six; `ctx.tick` is that instant, however late the run is."""
    assert ctx.tick is not None
    print(f"report of {ctx.tick:%A %H:%M} UTC")


@app.job(queue="sync")
async def sync(ctx: Context, shop: int) -> None:
    print(f"sync of shop {shop} for {ctx.tenant}")


async def main() -> None:
    async with app:
        await drain(app)  # A worker does the same: it registers the schedules of the code.
        acme = app.tenant("acme")
        schedule = acme.schedule("sync:42")
        await schedule.set(sync(shop=42), every=24 * 3600, phase=17)
        for at in await app.schedule("report").next(2):
            clock.set(instant(at))
            await drain(app)
        await schedule.pause("vendor down", author="ops")
        shown = await schedule.backfill(
            datetime(2026, 11, 10, tzinfo=UTC), datetime(2026, 11, 12, tzinfo=UTC)
        )
        print(f"a backfill would make {shown.created} jobs")
        await schedule.delete()


if __name__ == "__main__":
    asyncio.run(main())
