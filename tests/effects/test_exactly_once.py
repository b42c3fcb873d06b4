"""`exactly_once`: the writes of a handler and the completion of its job are one (P4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import asyncpg
import pytest
from tests.effects.conftest import Place

from holdfast import App, Context, Fail, RetryPolicy, Snooze, State, SyncContext
from holdfast.core.errors import InvalidInput, JobCanceled, LeaseExpired
from holdfast.core.job import Completed, EventKind
from holdfast.effects import exactly_once
from holdfast.events import Confirmed
from holdfast.store import Ref
from holdfast.testing import drain

TAKE = "UPDATE accounts SET cents = cents - 30 WHERE id = 1"


class Opened:
    """`async with Opened(place) as connection`: of asyncpg, or of sqlite3."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def __aenter__(self) -> Any:
        place = self._place
        self._connection = place.connect() if place.is_sqlite else await asyncpg.connect(place.dsn)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        closed = self._connection.close()
        if not self._place.is_sqlite:
            await closed


async def write(connection: Any, statement: str = TAKE) -> None:
    done = connection.execute(statement)
    if asyncio.iscoroutine(done):
        await done


def taking(place: Place, act: Callable[[Context[Any], Any, Any], Any]) -> Any:
    """A job type that takes 30 cents, and then does this inside the block."""

    @place.app.job
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection, exactly_once(ctx, connection) as effect:
            await write(connection)
            await act(ctx, connection, effect)

    return take


async def outcomes(app: App) -> list[tuple[Any, Any]]:
    """What each run of a drain has come to: the state, or the type of the refusal."""
    return [(one.answer.state, type(one.answer.error)) for one in await drain(app)]


async def test_writes_and_completion_are_committed_together(place: Place) -> None:
    """P4: with the result; the worker acks nothing more, and tells who listens."""
    told: list[Confirmed] = []
    place.app.subscribe(told.append)

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        effect.result = {"taken": 30}

    take = taking(place, act)
    job = await place.app.tenant("acme").enqueue(take())
    [run] = await drain(place.app)

    assert (run.answer.state, run.answer.error) == (State.COMPLETED, None)
    assert place.cents() == [70, 0]
    assert await job.wait() == {"taken": 30}
    assert [type(one.outcome) for one in told] == [Completed]
    page = await place.app.store.events("acme", 0, 100, job_id=job.id)
    kinds = [event.kind for event in page.events]
    assert kinds == [EventKind.ENQUEUED, EventKind.LEASED, EventKind.COMPLETED]


@pytest.mark.parametrize(
    ("raised", "state"),
    [(ValueError("no"), State.RETRYING), (Fail("no"), State.FAILED), (Snooze(5), State.SCHEDULED)],
    ids=["error", "fail", "snooze"],
)
async def test_an_error_in_the_block_undoes_the_writes(
    place: Place, raised: Exception, state: State
) -> None:
    """P4: and the job goes the way of that error."""

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        raise raised

    take = taking(place, act)
    job = await place.app.tenant("acme").enqueue(take())
    await drain(place.app)

    assert place.cents() == [100, 0]
    assert (await place.app.tenant("acme").get(job.id)).state is state


async def test_a_commit_that_fails_undoes_the_completion(place: Place) -> None:
    """P4: a constraint that is checked at the commit; the next attempt succeeds."""

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        if ctx.attempt == 1:
            await write(connection, "INSERT INTO late VALUES (99)")

    @place.app.job(retry=RetryPolicy(base_s=0.0, cap_s=0.0))
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection:
            if place.is_sqlite:
                connection.execute("PRAGMA foreign_keys = ON")
            async with exactly_once(ctx, connection) as effect:
                await write(connection)
                await act(ctx, connection, effect)

    job = await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [
        (State.RETRYING, type(None)), (State.COMPLETED, type(None)),
    ]  # fmt: skip
    assert place.cents() == [70, 0]
    assert (await place.app.tenant("acme").get(job.id)).attempt == 2


