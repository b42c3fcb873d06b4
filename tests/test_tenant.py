"""What a customer's code does with its jobs, and that it sees no other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import (
    App,
    By,
    Context,
    Fail,
    InvalidInput,
    JobCanceled,
    JobFailed,
    JobNotFound,
    Reason,
    State,
    WaitTimeout,
)
from holdfast.core.errors import NotChangeable, QueueFull
from holdfast.testing import ManualClock, drain


@pytest.fixture
async def app() -> AsyncIterator[App]:
    app = App("memory://", clock=ManualClock())

    @app.job(name="add", queue="sums")
    async def add(ctx: Context, a: int, b: int) -> int:
        return a + b

    @app.job(name="refuse", queue="sums")
    async def refuse(ctx: Context) -> None:
        raise Fail("never")

    async with app:
        yield app


def make(app: App, type: str, **fields: Any) -> Any:
    found = app.registry.named(type)
    assert found is not None
    return found.kind(**fields)


async def test_get_finds_a_job_of_its_own_tenant_only(app: App) -> None:
    """Another's job and no job are the same answer (P7)."""
    made = await app.tenant("acme").enqueue(make(app, "add", a=1, b=2))

    assert (await app.tenant("acme").get(made.id)).id == made.id
    with pytest.raises(JobNotFound) as of_another:
        await app.tenant("globex").get(made.id)
    with pytest.raises(JobNotFound) as of_nobody:
        await app.tenant("globex").get("nothing")
    assert str(of_another.value).replace(made.id, "?") == str(of_nobody.value).replace(
        "nothing", "?"
    )


async def test_cancel_is_true_once_and_again_and_false_when_it_came_too_late(app: App) -> None:
    """Repeat-safe, and honest about a job that had ended otherwise."""
    acme = app.tenant("acme")
    one = await acme.enqueue(make(app, "add", a=1, b=2))
    assert [await acme.cancel(one.id), await acme.cancel(one.id)] == [True, True]

    two = await acme.enqueue(make(app, "add", a=1, b=2))
    await drain(app)

    assert await acme.cancel(two.id) is False
    with pytest.raises(JobNotFound):
        await app.tenant("globex").cancel(two.id)


async def test_pages_give_every_job_once_in_either_order(app: App) -> None:
    """The cursor of a page is where the next goes on."""
    acme = app.tenant("acme")
    await acme.enqueue_many(
        make(app, "add", a=n, b=0).with_options(id=f"j{n:02}") for n in range(25)
    )

    for newest_first in (True, False):
        ids: list[str] = []
        after = None
        while True:
            page = await acme.find(limit=10, after=after, newest_first=newest_first)
            ids += [job.id for job in page.jobs]
            after = page.cursor
            if after is None:
                break
        assert ids == sorted((f"j{n:02}" for n in range(25)), reverse=newest_first)


async def test_find_narrows_by_each_field(app: App) -> None:
    """State, queue, type, tag, group, reason and key."""
    acme = app.tenant("acme")
    await acme.enqueue(make(app, "refuse"), id="dead")
    await drain(app)
    options: Any = {"queue": "q", "tags": ["t"], "group": "g", "key": "k"}
    await acme.enqueue(make(app, "add", a=1, b=1), id="open", **options)

    filters: list[tuple[dict[str, Any], str]] = [
        ({"states": ["failed"]}, "dead"),
        ({"states": [State.ENQUEUED]}, "open"),
        ({"queues": ["q"]}, "open"),
        ({"types": ["refuse"]}, "dead"),
        ({"tags": ["t"]}, "open"),
        ({"groups": ["g"]}, "open"),
        ({"reasons": [Reason.PERMANENT]}, "dead"),
        ({"key": "k"}, "open"),
    ]
    for narrowed, id in filters:
        assert [job.id for job in (await acme.find(**narrowed)).jobs] == [id], narrowed


@pytest.mark.parametrize(
    ("field", "filters"),
    [
        ("states", {"states": ["complete"]}),
        ("reasons", {"reasons": ["TIMED_OUT"]}),
        ("tags", {"tags": ["t"] * 101}),
        ("limit", {"limit": 1001}),
        ("limit", {"limit": -1}),
    ],
)
async def test_a_wrong_filter_is_refused_by_name(
    app: App, field: str, filters: dict[str, Any]
) -> None:
    """A typo in a state must not be an empty page."""
    with pytest.raises(InvalidInput) as raised:
        await app.tenant("acme").find(**filters)

    assert raised.value.field == field


