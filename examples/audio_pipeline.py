"""Audio by reference: jobs carry references to blobs, never the sound. A flow decodes a track,
draws its waveform, measures its loudness, transcribes its parts, and publishes all of that.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import threading
import wave
from array import array
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from holdfast import (
    App,
    BlobNotFound,
    BlobRef,
    BlobsUnavailable,
    Context,
    Event,
    Fail,
    Flow,
    Job,
    JobCanceled,
    JobFailed,
    Retry,
    SyncContext,
)
from holdfast.worker import Worker

HIGH = 10
RATE = 8000
PART_S = 0.25
NOTES = {"A": 440.0, "C": 523.25, "E": 659.26}
MELODY = "ACEACEEA"

app = App("memory://", retry="brisk", blobs="memory://")
Ctx = SyncContext

full: set[str] = set()
"""Tenants without room for more blobs."""
failures = [BlobsUnavailable(bucket="memory://", why="it did not answer")]
"""How the next reads fail."""


def load(ctx: Ctx, ref: BlobRef) -> bytes:
    """A blob of the tenant of the job. If it cannot be read, the job is tried again later."""
    try:
        if failures:
            raise failures.pop()
        return ctx.blobs.read_bytes(ref)
    except BlobsUnavailable as error:
        raise Retry(f"cannot load blob {ref.id}: {error}") from error


def store(ctx: Ctx, data: bytes, media_type: str) -> BlobRef:
    """A failure to store is final: another attempt would find no room either."""
    if ctx.tenant in full:
        raise Fail("cannot store the result: no space left")
    return ctx.blobs.put(data, media_type=media_type)


# -- the jobs: no audio in their arguments, and none in their results ------------------------------


@dataclass
class Sound:
    """A reference to 16-bit samples of one channel."""

    blob: BlobRef
    rate: int
    samples: int


@dataclass
class Part:
    sound: Sound
    first: int
    last: int


started: list[str] = []
running: Counter[str] = Counter()
most: Counter[str] = Counter()
counting = threading.Lock()  # Plain functions run in threads.


def samples_of(ctx: Ctx, sound: Sound) -> array[int]:
    return array("h", load(ctx, sound.blob))


@app.job(queue="decode")
def decode(ctx: Ctx, track: BlobRef) -> Sound:
    with wave.open(io.BytesIO(load(ctx, track))) as file:
        channels, rate = file.getnchannels(), file.getframerate()
        frames = array("h", file.readframes(file.getnframes()))
    mixed = array("h", (sum(frames[n : n + channels]) // channels
                        for n in range(0, len(frames), channels)))  # fmt: skip
    return Sound(store(ctx, mixed.tobytes(), "audio/l16"), rate, len(mixed))


@app.job(queue="audio", priority=HIGH, max_retries=2)
class GenerateWaveform(Job[BlobRef]):
    """Before the other jobs of its queue, because somebody looks at a page that waits for it."""

    sound: Sound
    points: int = 100

    async def run(self, ctx: Context) -> BlobRef:
        """The blob with the highest sample of each of so many stretches."""
        started.append("waveform")
        samples = array("h", await ctx.blobs.read_bytes(self.sound.blob))
        width = max(1, len(samples) // self.points)
        peaks = [max(map(abs, samples[n : n + width])) for n in range(0, len(samples), width)]
        return await ctx.blobs.put(json.dumps(peaks).encode(), media_type="application/json")


@app.job(queue="audio")
def loudness(ctx: Ctx, sound: Sound) -> float:
    """Decibels below full scale."""
    started.append("loudness")
    samples = samples_of(ctx, sound)
    mean = sum(sample * sample for sample in samples) / len(samples)
    return round(10 * math.log10(mean / 32768**2), 1)


@app.job(queue="audio")
def split(ctx: Ctx, sound: Sound, seconds: float = PART_S) -> list[Part]:
    started.append("split")
    size = int(seconds * sound.rate)
    return [Part(sound, first, min(first + size, sound.samples))
            for first in range(0, sound.samples, size)]  # fmt: skip


@app.job(queue="transcribe")
def transcribe(ctx: Ctx, part: Part) -> str:
    """The note of one part, by how often the wave crosses zero."""
    with counting:
        running[ctx.tenant] += 1
        most[ctx.tenant] = max(most[ctx.tenant], running[ctx.tenant])
    samples = samples_of(ctx, part.sound)[part.first : part.last]
    crossings = sum((a < 0) != (b < 0) for a, b in pairwise(samples))
    pitch = crossings / 2 / (len(samples) / part.sound.rate)
    with counting:
        running[ctx.tenant] -= 1
    return min(NOTES, key=lambda note: abs(NOTES[note] - pitch))


@app.job(queue="publish")
def publish(
    ctx: Ctx, track: BlobRef, waveform: BlobRef, loudness: float, notes: list[str]
) -> BlobRef:
    """What was found becomes a blob too, with the trace that it belongs to."""
    trace = next(tag for tag in ctx.job.tags if tag.startswith("trace:"))
    facts = {"track": track.id, "waveform": waveform.id, "loudness": loudness}
    facts |= {"notes": "".join(notes), "trace": trace}
    return store(ctx, json.dumps(facts).encode(), "application/json")


@app.job(queue="decode")
def drop(ctx: Ctx, sound: Sound) -> None:
    ctx.blobs.delete(sound.blob)


# -- the flow --------------------------------------------------------------------------------------


def pipeline(name: str, track: BlobRef) -> Flow:
    """The key is that of the track, so a track that is uploaded twice is processed once."""
    flow = Flow("audio", key=f"track:{name}")
    tags = {"tags": [f"trace:{name}"]}
    sound = flow.add(decode(track=track).with_options(**tags))
    waveform = flow.add(GenerateWaveform(sound=sound.result()).with_options(**tags))
    level = flow.add(loudness(sound=sound.result()).with_options(**tags))
    parts = flow.add(split(sound=sound.result()).with_options(**tags))
    notes = flow.map(transcribe, over=parts, most=1000)
    flow.add(
        publish(
            track=track, waveform=waveform.result(), loudness=level.result(), notes=notes.results()
        ).with_options(**tags)
    )
    flow.undo(sound, drop)
    return flow


def recorded() -> bytes:
    """A WAV file: two channels, one note for each part."""
    size = int(PART_S * RATE)
    samples = array("h")
    for note in MELODY:
        for n in range(size):
            value = int(16000 * math.sin(2 * math.pi * NOTES[note] * n / RATE))
            samples.extend((value, value))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(samples.tobytes())
    return file.getvalue()


# -- three tenants ---------------------------------------------------------------------------------


async def processed(tenant: str, name: str) -> None:
    """Limited: one job of the queue `audio` at a time, two of `transcribe`."""
    acme = app.tenant(tenant)
    await acme.queue("audio").set(max_running=1)
    await acme.queue("transcribe").set(max_running=2)
    track = await acme.blobs.put(recorded(), media_type="audio/wav")
    run = await acme.start(pipeline(name, track))
    again = await acme.start(pipeline(name, track))
    status = await run.wait()
    print(f"{tenant}: {status.state}, {status.total} nodes, started once: {not again.created}")
    nodes = await run.nodes()
    published = next(node for node in nodes if node.type == "publish")
    facts = json.loads(await acme.blobs.read_bytes(await acme.wait(published.id, as_=BlobRef)))
    print(f"{facts['notes']} at {facts['loudness']} dB, {facts['trace']}")
    first = await acme.get(nodes[0].id)
    sound = await acme.wait(first.id, as_=Sound)
    print(f"decoded in attempt {first.attempt}: {sound.samples} samples by reference")
    print(f"first of its queue: {started[0]}, never more than two parts: {most[tenant] <= 2}")


async def canceled(tenant: str, name: str) -> None:
    """Somebody changes their mind when all is ready to be published: the decoded sound goes."""
    globex = app.tenant(tenant)
    await globex.queue("publish").set(max_running=1)
    await globex.queue("publish").pause("waits for approval", author="ann")
    run = await globex.start(pipeline(name, await globex.blobs.put(recorded())))
    async for event in globex.events():
        if isinstance(event, Event) and (event.type, event.kind) == ("publish", "ready"):
            break
    sound = await globex.wait((await run.nodes())[0].id, as_=Sound)
    assert await globex.blobs.read_bytes(sound.blob)
    await run.cancel()
    try:
        await run.wait()
    except JobCanceled:
        try:
            await globex.blobs.read_bytes(sound.blob)
        except BlobNotFound:
            print(f"{tenant}: {(await run.status()).state}, its sound was dropped")


async def refused(tenant: str, name: str) -> None:
    """No room to store a result: the first attempt fails for good, and nothing after it runs."""
    initech = app.tenant(tenant)
    track = await initech.blobs.put(recorded())
    full.add(tenant)
    run = await initech.start(pipeline(name, track))
    try:
        await run.wait()
    except JobFailed:
        first, *others = [node.state for node in await run.nodes()]
        print(f"{tenant}: {first} by a full bucket, so are {others.count(first)} nodes after it")


async def main() -> None:
    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        await processed("acme", "t1")
        await canceled("globex", "t2")
        await refused("initech", "t3")
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
