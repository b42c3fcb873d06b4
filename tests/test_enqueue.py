"""Enqueue: a wrong word is refused at the call and writes nothing; many calls cost few batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context, InvalidInput, Job, PayloadTooLarge, RetryPolicy, State
from holdfast.core.clock import micros
from holdfast.core.errors import (
    ConfigError,
    IdConflict,
    InvalidPayload,
    StoreUnavailable,
    StoreUnsupported,
)
from holdfast.handle import JobHandle
from holdfast.many import CHUNK_MAX
from holdfast.store import Enqueued
from holdfast.stores import open_store
from holdfast.tenant import Tenant
from holdfast.testing import Faults, ManualClock


class Desk:
    """An app on a counted store, with one job type."""

    def __init__(self, url: str = "memory://") -> None:
        self.clock = ManualClock()
        self.faults = Faults(open_store(url, self.clock))
        self.app = App(self.faults.store, payload_max=1000)

        @self.app.job(queue="mail")
        async def send(ctx: Context, to: str, body: Any = None) -> None: ...

        @self.app.job(queue="audio")
        async def wave(ctx: Context) -> None: ...

        self.send, self.wave = send, wave

    @property
    def acme(self) -> Tenant:
        return self.app.tenant("acme")


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.app:
        yield desk


LONG = "x" * 1000


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("queue", {"queue": ""}),
        ("queue", {"queue": LONG}),
        ("queue", {"queue": 7}),
        ("queue", {"queue": " mail"}),
        ("id", {"id": ""}),
        ("id", {"id": LONG}),
        ("id", {"id": "a\nb"}),
        ("id", {"id": 7}),
        ("key", {"key": ""}),
        ("key", {"key": LONG}),
        ("group", {"group": ""}),
        ("group", {"group": LONG}),
        ("tags", {"tags": [""]}),
        ("tags", {"tags": [LONG]}),
        ("tags", {"tags": ["t"] * 17}),
        ("tags", {"tags": "urgent"}),
        ("tags", {"tags": 5}),
        ("priority", {"priority": 2**31 + 1}),
        ("priority", {"priority": -(2**31) - 1}),
        ("priority", {"priority": 1.5}),
        ("priority", {"priority": True}),
        ("delay", {"delay": -1}),
        ("delay", {"delay": float("nan")}),
        ("delay", {"delay": float("inf")}),
        ("delay", {"delay": "5"}),
        ("delay", {"delay": 1, "run_at": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("run_at", {"run_at": datetime(2026, 1, 1)}),  # noqa: DTZ001
        ("run_at", {"run_at": 1_700_000_000}),
        ("ttl", {"ttl": 0}),
        ("ttl", {"ttl": float("nan")}),
        ("timeout", {"timeout": 0}),
        ("timeout", {"timeout": -1}),
        ("keep", {"keep": -1}),
        ("keep_failed", {"keep_failed": float("nan")}),
        ("key_for", {"key_for": -1}),
        ("max_attempts", {"max_attempts": 0}),
        ("max_attempts", {"max_attempts": 1001}),
        ("max_attempts", {"max_attempts": "3"}),
        ("max_retries", {"max_retries": -1}),
        ("max_retries", {"max_retries": "3"}),
        ("prioritie", {"prioritie": 1}),
    ],
)
async def test_a_wrong_option_is_refused_by_name_and_nothing_is_written(
    desk: Desk, field: str, options: dict[str, Any]
) -> None:
    """Singly and among many."""
    with pytest.raises(InvalidInput) as raised:
        await desk.acme.enqueue(desk.send(to="a"), **options)
    with pytest.raises(InvalidInput):
        await desk.acme.enqueue_many([desk.send(to="a").with_options(**options)])

    assert raised.value.field == field
    assert str(raised.value).startswith(field)
    assert desk.faults.count("enqueue") == 0


@pytest.mark.parametrize("retry", ["brisc", 3, RetryPolicy(base_s=9, cap_s=1)])
async def test_a_wrong_retry_policy_is_refused(desk: Desk, retry: Any) -> None:
    """By the field of the policy, or with the presets that exist."""
    with pytest.raises(ConfigError, match="retry"):
        await desk.acme.enqueue(desk.send(to="a"), retry=retry)

    assert desk.faults.count("enqueue") == 0


@pytest.mark.parametrize("tenant", ["", LONG, " acme", "a\x00b", None, 7])
async def test_a_wrong_tenant_is_refused_before_any_call(desk: Desk, tenant: Any) -> None:
    """Every call names a tenant, so none can be made."""
    with pytest.raises(InvalidInput) as raised:
        desk.app.tenant(tenant)

    assert raised.value.field == "tenant"


@pytest.mark.parametrize("name", ["", LONG, "a\tb"])
def test_a_wrong_type_name_is_refused_at_registration(name: str) -> None:
    """Long before an enqueue."""

    async def work(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match="name"):
        App("memory://").job(name=name)(work)


@pytest.mark.parametrize("thing", [None, "send", {"to": "a"}, 5])
async def test_only_jobs_can_be_enqueued(desk: Desk, thing: Any) -> None:
    """The error says what it got."""
    with pytest.raises(InvalidInput, match=f"not {type(thing).__name__}"):
        await desk.acme.enqueue(thing)


async def test_a_payload_over_the_limit_is_refused_with_size_and_limit(tmp_path: Path) -> None:
    """At the enqueue, where somebody can still do something about it."""
    desk = Desk(f"sqlite:///{tmp_path / 'jobs.db'}")
    async with desk.app:
        await desk.acme.enqueue(desk.send(to="a", body="x" * 900))
        with pytest.raises(PayloadTooLarge, match="at most 1000") as raised:
            await desk.acme.enqueue(desk.send(to="a", body="x" * 1000))

    assert (raised.value.max, raised.value.size) == (1000, len('{"to":"a","body":""}') + 1000)
    assert desk.faults.count("enqueue") == 1


async def test_a_payload_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Not found out by the worker."""
    desk = Desk(f"sqlite:///{tmp_path / 'jobs.db'}")
    async with desk.app:
        with pytest.raises(InvalidPayload, match="'send'"):
            await desk.acme.enqueue(desk.send(to="a", body=object()))

    assert desk.faults.count("enqueue") == 0