async def test_a_lease_that_has_lapsed_commits_nothing(place: Place) -> None:
    """P3: the deadline is checked in the transaction, by the store's clock."""
    raised: list[BaseException] = []

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        if ctx.attempt == 1:
            place.clock.advance(61)

    @place.app.job
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection:
            try:
                async with exactly_once(ctx, connection) as effect:
                    await write(connection)
                    await act(ctx, connection, effect)
            except LeaseExpired as error:
                raised.append(error)
                raise

    await place.app.tenant("acme").enqueue(take())
    found = await outcomes(place.app)

    assert [type(error) for error in raised] == [LeaseExpired]
    assert found == [(None, LeaseExpired), (State.COMPLETED, type(None))]
    assert place.cents() == [70, 0]


async def test_a_cancel_before_the_block_ends_wins(place: Place) -> None:
    """P5: the writes are undone. On SQLite the cancel comes before the block: it needs the lock."""

    @place.app.job
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection:
            if place.is_sqlite:
                await place.app.store.cancel([Ref("acme", ctx.job_id)])
            async with exactly_once(ctx, connection):
                await write(connection)
                if not place.is_sqlite:
                    await place.app.store.cancel([Ref("acme", ctx.job_id)])

    job = await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(None, JobCanceled)]
    assert place.cents() == [100, 0]
    assert (await place.app.tenant("acme").get(job.id)).state is State.CANCELED


async def test_nothing_after_the_block_changes_the_job(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """P6: it is completed; what the handler raises or returns is logged."""

    @place.app.job
    async def take(ctx: Context[Any], fails: bool) -> str:
        async with Opened(place) as connection, exactly_once(ctx, connection):
            await write(connection)
        if fails:
            raise ValueError("too late")
        return "not stored"

    acme = place.app.tenant("acme")
    with caplog.at_level(logging.WARNING):
        for fails in (True, False):
            job = await acme.enqueue(take(fails))
            assert await outcomes(place.app) == [(State.COMPLETED, type(None))]
            assert (await acme.get(job.id)).result is None

    assert place.cents() == [40, 0]
    said = [record.message.partition("; ")[2] for record in caplog.records]
    assert said == ["it raised ValueError('too late')", "what it returned is not stored"]


async def test_follow_up_jobs_and_log_lines_belong_to_the_block(place: Place) -> None:
    """P1: a job that the block enqueues exists only with its commit."""
    ran: list[str] = []

    @place.app.job
    async def note(ctx: Context[Any], text: str) -> None:
        ran.append(text)

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        await ctx.enqueue(note(f"attempt {ctx.attempt}"), using=connection)
        ctx.log("taken")
        if ctx.attempt == 1:
            raise ValueError("no")

    take = taking(place, act)
    job = await place.app.tenant("acme").enqueue(take())
    for _ in range(3):
        await drain(place.app)
        place.clock.advance(600)

    assert ran == ["attempt 2"]
    assert place.cents() == [70, 0]
    assert "taken" in (await place.app.tenant("acme").journal(job.id)).log


async def test_a_block_is_used_once_in_a_run(place: Place) -> None:
    """A second one would write without completing anything; after a rollback it may be repeated."""

    @place.app.job
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection:
            with pytest.raises(ValueError, match="again"):
                await _fail_inside(ctx, connection)
            async with exactly_once(ctx, connection):
                await write(connection)
                async with Opened(place) as other:
                    with pytest.raises(InvalidInput, match="open already"):
                        await _enter_async(ctx, other)
            with pytest.raises(InvalidInput, match="completed its job already"):
                await _enter_async(ctx, connection)

    await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(State.COMPLETED, type(None))]
    assert place.cents() == [70, 0]


