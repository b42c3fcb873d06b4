"""A job as a class, with a schema that has grown: old payloads are upgraded when they are read."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import App, Context, InvalidInput, Job
from holdfast.worker import Worker

app = App("memory://")


def add_resolution(old: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had no resolution."""
    return {**old, "resolution": 1000}


@app.job(queue="audio", priority=5, version=2, upgrades={1: add_resolution})
class GenerateWaveform(Job):
    track_id: str
    blob_id: str  # A reference, not the audio.
    resolution: int = 2000

    async def run(self, ctx: Context) -> dict[str, Any]:
        ctx.progress(1, 2, "drawing")
        return {"track": self.track_id, "points": self.resolution}


async def main() -> None:
    try:
        GenerateWaveform(track_id="t1", blob_id=7)  # type: ignore[arg-type]
    except InvalidInput as error:
        print("refused at the call:", error)

    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        acme = app.tenant("acme")
        job = await acme.enqueue(GenerateWaveform(track_id="t1", blob_id="b1"), delay=0.05)
        print((await acme.get(job.id)).state)
        print(await acme.wait(job.id))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