async def test_what_the_options_say_is_what_is_stored(desk: Desk) -> None:
    """Each lands in its field of the record."""
    made = await desk.acme.enqueue(
        desk.send(to="a"),
        id="j1",
        queue="slow",
        priority=-5,
        delay=30,
        key="k",
        group="g",
        tags=["x", "y"],
        max_retries=4,
        retry="brisk",
        timeout=1.5,
        keep=10,
        keep_failed=20,
        ttl=40,
    )
    job = await desk.acme.get(made.id)

    now = desk.clock.now()
    assert (job.id, job.queue, job.priority, job.state) == ("j1", "slow", -5, State.SCHEDULED)
    assert (job.key, job.group, job.tags) == ("k", "g", ("x", "y"))
    assert (job.run_at, job.expires_at) == (now + micros(30), now + micros(40))
    assert (job.rules.max_attempts, job.rules.timeout_us) == (5, micros(1.5))
    assert (job.rules.keep_us, job.rules.keep_failed_us) == (micros(10), micros(20))


async def test_run_at_is_an_instant_in_any_zone(desk: Desk) -> None:
    """To the microsecond."""
    at = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)

    made = await desk.acme.enqueue(desk.send(to="a"), run_at=at.astimezone())

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert (await desk.acme.get(made.id)).run_at == (at - epoch) // timedelta(microseconds=1)


async def test_concurrent_enqueues_reach_the_store_in_few_batches(desk: Desk) -> None:
    """Plain user code gets batch speed."""
    jobs = [desk.send(to=str(n)) for n in range(500)]

    made = await asyncio.gather(*(desk.acme.enqueue(job) for job in jobs))

    assert len({one.id for one in made}) == 500
    assert desk.faults.count("enqueue") <= 2


