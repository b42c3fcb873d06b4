"""Checked by mypy in `test_typing.py`: what type checkers know of jobs. Never run.

Each line that ignores an error must have it: strict mypy refuses an ignore without need.
"""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import App, Context, Enqueued, EnqueuedMany, Job, JobRecord
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


async def use() -> None:
    acme = app.tenant("acme")
    assert_type(send_email(to="a", subject="b"), Job)
    assert_type(send_email("a"), Job)
    assert_type(resize(width=3), Job)
    assert_type(GenerateWaveform(track_id="t"), GenerateWaveform)
    assert_type(GenerateWaveform(track_id="t").resolution, int)
    made = await acme.enqueue(send_email(to="a"), delay=5, key="k")
    assert_type(made, Enqueued)
    assert_type(await acme.enqueue_many(resize(width=n) for n in range(3)), EnqueuedMany)
    assert_type(await acme.get(made.id), JobRecord)
    assert_type(app.sync.tenant("acme").enqueue(resize(width=1), priority=2), Enqueued)
    result: Any = await acme.wait(made.id)
    function: JobFunction[..., int] = send_email
    del result, function


async def misuse() -> None:
    acme = app.tenant("acme")
    send_email(to=1)  # type: ignore[arg-type]
    send_email(too="a")  # type: ignore[call-arg]
    send_email()  # type: ignore[call-arg]
    resize(width="wide")  # type: ignore[arg-type]
    GenerateWaveform(track_id=5)  # type: ignore[arg-type]
    GenerateWaveform()  # type: ignore[call-arg]
    GenerateWaveform("t")  # type: ignore[call-arg, arg-type]
    GenerateWaveform(track_id="t").resolution = 1  # type: ignore[misc]
    await acme.enqueue(resize(width=1), dely=5)  # type: ignore[call-arg]
    await acme.enqueue(resize(width=1), delay="5")  # type: ignore[arg-type]
    await acme.enqueue("resize")  # type: ignore[arg-type]
    app.job(que="mail")  # type: ignore[call-arg]
