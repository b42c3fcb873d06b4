"""The filter of keys: it may be wrong about a key, and nobody ever notices but by the time."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from holdfast.core.errors import ConfigError, IdConflict, MissingExtra, QueueFull
from holdfast.core.job import Completed, NewJob, State
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Scope
from holdfast.scopes import ScopeHandle
from holdfast.store import Claim, Enqueued
from holdfast.stores.postgres.bloom import ROTATE_S, Seen
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.options import parse
from holdfast.testing.contract.builders import AUDIO, GLOBEX, HOUR, LEASE, job, rules

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.store import PostgresStore


class Ignorant(Seen):
    """Takes every key for new, as the filter of a process does that has just started."""

    def none_of(self, jobs: Iterable[NewJob]) -> bool:
        return any(job.key is not None for job in jobs)


async def add(store: PostgresStore, seen: Seen, *jobs: NewJob) -> list[Enqueued]:
    return await store._call(lambda step: enqueue_jobs(step, jobs, seen))


async def complete(store: PostgresStore) -> None:
    [lease] = await store.claim(Claim(worker="w", nonce=uuid4().hex, limit=1, lease_us=LEASE))
    [acked] = await store.ack([decide(Completed(), lease.job, lease.token, 0.0)])
    assert acked.state is State.COMPLETED


class Hand:
    """A clock that is moved by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


# -- the filter ------------------------------------------------------------------------------------


def test_a_key_is_known_by_tenant_queue_type_and_text() -> None:
    """P12: what another tenant, queue or type has enqueued is not seen."""
    seen = Seen(1000)
    seen.add([job("a", key="k"), job("b")])

    assert not seen.none_of([job("c", key="k")])
    assert not seen.none_of([job("c", key="new"), job("d", key="k")])
    for other in (
        job("c", key="other"),
        job("c", key="k", tenant=GLOBEX),
        job("c", key="k", queue=AUDIO),
        job("c", key="k", type="other"),
    ):
        assert seen.none_of([other])


def test_jobs_without_keys_are_not_the_filters_matter() -> None:
    """They have their own way in, which looks for nothing either."""
    assert not Seen(1000).none_of([job("a"), job("b")])


def test_a_key_is_remembered_for_one_time_to_two() -> None:
    """The current filter and the one before; then it is forgotten."""
    clock = Hand()
    seen = Seen(1000, clock)
    seen.add([job("a", key="k")])

    clock.now_s = ROTATE_S
    seen.add([job("b", key="later")])
    assert not seen.none_of([job("c", key="k")])

    clock.now_s = 2 * ROTATE_S
    seen.add([job("b", key="last")])
    assert seen.none_of([job("c", key="k")])
    assert not seen.none_of([job("c", key="later")])


def test_after_a_long_quiet_nothing_old_is_left() -> None:
    """A filter that was not changed for two times is no filter of the time before."""
    clock = Hand()
    seen = Seen(1000, clock)
    seen.add([job("a", key="k")])

    clock.now_s = 2 * ROTATE_S
    seen.add([job("b", key="later")])

    assert seen.none_of([job("c", key="k")])


def test_a_full_filter_is_replaced_before_its_time() -> None:
    """P15: else it would take ever more keys for seen."""
    seen = Seen(100)
    for number in range(1000):
        seen.add([job("a", key=f"k{number}")])

    assert not seen.none_of([job("b", key="k999")])
    wrong = sum(not seen.none_of([job("b", key=f"new{number}")]) for number in range(2000))
    assert wrong < 200, "1 % of each of the two filters, and much room for chance"


def test_threads_lose_no_key() -> None:
    """Added from many threads while others ask."""
    seen, threads = Seen(100_000), []

    def work(name: int) -> None:
        for number in range(2000):
            mine = [job("a", key=f"{name}-{number}")]
            seen.add(mine)
            assert not seen.none_of(mine)

    for name in range(4):
        threads.append(threading.Thread(target=work, args=(name,)))
        threads[-1].start()
    for thread in threads:
        thread.join()

    lost = [
        (name, number)
        for name in range(4)
        for number in range(2000)
        if seen.none_of([job("a", key=f"{name}-{number}")])
    ]
    assert lost == []