async def test_one_refused_item_of_a_shared_batch_raises_for_its_caller_only(desk: Desk) -> None:
    """The others of the batch are kept."""
    await desk.acme.enqueue_many([desk.send(to="a").with_options(id="taken")])

    answers = await asyncio.gather(
        desk.acme.enqueue(desk.send(to="b")),
        desk.acme.enqueue(desk.wave(), id="taken"),
        desk.acme.enqueue(desk.send(to="c")),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [JobHandle, IdConflict, JobHandle]
    assert desk.faults.count("enqueue") == 2


async def test_a_store_that_is_away_fails_the_call(desk: Desk) -> None:
    """An enqueue that returned is kept; one that raised may be repeated."""
    desk.faults.fail("enqueue")

    with pytest.raises(StoreUnavailable):
        await desk.acme.enqueue(desk.send(to="a"), id="j1")

    assert (await desk.acme.enqueue(desk.send(to="a"), id="j1")).created


async def test_a_store_without_transactions_refuses_to_join_one(desk: Desk) -> None:
    """Nothing is enqueued beside the transaction that was meant."""
    with pytest.raises(StoreUnsupported, match="caller's transaction"):
        await desk.acme.enqueue(desk.send(to="a"), using=object())

    assert desk.faults.count("enqueue") == 0


async def test_a_lost_reply_does_not_make_two_jobs(desk: Desk) -> None:
    """The id is the caller's: the repeated call finds the first one's job."""
    desk.faults.fail("enqueue", late=True)
    with pytest.raises(StoreUnavailable):
        await desk.acme.enqueue(desk.send(to="a"), id="j1")

    again = await desk.acme.enqueue(desk.send(to="a"), id="j1")

    assert again == Enqueued("j1", False)
    assert len((await desk.acme.find()).jobs) == 1


async def test_the_same_key_gives_the_same_job_until_it_is_finished(desk: Desk) -> None:
    """Per tenant; the answer says created or existing."""
    first = await desk.acme.enqueue(desk.send(to="a"), key="k")
    second = await desk.acme.enqueue(desk.send(to="b"), key="k")
    other = await desk.app.tenant("globex").enqueue(desk.send(to="a"), key="k")
    await desk.acme.cancel(first.id)
    third = await desk.acme.enqueue(desk.send(to="c"), key="k")

    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert (other.created, third.created) == (True, True)
    assert len({first.id, other.id, third.id}) == 3


async def test_a_timed_key_outlives_its_job(desk: Desk) -> None:
    """`key_for` counts from the enqueue."""
    first = await desk.acme.enqueue(desk.send(to="a"), key="k", key_for=60)
    await desk.acme.cancel(first.id)
    again = await desk.acme.enqueue(desk.send(to="a"), key="k", key_for=60)
    desk.clock.advance(60)
    later = await desk.acme.enqueue(desk.send(to="a"), key="k", key_for=60)

    assert (again.created, again.id) == (False, first.id)
    assert later.created


async def test_a_stream_is_consumed_a_batch_at_a_time(desk: Desk) -> None:
    """Bounded memory: while one batch is written the next is made, and no more."""
    drawn = written = 0
    sizes: list[int] = []

    def stream() -> Iterator[Job]:
        nonlocal drawn
        for n in range(5 * CHUNK_MAX + 10):
            drawn += 1
            yield desk.send(to=str(n))

    def on_batch(batch: list[Enqueued]) -> None:
        nonlocal written
        written += len(batch)
        sizes.append(len(batch))
        assert drawn - written <= CHUNK_MAX

    total = await desk.acme.enqueue_many(stream(), on_batch=on_batch)

    assert sizes == [CHUNK_MAX] * 5 + [10]
    assert (total.created, total.existing) == (5 * CHUNK_MAX + 10, 0)


async def test_a_bad_job_in_a_stream_keeps_what_was_written_before(desk: Desk) -> None:
    """Its error is raised, and `on_batch` has told of every batch that was kept."""
    told: list[str] = []

    def stream() -> Iterator[Any]:
        yield from (desk.send(to=str(n)) for n in range(CHUNK_MAX))
        yield "no job"

    with pytest.raises(InvalidInput, match="must be a job"):
        await desk.acme.enqueue_many(
            stream(), on_batch=lambda batch: told.extend(one.id for one in batch)
        )

    [tally] = await desk.acme.counts()
    assert tally.counts == {State.ENQUEUED: CHUNK_MAX}
    assert len(told) == CHUNK_MAX


async def test_options_per_item_win_over_those_of_the_call(desk: Desk) -> None:
    """And what neither says is the type's."""
    await desk.acme.enqueue_many(
        [desk.send(to="a"), desk.wave().with_options(priority=9, id="own")], priority=1
    )

    jobs = {job.id: job for job in (await desk.acme.find()).jobs}
    own = jobs.pop("own")
    [shared] = jobs.values()
    assert (own.priority, own.queue) == (9, "audio")
    assert (shared.priority, shared.queue) == (1, "mail")


async def test_a_repeated_stream_counts_what_existed(desk: Desk) -> None:
    """Safe to repeat after a crash in the middle."""
    jobs = [desk.send(to=str(n)).with_options(id=f"j{n}") for n in range(5)]
    await desk.acme.enqueue_many(jobs[:3])

    total = await desk.acme.enqueue_many(jobs)

    assert (total.created, total.existing) == (2, 3)


async def test_a_stream_stops_at_the_first_job_that_is_refused(desk: Desk) -> None:
    """The error is raised; on_batch has told of the batches before."""
    await desk.acme.enqueue(desk.send(to="a"), id="taken")

    with pytest.raises(IdConflict):
        await desk.acme.enqueue_many([desk.wave().with_options(id="taken")])


async def test_a_batch_of_large_payloads_is_cut_by_bytes(tmp_path: Path) -> None:
    """A thousand large jobs are not one call."""
    desk = Desk(f"sqlite:///{tmp_path / 'jobs.db'}")
    desk.app = App(desk.faults.store, payload_max=5 * 1024 * 1024)

    @desk.app.job()
    async def heavy(ctx: Context, body: str) -> None: ...

    async with desk.app:
        await desk.acme.enqueue_many(heavy(body="x" * 3_000_000) for _ in range(5))

    sizes = [len(args[0]) for args in desk.faults.calls["enqueue"]]
    assert sizes == [3, 2]
