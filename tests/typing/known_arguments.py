"""Checked by mypy and pyright in `test_typing.py`: what type checkers know of jobs. Never run.

Each line that ignores an error must have it: both refuse an ignore without need.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, assert_type

from holdfast import App, Context, Enqueued, EnqueuedMany, Flow, Job, JobHandle, JobRecord
from holdfast.handle import SyncJobHandle
from holdfast.typed import JobFunction

app = App("memory://")


@app.job(queue="mail", max_attempts=5, timeout=30)
async def send_email(ctx: Context, to: str, subject: str = "hi") -> int:
    return len(to)


@app.job()
def resize(ctx: Context, width: int) -> None: ...


@app.job(queue="audio", priority=5)
class GenerateWaveform(Job):
    resolution: int = 2000
    track_id: str

    async def run(self, ctx: Context) -> dict[str, int]:
        assert_type(self.track_id, str)
        return {"resolution": self.resolution}


@app.job
async def bare(ctx: Context, to: str) -> list[int]:
    return [len(to)]


@app.job
def bare_plain(ctx: Context, width: int) -> tuple[int, str]:
    return width, ""


@app.job
class Measure(Job[float]):
    track_id: str

    def run(self, ctx: Context) -> float:
        return 1.0


class Report:
    rows: int


class Resources:
    url: str


@asynccontextmanager
async def resources(app: App) -> AsyncGenerator[Resources, None]:
    yield Resources()


@contextmanager
def resource(app: App) -> Generator[Resources, None, None]:
    yield Resources()


with_state = App("memory://", lifespan=resources)
with_plain_state = App("memory://", lifespan=resource)


@with_state.job(key="fetch:{page}")
async def fetch(ctx: Context[Resources], page: int) -> list[str]:
    assert_type(ctx.state, Resources)
    return [ctx.state.url]


@with_state.job(key=lambda job: f"keep:{job.page}" if job.page else None)
def keep(ctx: Context[Resources], page: int) -> int:
    return len(ctx.state.url)


@with_state.job
class Look(Job[str]):
    async def run(self, ctx: Context[Resources]) -> str:
        return ctx.state.url


async def states() -> None:
    acme = with_state.tenant("acme")
    assert_type(fetch(page=1), Job[list[str]])
    assert_type(await (await acme.enqueue(keep(page=1), key=None)).wait(), int)
    assert_type(await (await acme.enqueue(Look())).wait(), str)


async def use() -> None:
    acme = app.tenant("acme")
    assert_type(send_email(to="a", subject="b"), Job[int])
    assert_type(send_email("a"), Job[int])
    assert_type(resize(width=3), Job[None])
    assert_type(bare("a"), Job[list[int]])
    assert_type(bare_plain(width=1), Job[tuple[int, str]])
    assert_type(Measure(track_id="t"), Measure)
    assert_type(GenerateWaveform(track_id="t"), GenerateWaveform)
    assert_type(GenerateWaveform(track_id="t").resolution, int)
    made = await acme.enqueue(send_email(to="a"), delay=5, key="k")
    assert_type(made, JobHandle[int])
    assert_type(await acme.enqueue_many(resize(width=n) for n in range(3)), EnqueuedMany)
    assert_type(await acme.get(made.id), JobRecord)
    function: JobFunction[..., int] = send_email
    del function


async def results() -> None:
    acme = app.tenant("acme")
    assert_type(await acme.wait(await acme.enqueue(bare("a"))), list[int])
    assert_type(await acme.wait(await acme.enqueue(bare("a").with_options(delay=1))), list[int])
    assert_type(await acme.wait(await acme.enqueue(Measure(track_id="t"))), float)
    assert_type(await acme.wait(await acme.enqueue(GenerateWaveform(track_id="t"))), Any)
    assert_type(await acme.wait("id"), Any)
    assert_type(await acme.wait("id", as_=Report), Report)
    assert_type(await acme.wait(await acme.enqueue(bare("a")), as_=list[str]), list[str])
    await acme.wait("id", as_=Report | None)
    assert_type(await (await acme.enqueue(bare("a"))).wait(timeout=5), list[int])
    assert_type(await (await acme.enqueue(Measure(track_id="t"))).wait(), float)
    plain: Enqueued[list[int]] = await acme.enqueue(bare("a"))
    assert_type(await acme.wait(plain), list[int])
    assert_type(await app.run_now(bare_plain(1)), tuple[int, str])
    assert_type(await app.run_now(Measure(track_id="t")), float)


def blocking() -> None:
    acme = app.sync.tenant("acme")
    made = acme.enqueue(send_email("a"), priority=2)
    assert_type(made, SyncJobHandle[int])
    assert_type(acme.wait(made), int)
    assert_type(made.wait(timeout=1), int)
    assert_type(acme.wait(made.id, as_=Report), Report)
    assert_type(acme.wait(made.id), Any)
    assert_type(app.sync.run_now(bare("a")), list[int])


async def misuse() -> None:
    acme = app.tenant("acme")
    send_email(to=1)  # type: ignore[arg-type]
    send_email(too="a")  # type: ignore[call-arg]
    send_email()  # type: ignore[call-arg]
    resize(width="wide")  # type: ignore[arg-type]
    bare(to=1)  # type: ignore[arg-type]
    bare_plain()  # type: ignore[call-arg]
    GenerateWaveform(track_id=5)  # type: ignore[arg-type]
    GenerateWaveform(trak_id="t")  # type: ignore[call-arg]
    GenerateWaveform()  # type: ignore[call-arg]
    GenerateWaveform("t")  # type: ignore[call-arg, arg-type]
    GenerateWaveform(track_id="t").resolution = 1  # type: ignore[misc]
    Measure(track_id=5)  # type: ignore[arg-type]
    await acme.enqueue(resize(width=1), dely=5)  # type: ignore[call-arg]
    await acme.enqueue(resize(width=1), delay="5")  # type: ignore[arg-type]
    await acme.enqueue("resize")  # type: ignore[arg-type]
    await acme.enqueue(resize)  # type: ignore[arg-type]
    await acme.enqueue(Measure)  # type: ignore[arg-type]
    app.job(que="mail")  # type: ignore[call-overload]
    app.job(delay=5)  # type: ignore[call-overload]
    app.job(key=5)  # type: ignore[call-overload]
    App("memory://", lifespan=Resources())  # type: ignore[arg-type]
    await acme.wait("id", as_=5)  # type: ignore[call-overload]


@app.job
async def untyped_state(ctx: Context) -> str:
    return ctx.state.url  # type: ignore[attr-defined, no-any-return]


class Wrong(Job[int]):
    async def run(self, ctx: Context) -> str:  # type: ignore[override]
        return ""


async def flows() -> None:
    flow = Flow("nightly")
    sent = flow.add(send_email("ada"))
    assert_type(sent.result(), int)
    sizes = flow.map(send_email, over=flow.add(bare("ada")))
    assert_type(sizes.results(), list[int])
    assert_type(flow.results([sent]), list[int])
    flow.add(resize(width=sent.result()), after=sizes)
    flow.add(send_email(to=sent.result()))  # type: ignore[arg-type]