def test_the_option_is_off_unless_asked_for() -> None:
    """And takes on or off, nothing else."""
    assert not parse("postgresql://h/d").bloom
    assert parse("postgresql://h/d?bloom=on").bloom
    with pytest.raises(ConfigError, match="bloom"):
        parse("postgresql://h/d?bloom=yes")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With how to install it."""
    monkeypatch.setitem(sys.modules, "rbloom", None)
    with pytest.raises(MissingExtra, match=r"holdfast\[bloom\]"):
        Seen(1000)


# -- the store with it -----------------------------------------------------------------------------


async def test_new_keys_are_taken_and_remembered(store: PostgresStore) -> None:
    """P12: the first makes the job; the second is answered by a look."""
    seen = Seen(1000)

    assert await add(store, seen, job("a", key="k"), job("b")) == [
        Enqueued("a", True),
        Enqueued("b", True),
    ]
    assert not seen.none_of([job("c", key="k")])
    assert await add(store, seen, job("c", key="k")) == [Enqueued("a", False)]


async def test_a_filter_that_is_wrong_makes_no_second_job(store: PostgresStore) -> None:
    """P12: known keys, alone, among new ones and twice in a call."""
    seen = Ignorant(1000)
    await add(store, seen, job("a", key="k"))

    assert await add(store, seen, job("b", key="k")) == [Enqueued("a", False)]
    assert await add(
        store, seen, job("c", key="x"), job("d", key="k"), job("e", key="x"), job("f")
    ) == [Enqueued("c", True), Enqueued("a", False), Enqueued("c", False), Enqueued("f", True)]
    [tally] = await store.count("acme")
    assert tally.counts[State.ENQUEUED] == 3


async def test_ids_are_asked_for_as_ever(store: PostgresStore, connect: Connect) -> None:
    """P12: living, ended, another's and twice in a call; and none of them leaves a key behind."""
    seen = Ignorant(1000)
    await add(store, seen, job("ended"))
    await complete(store)
    await add(store, seen, job("lives"))

    assert await add(store, seen, job("lives", key="k1")) == [Enqueued("lives", False)]
    assert await add(store, seen, job("ended", key="k2")) == [Enqueued("ended", False)]
    [conflict] = await add(store, seen, job("lives", key="k3", type="other"))
    assert isinstance(conflict.error, IdConflict)
    assert Seen.none_of(seen, [job("x", key="k3", type="other")])
    connection = await connect()
    assert await connection.fetchval("SELECT count(*) FROM keys") == 0
    assert await add(store, seen, job("a", key="k4"), job("a", key="k5")) == [
        Enqueued("a", True),
        Enqueued("a", False),
    ]
    assert await connection.fetchval("SELECT array_agg(key) FROM keys") == ["k4"]


async def test_a_key_of_an_ended_job_is_taken_over(store: PostgresStore) -> None:
    """P12: at once, or after its time where it has one."""
    seen, timed = Ignorant(1000), rules(key_us=HOUR)
    await add(store, seen, job("a", key="k"))
    await complete(store)
    assert await add(store, seen, job("b", key="k")) == [Enqueued("b", True)]
    await complete(store)

    await add(store, seen, job("c", key="t", rules=timed))
    await complete(store)
    assert await add(store, seen, job("d", key="t", rules=timed)) == [Enqueued("c", False)]
    store._clock.advance(HOUR / 1_000_000)  # type: ignore[union-attr]
    assert await add(store, seen, job("d", key="t", rules=timed)) == [Enqueued("d", True)]


async def test_a_cap_is_kept(store: PostgresStore) -> None:
    """A full tenant hears of its known key first, and a key that was refused is not remembered."""
    seen = Seen(1000)
    await ScopeHandle(store, Scope("acme")).set(max_queued=1)

    first, second = await add(store, seen, job("a", key="k"), job("b", key="new"))

    assert first.created
    assert isinstance(second.error, QueueFull)
    assert seen.none_of([job("c", key="new")])
    assert await add(store, Ignorant(1000), job("c", key="k")) == [Enqueued("a", False)]


async def test_many_at_once_make_one_job_for_each_key(store: PostgresStore) -> None:
    """P12: with filters that know nothing of each other, and keys in any order."""
    keys = [f"k{number}" for number in range(20)]

    async def all_keys(who: int) -> list[Enqueued]:
        turned = keys[who:] + keys[:who]
        return await add(store, Seen(1000), *(job(f"{who}-{key}", key=key) for key in turned))

    answers = await asyncio.gather(*(all_keys(who) for who in range(8)))

    assert sum(answer.created for each in answers for answer in each) == len(keys)
    assert len({answer.id for each in answers for answer in each}) == len(keys)
