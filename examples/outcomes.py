"""What a handler can say beyond success: retry later, give up, snooze. And the dead letters."""

from __future__ import annotations

import asyncio

from holdfast import App, Context, Fail, JobFailed, Retry, RetryPolicy, Snooze
from holdfast.worker import Worker

app = App("memory://", rescue_every_s=0.05)
seen: dict[str, int] = {}


@app.job(max_attempts=3, retry=RetryPolicy(base_s=0.01, cap_s=0.01))
async def call_api(ctx: Context, how: str) -> str:
    runs = seen[how] = seen.get(how, 0) + 1
    if how == "busy" and runs < 3:
        raise Retry("429, try again", after=0.02)
    if how == "not yet" and runs == 1:
        raise Snooze(0.02)
    if how == "gone":
        raise Fail("410, it will never work")
    return f"{how}: done in attempt {ctx.attempt}, run {runs}"


async def main() -> None:
    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        acme = app.tenant("acme")
        for how in ("busy", "not yet", "gone"):
            job = await acme.enqueue(call_api(how=how))
            try:
                print(await acme.wait(job.id))
            except JobFailed as failed:
                print(f"{how}: {failed.reason}")
                print("replayed as a new job:", await acme.replay(job.id) != job.id)
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