async def test_a_transaction_of_the_caller_is_refused(place: Place) -> None:
    """Its commit would not be ours to see; nothing was begun or lost."""

    @place.app.job
    async def take(ctx: Context[Any]) -> None:
        async with Opened(place) as connection:
            await write(connection, "BEGIN")
            await write(connection)
            with pytest.raises(InvalidInput, match="transaction open"):
                await _enter_async(ctx, connection)
            await write(connection, "COMMIT")

    await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(State.COMPLETED, type(None))]
    assert place.cents() == [70, 0]


async def test_a_block_whose_transaction_was_ended_inside_completes_nothing(place: Place) -> None:
    """P4: an explicit commit would leave writes without an ack; the error says so."""

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        await write(connection, "ROLLBACK")

    take = taking(place, act)
    job = await place.app.tenant("acme").enqueue(take())
    await drain(place.app)

    record = await place.app.tenant("acme").get(job.id)
    assert place.cents() == [100, 0]
    assert "was committed or rolled back inside the block" in (record.error or "")


async def test_a_result_that_cannot_be_stored_undoes_the_writes(place: Place) -> None:
    """As with any handler: the job fails for good, and says why."""

    async def act(ctx: Any, connection: Any, effect: Any) -> None:
        effect.result = object()

    take = taking(place, act)
    job = await place.app.tenant("acme").enqueue(take())
    await drain(place.app)

    record = await place.app.tenant("acme").get(job.id)
    assert (record.state, place.cents()) == (State.FAILED, [100, 0])
    assert "result" in (record.error or "")


async def test_plain_functions_use_it_by_with(place: Place) -> None:
    """P4: in the thread of the handler, with follow-up jobs on the same connection."""
    ran: list[str] = []

    @place.app.job
    def note(ctx: SyncContext[Any], text: str) -> None:
        ran.append(text)

    @place.app.job
    def take(ctx: SyncContext[Any]) -> int:
        with closing(place.connect()) as connection, exactly_once(ctx, connection) as effect:
            connection.execute(TAKE)
            ctx.enqueue(note("taken"), using=connection)
            ctx.log("taken")
            effect.result = 30
        return 30

    job = await place.app.tenant("acme").enqueue(take())
    await drain(place.app)

    assert (await job.wait(), place.cents(), ran) == (30, [70, 0], ["taken"])
    assert (await place.app.tenant("acme").journal(job.id)).log == ["taken"]


async def test_the_wrong_kind_of_connection_is_refused_by_name(place: Place) -> None:
    """A blocking one would stop the event loop; an async one cannot be used without it."""

    @place.app.job
    async def take(ctx: Context[Any]) -> None:
        with closing(place.connect()) as connection:
            with pytest.raises(InvalidInput, match="is used on the event loop by with"):
                _enter(ctx, connection)
            with pytest.raises(InvalidInput, match="must be a connection of"):
                await _enter_async(ctx, object())
            if not place.is_sqlite:
                with pytest.raises(InvalidInput, match=r"use it in a plain function \(def\)"):
                    await _enter_async(ctx, connection)

    await place.app.tenant("acme").enqueue(take())

    assert await outcomes(place.app) == [(State.COMPLETED, type(None))]


def _enter(ctx: Any, connection: Any) -> None:
    with exactly_once(ctx, connection):
        pass


async def _enter_async(ctx: Any, connection: Any) -> None:
    async with exactly_once(ctx, connection):
        pass


async def _fail_inside(ctx: Any, connection: Any) -> None:
    async with exactly_once(ctx, connection):
        await write(connection)
        raise ValueError("again")


async def test_runs_without_such_a_store_say_so() -> None:
    """Memory has no database to share; `run_now` has no store."""
    app = App("memory://", max_attempts=1)

    @app.job
    async def take(ctx: Context[Any]) -> None:
        async with exactly_once(ctx, object()):
            pass

    async with app:
        job = await app.tenant("acme").enqueue(take())
        await drain(app)
        record = await app.tenant("acme").get(job.id)
    with pytest.raises(InvalidInput, match="no store to complete"):
        await app.run_now(take())

    assert "only PostgreSQL" in (record.error or "")
