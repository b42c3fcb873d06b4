"""Typed results: what `enqueue` answers waits for its job, and `as_` says what a result must be."""

from __future__ import annotations

import copy
import pickle
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from holdfast import App, Context, Enqueued, InvalidInput, JobHandle, WaitTimeout
from holdfast.core.errors import DecodeError
from holdfast.handle import SyncJobHandle
from holdfast.testing import ManualClock, drain


class Report(msgspec.Struct):
    rows: int
    at: datetime | None = None


class Model(BaseModel):
    rows: int


VALUES: dict[str, Any] = {
    "struct": Report(3, datetime(2026, 1, 2, tzinfo=UTC)),
    "dict": {"rows": 3},
    "model": Model(rows=3),
    "keys": {1: "a"},
    "texts": ["a", "b"],
    "nothing": None,
    "number": 3,
    "true": True,
}


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    memory = request.param == "memory"
    clock = ManualClock() if memory else None
    app = App("memory://" if memory else f"sqlite:///{tmp_path / 'jobs.db'}", clock=clock)

    @app.job(name="say")
    async def say(ctx: Context, what: str) -> Any:
        return VALUES[what]

    @app.job(name="count")
    async def count(ctx: Context, rows: int) -> Report:
        return Report(rows)

    @app.job(name="follow")
    async def follow(ctx: Context) -> Any:
        return await ctx.enqueue(make(app, "count", rows=1))

    async with app:
        yield app


def make(app: App, type: str, **fields: Any) -> Any:
    found = app.registry.named(type)
    assert found is not None
    return found.kind(**fields)


async def test_the_answer_of_an_enqueue_waits_for_its_job(app: App) -> None:
    """With what the annotation of the handler says, without naming the job or the tenant again."""
    job = await app.tenant("acme").enqueue(make(app, "count", rows=7))
    assert isinstance(job, JobHandle)
    assert job.created

    await drain(app)

    assert await job.wait() == Report(7)
    assert await app.tenant("acme").wait(job) == Report(7)


async def test_a_handle_waits_no_longer_than_it_may(app: App) -> None:
    """And names the job."""
    job = await app.tenant("acme").enqueue(make(app, "count", rows=7))

    with pytest.raises(WaitTimeout, match=job.id):
        await job.wait(timeout=0)


async def test_a_handle_that_existed_waits_for_the_first_job(app: App) -> None:
    """The key found it; its result is the answer."""
    acme = app.tenant("acme")
    first = await acme.enqueue(make(app, "count", rows=1), key="k")
    again = await acme.enqueue(make(app, "count", rows=2), key="k")
    await drain(app)

    assert (again.id, again.created) == (first.id, False)
    assert await again.wait() == Report(1)


async def test_a_handle_is_a_plain_value_wherever_it_goes(app: App) -> None:
    """A handler may return it: what is stored, sent or printed shows nothing of the tenant."""
    job = await app.tenant("acme").enqueue(make(app, "follow"))
    await drain(app)

    followed = await app.tenant("acme").wait(job, as_=Enqueued)
    plain = msgspec.json.decode(msgspec.json.encode(job))

    assert (followed.created, followed.error) == (True, None)
    assert plain == {"id": job.id, "created": True, "error": None}
    assert repr(job) == f"JobHandle(id='{job.id}', created=True, error=None)"
    assert job == Enqueued(job.id, True) == job
    assert job != Enqueued(job.id, False)
    assert {job, Enqueued(job.id, True), copy.copy(job)} == {job}


@pytest.mark.parametrize("copied", [copy.copy, lambda job: pickle.loads(pickle.dumps(job))])
async def test_a_copy_of_a_handle_says_that_it_cannot_wait(app: App, copied: Any) -> None:
    """It has the id, by which a tenant can."""
    job = await app.tenant("acme").enqueue(make(app, "count", rows=1))

    assert copied(job) == job
    with pytest.raises(InvalidInput, match=rf"use tenant.wait\('{job.id}'\)"):
        await copied(job).wait()


@pytest.mark.parametrize(
    ("what", "as_", "result"),
    [
        ("struct", Report, VALUES["struct"]),
        ("dict", Report, Report(3)),
        ("struct", dict[str, Any], {"rows": 3, "at": "2026-01-02T00:00:00Z"}),
        ("model", Report, Report(3)),
        ("dict", Model, Model(rows=3)),
        ("keys", dict[str, str], {"1": "a"}),
        ("keys", dict[int, str], {1: "a"}),
        ("texts", list[str], ["a", "b"]),
        ("texts", tuple[str, ...], ("a", "b")),
        ("nothing", Report | None, None),
        ("nothing", type(None), None),
        ("number", int | str, 3),
    ],
)
async def test_a_result_is_decoded_as_the_type_that_was_asked_for(
    app: App, what: str, as_: Any, result: object
) -> None:
    """The same on a store that encodes and on one that does not."""
    job = await app.tenant("acme").enqueue(make(app, "say", what=what))
    await drain(app)

    assert await app.tenant("acme").wait(job.id, as_=as_) == result


@pytest.mark.parametrize(
    ("what", "as_", "word"),
    [
        ("texts", Report, "does not fit Report: Expected `object`, got `array`"),
        ("texts", list[int], "Expected `int`, got `str`"),
        ("nothing", Report, "does not fit Report: Expected `object`, got `null`"),
        ("dict", str, "Expected `str`, got `object`"),
        ("true", int, "Expected `int`, got `bool`"),
        ("texts", Model, "Model"),
    ],
)
async def test_a_result_of_another_type_is_an_error_that_says_where(
    app: App, what: str, as_: Any, word: str
) -> None:
    """Never plain data instead: the caller has said what it must be."""
    job = await app.tenant("acme").enqueue(make(app, "say", what=what))
    await drain(app)

    with pytest.raises(DecodeError) as raised:
        await app.tenant("acme").wait(job.id, as_=as_)

    assert word in str(raised.value)


async def test_what_is_no_type_is_refused_before_anybody_waits(app: App) -> None:
    """Not after the job has ended, in half an hour."""
    job = await app.tenant("acme").enqueue(make(app, "say", what="number"))
    wrong: Any = 5

    with pytest.raises(InvalidInput, match="as_: must be a type"):
        await app.tenant("acme").wait(job.id, as_=wrong, timeout=3600)


def test_blocking_code_has_the_same_handles(tmp_path: Path) -> None:
    """They wait without await."""
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job
    async def count(ctx: Context, rows: int) -> Report:
        return Report(rows)

    with app.sync:
        acme = app.sync.tenant("acme")
        job = acme.enqueue(count(rows=2))
        app.sync.call(drain(app))

        assert isinstance(job, SyncJobHandle)
        assert job.wait(timeout=5) == acme.wait(job) == Report(2)
        assert acme.wait(job.id, as_=dict[str, Any]) == {"rows": 2, "at": None}
        with pytest.raises(DecodeError):
            acme.wait(job.id, as_=str)