async def test_wait_gives_the_result(app: App) -> None:
    """Also to one who waited before the job ran."""
    acme = app.tenant("acme")
    made = await acme.enqueue(make(app, "add", a=1, b=2))
    waiting = asyncio.ensure_future(acme.wait(made.id, timeout=5))
    await asyncio.sleep(0)
    assert not waiting.done()

    await drain(app)

    assert await waiting == 3
    assert await acme.wait(made.id) == 3


async def test_wait_raises_what_became_of_the_job(app: App) -> None:
    """Failed with its reason, canceled, unknown, or not in time."""
    acme = app.tenant("acme")
    failed = await acme.enqueue(make(app, "refuse"))
    await drain(app)
    canceled = await acme.enqueue(make(app, "add", a=1, b=2))
    waiting = asyncio.ensure_future(acme.wait(canceled.id, timeout=5))
    await asyncio.sleep(0)
    await acme.cancel(canceled.id)

    with pytest.raises(JobFailed, match=r"PERMANENT.*never"):
        await acme.wait(failed.id)
    with pytest.raises(JobCanceled):
        await waiting
    with pytest.raises(JobNotFound):
        await acme.wait("nothing")
    late = await acme.enqueue(make(app, "add", a=1, b=2))
    with pytest.raises(WaitTimeout, match=r"0\.01 s"):
        await acme.wait(late.id, timeout=0.01)


async def test_replay_makes_a_new_job_that_names_its_origin_once(app: App) -> None:
    """However often it is asked for."""
    acme = app.tenant("acme")
    dead = await acme.enqueue(make(app, "refuse"), key="k")
    await drain(app)

    first, second = await acme.replay(dead.id), await acme.replay(dead.id)

    assert first == second != dead.id
    again = await acme.get(first)
    assert (again.origin, again.state, again.attempt) == (dead.id, State.ENQUEUED, 0)
    assert (await acme.get(dead.id)).state is State.FAILED


async def test_a_replay_that_its_tenant_has_no_room_for_is_refused(app: App) -> None:
    """By the cap of jobs; nothing is made."""
    acme = app.tenant("acme")
    dead = await acme.enqueue(make(app, "refuse"))
    await drain(app)
    await acme.scope().set(max_queued=1)
    await acme.enqueue(make(app, "add", a=1, b=2))

    with pytest.raises(QueueFull, match="jobs waiting 1, at most 1"):
        await acme.replay(dead.id)

    assert (await acme.get(dead.id)).replayed_as is None


async def test_a_job_that_is_not_finished_cannot_be_replayed(app: App) -> None:
    """There would be two of it."""
    made = await app.tenant("acme").enqueue(make(app, "add", a=1, b=2))

    with pytest.raises(NotChangeable, match="while enqueued"):
        await app.tenant("acme").replay(made.id)


async def test_counts_are_of_the_own_tenant(app: App) -> None:
    """Per queue and state."""
    await app.tenant("acme").enqueue_many(make(app, "add", a=n, b=0) for n in range(3))
    await app.tenant("globex").enqueue(make(app, "add", a=1, b=2), queue="else")

    [tally] = await app.tenant("acme").counts()

    assert (tally.queue, tally.counts) == ("sums", {State.ENQUEUED: 3})


async def test_a_waiting_job_is_reprioritised_and_rescheduled() -> None:
    """One that runs or has ended is not; every act is signed in its event."""
    app = App("memory://")

    @app.job
    async def work(ctx: Context) -> None: ...

    by = By("ann", "wrong address")
    async with app:
        acme = app.tenant("acme")
        one, two = [(await acme.enqueue(work())).id for _ in range(2)]
        await acme.reprioritise(one, 7, by=by)
        await acme.reschedule(two, delay=60, by=by)
        found = [await acme.get(id) for id in (one, two)]
        await acme.reschedule(two, run_at=datetime(2020, 1, 1, tzinfo=UTC))
        again = (await acme.get(two)).state
        await acme.cancel(one, by=by)
        with pytest.raises(NotChangeable):
            await acme.reprioritise(one, 1)
        with pytest.raises(JobNotFound):
            await acme.reschedule("nothing", delay=1)
        now = datetime.now(UTC)
        for wrong in ({}, {"delay": 1.0, "run_at": now}, {"run_at": now.replace(tzinfo=None)}):
            with pytest.raises(InvalidInput):
                await acme.reschedule(two, **wrong)
        events = (await app.store.events("acme", 0, 100)).events

    assert (found[0].priority, found[1].state, again) == (7, State.SCHEDULED, State.ENQUEUED)
    assert [event.by for event in events if event.kind.value in ("changed", "canceled")] == [
        *("ann: wrong address", "ann: wrong address"),
        *(None, "ann: wrong address"),
    ]
