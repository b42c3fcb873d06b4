"""An order that continues where it stopped: steps, a sleep, an approval, a job for each line."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from holdfast import App, Context
from holdfast.worker import Worker

app = App("memory://", retry="brisk")


@dataclass
class Charge:
    """What the payment provider answers."""

    id: str
    lines: list[str]


charged: list[str] = []
reserved: list[Charge] = []


async def take_payment(order: str, *, key: str) -> Charge:
    """The provider ignores a second call with the same key; here there is none."""
    charged.append(key)
    return Charge(id=f"charge of {order}", lines=["a book", "a lamp", "a chair"])


async def reserve(charge: Charge) -> int:
    """Fails once, as remote systems do."""
    reserved.append(charge)
    if len(reserved) == 1:
        raise ConnectionError("the warehouse did not answer")
    return len(charge.lines)


@app.job(queue="lines")
async def ship_line(ctx: Context, line: str) -> str:
    return f"{line} is on its way"


@app.job(queue="orders", max_attempts=5)
async def fulfil(ctx: Context, order: str) -> str:
    charge = await ctx.step("charge", take_payment, order, key=ctx.effect_key)
    number = await ctx.step("reserve", reserve, charge)
    await ctx.sleep("cooling off", seconds=0.05)
    if not await ctx.wait_for("approved", bool, timeout=604_800):
        return "not approved"
    sent = await ctx.map("lines", ship_line, charge.lines)
    ctx.log(f"{number} reserved, {len(sent)} sent")
    return "; ".join(sent)


async def main() -> None:
    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        acme = app.tenant("acme")
        job = await acme.enqueue(fulfil(order="o1"))
        async for event in acme.events(job_id=job.id):
            if getattr(event, "note", None) == "signal:approved":
                break  # It has parked to wait for the approval.
        await acme.signal(job.id, "approved", True)
        print(await acme.wait(job))
        journal = await acme.journal(job.id)
        print("steps:", ", ".join(step.name for step in journal.steps))
        print("failed attempts:", [error.message for error in journal.errors])
        print("log:", journal.log, "charged:", len(charged))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
