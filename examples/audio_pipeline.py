"""Audio by reference: jobs carry ids of blobs, never the sound. A flow decodes a track, draws its
waveform, measures its loudness, transcribes its parts, and publishes all of that at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import math
import threading
import wave
from array import array
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast import App, Context, Event, Fail, Flow, Job, JobCanceled, JobFailed, Retry
from holdfast.worker import Worker

HIGH = 10
RATE = 8000
PART_S = 0.25
NOTES = {"A": 440.0, "C": 523.25, "E": 659.26}
MELODY = "ACEACEEA"


# -- the blobs -------------------------------------------------------------------------------------


@dataclass
class Blobs:
    """A folder in place of a blob store. Each tenant has blobs of its own, with metadata."""

    root: Path = Path()
    full: set[str] = field(default_factory=set)
    """Tenants without room for more."""
    failures: int = 1
    """How many of the next reads fail."""

    def put(self, tenant: str, data: bytes) -> str:
        """Stores a blob; the same data has the same id, so a repeated job stores nothing twice."""
        if tenant in self.full:
            raise OSError("no space left")
        id = hashlib.sha256(data).hexdigest()[:12]
        self._path(tenant, id).parent.mkdir(exist_ok=True)
        self._path(tenant, id).write_bytes(data)
        return id

    def get(self, tenant: str, id: str) -> bytes:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the blob store did not answer")
        return self._path(tenant, id).read_bytes()

    def drop(self, tenant: str, id: str) -> None:
        self._path(tenant, id).unlink(missing_ok=True)

    def describe(self, tenant: str, id: str, **facts: object) -> None:
        """Sets the metadata of a blob."""
        self._path(tenant, f"{id}.json").write_text(json.dumps(facts))

    def facts(self, tenant: str, id: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self._path(tenant, f"{id}.json").read_text())
        return found

    def count(self, tenant: str) -> int:
        return len(list((self.root / tenant).iterdir()))

    def _path(self, tenant: str, id: str) -> Path:
        return self.root / tenant / id


blobs = Blobs()


@asynccontextmanager
async def opened(app: App) -> AsyncGenerator[Blobs, None]:
    yield blobs  # A real program opens the client of its blob store here, once per worker.


app = App("memory://", retry="brisk", lifespan=opened)
Ctx = Context[Blobs]


def load(ctx: Ctx, id: str) -> bytes:
    """A blob of the tenant of the job. If it cannot be read, the job is tried again later."""
    try:
        return ctx.state.get(ctx.tenant, id)
    except OSError as error:
        raise Retry(f"cannot load blob {id}: {error}") from error


def store(ctx: Ctx, data: bytes) -> str:
    """A failure to store is final: another attempt would find no room either."""
    try:
        return ctx.state.put(ctx.tenant, data)
    except OSError as error:
        raise Fail(f"cannot store the result: {error}") from error


# -- the jobs: no audio in their arguments, and none in their results ------------------------------


@dataclass
class Sound:
    """A reference to 16-bit samples of one channel."""

    blob: str
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
def decode(ctx: Ctx, blob: str) -> Sound:
    with wave.open(io.BytesIO(load(ctx, blob))) as file:
        channels, rate = file.getnchannels(), file.getframerate()
        frames = array("h", file.readframes(file.getnframes()))
    mixed = array("h", (sum(frames[n : n + channels]) // channels
                        for n in range(0, len(frames), channels)))  # fmt: skip
    return Sound(store(ctx, mixed.tobytes()), rate, len(mixed))


@app.job(queue="audio", priority=HIGH, max_retries=2)
class GenerateWaveform(Job[str]):
    """Before the other jobs of its queue, because somebody looks at a page that waits for it."""

    sound: Sound
    points: int = 100

    def run(self, ctx: Ctx) -> str:
        """The blob with the highest sample of each of so many stretches."""
        started.append("waveform")
        samples = samples_of(ctx, self.sound)
        width = max(1, len(samples) // self.points)
        peaks = [max(map(abs, samples[n : n + width])) for n in range(0, len(samples), width)]
        return store(ctx, json.dumps(peaks).encode())


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
def publish(ctx: Ctx, blob: str, waveform: str, loudness: float, notes: list[str]) -> None:
    """What was found goes to the metadata of the blob, with the trace that it belongs to."""
    trace = next(tag for tag in ctx.job.tags if tag.startswith("trace:"))
    facts = {"waveform": waveform, "loudness": loudness, "notes": "".join(notes)}
    ctx.state.describe(ctx.tenant, blob, **facts, trace=trace)


@app.job(queue="decode")
def drop(ctx: Ctx, sound: Sound) -> None:
    ctx.state.drop(ctx.tenant, sound.blob)


# -- the flow --------------------------------------------------------------------------------------


def pipeline(track: str, blob: str) -> Flow:
    """The key is that of the track, so a track that is uploaded twice is processed once."""
    flow = Flow("audio", key=f"track:{track}")
    tags = {"tags": [f"trace:{track}"]}
    sound = flow.add(decode(blob=blob).with_options(**tags))
    waveform = flow.add(GenerateWaveform(sound=sound.result()).with_options(**tags))
    level = flow.add(loudness(sound=sound.result()).with_options(**tags))
    parts = flow.add(split(sound=sound.result()).with_options(**tags))
    notes = flow.map(transcribe, over=parts, most=1000)
    flow.add(
        publish(
            blob=blob, waveform=waveform.result(), loudness=level.result(), notes=notes.results()
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


async def processed(tenant: str, track: str) -> None:
    """Limited: one job of the queue `audio` at a time, two of `transcribe`."""
    acme = app.tenant(tenant)
    await acme.queue("audio").set(max_running=1)
    await acme.queue("transcribe").set(max_running=2)
    blob = blobs.put(tenant, recorded())
    run = await acme.start(pipeline(track, blob))
    again = await acme.start(pipeline(track, blob))
    status = await run.wait()
    print(f"{tenant}: {status.state}, {status.total} nodes, started once: {not again.created}")
    facts = blobs.facts(tenant, blob)
    print(f"{facts['notes']} at {facts['loudness']} dB, {facts['trace']}")
    nodes = await run.nodes()
    first = await acme.get(nodes[0].id)
    sound = await acme.wait(first.id, as_=Sound)
    print(f"decoded in attempt {first.attempt}: {sound.samples} samples by reference")
    print(f"first of its queue: {started[0]}, never more than two parts: {most[tenant] <= 2}")


async def canceled(tenant: str, track: str) -> None:
    """Somebody changes their mind when all is ready to be published: the decoded sound goes."""
    globex = app.tenant(tenant)
    await globex.queue("publish").set(max_running=1)
    await globex.queue("publish").pause("waits for approval", author="ann")
    run = await globex.start(pipeline(track, blobs.put(tenant, recorded())))
    async for event in globex.events():
        if isinstance(event, Event) and (event.type, event.kind) == ("publish", "ready"):
            break
    before = blobs.count(tenant)
    await run.cancel()
    try:
        await run.wait()
    except JobCanceled:
        left = blobs.count(tenant)
        print(f"{tenant}: {(await run.status()).state}, {before - left} blob dropped")


async def full(tenant: str, track: str) -> None:
    """No room to store a result: the first attempt fails for good, and nothing after it runs."""
    blob = blobs.put(tenant, recorded())
    blobs.full.add(tenant)
    run = await app.tenant(tenant).start(pipeline(track, blob))
    try:
        await run.wait()
    except JobFailed:
        first, *others = [node.state for node in await run.nodes()]
        print(f"{tenant}: {first} by a full disk, so are {others.count(first)} nodes after it")


async def main() -> None:
    with TemporaryDirectory() as folder:
        blobs.root = Path(folder)
        async with app:
            worker = Worker(app)
            working = asyncio.create_task(worker.run())
            await processed("acme", "t1")
            await canceled("globex", "t2")
            await full("initech", "t3")
            worker.stop()
            await working


if __name__ == "__main__":
    asyncio.run(main())
