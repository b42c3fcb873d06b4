"""Checked by mypy and pyright in `test_typing.py`: what type checkers know of jobs. Never run.

Each line that ignores an error must have it: both refuse an ignore without need.
"""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import App, Context, EnqueuedMany, Job, JobHandle, JobRecord
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
    assert_type(await app.run_now(bare_plain(1)), tuple[int, str])
    assert_type(await app.run_now(Measure(track_id="t")), float)


def blocking() -> None:
    acme = app.sync.tenant("acme")
    made = acme.enqueue(send_email("a"), priority=2)
    assert_type(made, SyncJobHandle[int])
    assert_type(acme.wait(made), int)
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


class Wrong(Job[int]):
    async def run(self, ctx: Context) -> str:  # type: ignore[override]
        return ""
