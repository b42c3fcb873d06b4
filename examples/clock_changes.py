"""What schedules do on days with a clock change: a run for each text, printed as a table.

Run it:  python examples/clock_changes.py

The guide of schedules shows what it prints.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from holdfast import App, Context
from holdfast.core.clock import instant
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain

BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN, SPRING = date(2026, 10, 25), date(2026, 3, 29)
CRONS = (
    "30 2 * * *",
    "*/30 2 * * *",
    "0 2,3 * * *",
    "0 */2 * * *",
    "@hourly",
    "@daily",
)


async def times(cron: str, day: date) -> list[str]:
    """The local times of the jobs that the schedule made on this day."""
    start = instant(datetime.combine(day, time(), BERLIN))
    end = instant(datetime.combine(day + timedelta(days=1), time(), BERLIN))
    clock = ManualClock(start - 60_000_000)
    app = App(open_store("memory://", clock), tenant="main")
    seen: list[datetime] = []

    @app.schedule(cron, zone="Europe/Berlin")
    async def run(ctx: Context) -> None:
        assert ctx.tick is not None
        seen.append(ctx.tick)

    async with app:
        await drain(app)
        while clock.now() < end - 1:
            clock.set(min(clock.now() + 600_000_000, end - 1))
            await drain(app)
    assert seen == sorted(set(seen))
    seen = [at for at in seen if instant(at) >= start]
    return [at.astimezone(BERLIN).strftime("%H:%M") for at in seen]


def cell(found: list[str]) -> str:
    """How many jobs, and when; of many only how many."""
    if not found:
        return "none"
    return f"{len(found)}" if len(found) > 4 else f"{len(found)}: {', '.join(found)}"


async def main() -> None:
    print("| cron, in Europe/Berlin | 25 October 2026, 25 hours | 29 March 2026, 23 hours |")
    print("|---|---|---|")
    for cron in CRONS:
        autumn, spring = [cell(await times(cron, day)) for day in (AUTUMN, SPRING)]
        print(f"| `{cron}` | {autumn} | {spring} |")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main())
