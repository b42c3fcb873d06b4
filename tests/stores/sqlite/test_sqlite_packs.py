"""Packs: jobs that are alike wait in one row, and nobody can tell."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest
from tests.stores.parcels import GONE, check_counts, claimed, complete, fresh, ids, named
from tests.stores.sqlite.tables import rows

from holdfast.clock import SECOND
from holdfast.errors import QueueFull
from holdfast.job import EventKind, State
from holdfast.scope import Scope, ScopeSettings, encode
from holdfast.store import Put
from holdfast.stores.sqlite import packing, posting
from holdfast.stores.sqlite.layout import APPLICATION_ID
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, finding, job

# -- in --------------------------------------------------------------------------------------------


async def test_many_jobs_that_are_alike_wait_in_one_row(packed: SqliteStore, path: Path) -> None:
    """A batch of a hundred jobs is one row of packs and none of jobs."""
    await packed.enqueue(fresh(*named(0, 100)))
    await check_counts(packed, enqueued=100)

    assert (rows(path, "packs"), rows(path, "jobs")) == (1, 0)


async def test_a_posted_job_is_seen_at_once(packed: SqliteStore, path: Path) -> None:
    """Who looks after an enqueue returned sees the job, in every way there is to look."""
    await packed.enqueue(fresh("a"))
    assert rows(path, "posted") == 1

    page = await packed.find(finding())
    assert [one.id for one in page.jobs] == ["a"]
    (event,) = (await packed.events(ACME, 0, 10)).events
    assert (event.kind, event.job_id) == (EventKind.ENQUEUED, "a")
    await check_counts(packed, enqueued=1)


async def test_jobs_posted_one_by_one_are_gathered_with_their_own_times(
    packed: SqliteStore, clock: ManualClock, path: Path
) -> None:
    """Twenty single enqueues make one pack; each job keeps its instant and its place."""
    started = clock.now()
    for id in named(0, 20):
        await packed.enqueue(fresh(id))
        clock.advance(1)
    leases = await claimed(packed, 5)

    assert (rows(path, "packs"), rows(path, "contents")) == (1, 1)
    assert ids(leases) == named(0, 5)
    assert [one.job.created_at - started for one in leases] == [n * SECOND for n in range(5)]


async def test_a_cap_that_another_process_has_set_is_kept(packed: SqliteStore, path: Path) -> None:
    """Settings are looked at in the step that keeps the job, also where it is posted."""
    await packed.enqueue(fresh("a"))
    other = SqliteStore.from_url(f"sqlite:///{path}")
    await other.open()
    await other.settings([Put(Scope(ACME).name, encode(ScopeSettings(max_queued=2)), 0)])
    await other.close()

    answers = [(await packed.enqueue(fresh(id)))[0] for id in ("b", "c")]

    assert answers[0].created
    assert isinstance(answers[1].error, QueueFull)


async def test_a_locked_file_makes_an_enqueue_wait_not_fail(
    packed: SqliteStore, path: Path
) -> None:
    """While somebody else writes, the call goes to the writer, who is patient."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        poster = packed._poster
        assert poster is not None
        parcels = poster.parcels(fresh("a"))
        assert parcels is not None
        assert poster.post(parcels) is None
        other.execute("ROLLBACK")
    assert (await packed.enqueue(fresh("a")))[0].created
    await check_counts(packed, enqueued=1)


async def test_what_comes_after_the_close_is_left_to_the_writer(
    packed: SqliteStore, path: Path
) -> None:
    """A call that another thread makes meanwhile is answered by the writer, as long as it can."""
    assert packed._poster is not None
    packed._poster.close()

    assert (await packed.enqueue(fresh("a")))[0].created
    assert ids(await claimed(packed, 1)) == ["a"]
    assert rows(path, "posted") == 0


async def test_a_bug_in_the_short_way_leaves_no_transaction_open(
    packed: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call fails with what was wrong; the next one works."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    await packed.enqueue(fresh("a"))
    with monkeypatch.context() as patch:
        patch.setattr(posting, "take_posted", broken)
        with pytest.raises(RuntimeError, match="a bug"):
            await claimed(packed, 1)

    await packed.enqueue(fresh("b"))
    assert ids(await claimed(packed, 2, "again")) == ["a", "b"]


async def test_when_writes_are_slow_the_writer_is_asked(
    packed: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that stood still too long is left alone for a while."""
    monkeypatch.setattr(posting, "SLOW_S", 0.0)
    monkeypatch.setattr(posting, "REST_S", 10.0**9)
    monkeypatch.setattr(posting, "_starved_s", lambda: 0.0)
    await packed.enqueue(fresh("a"))
    assert rows(path, "posted") == 1

    await packed.enqueue(fresh("b"))

    assert rows(path, "posted") == 0
    await check_counts(packed, enqueued=2)


async def test_what_lies_unfiled_is_bounded(packed: SqliteStore, path: Path) -> None:
    """Every so many enqueues the writer files what was posted, though nobody claims."""
    assert packed._poster is not None
    packed._poster.posts_max = 10
    for id in named(0, 35):
        await packed.enqueue(fresh(id))
        assert rows(path, "posted") < 10


# -- order -----------------------------------------------------------------------------------------


async def test_a_pack_leaves_nothing_behind(packed: SqliteStore, path: Path) -> None:
    """When its last job is done, no row of it is left."""
    await packed.enqueue(fresh(*named(0, 100)))
    leases = [*await claimed(packed, 60, "a"), *await claimed(packed, 60, "b")]
    for start in (0, 90, 25, 60):
        await complete(packed, leases[start : start + 40])

    await complete(packed, leases)
    assert [rows(path, name) for name in ("posted", "contents", "packs", "pieces", "jobs")] == [
        0
    ] * 5
    assert await packed.count(ACME) == []


# -- opened ----------------------------------------------------------------------------------------


async def test_pages_walk_over_packs_and_open_few(packed: SqliteStore, path: Path) -> None:
    """Each page opens what it shows; the rest of a long queue stays packed."""
    for start in range(0, 800, 100):
        await packed.enqueue(fresh(*named(start, start + 100)))
    page = await packed.find(finding(limit=60, newest_first=False))
    assert [one.id for one in page.jobs] == named(0, 60)
    assert rows(path, "packs") == 7
    second = await packed.find(finding(limit=60, newest_first=False, after=page.cursor))
    assert [one.id for one in second.jobs] == named(60, 120)
    last = await packed.find(finding(limit=10, newest_first=True))
    assert [one.id for one in last.jobs] == named(790, 800)[::-1]


async def test_a_page_of_running_jobs_leaves_waiting_packs_alone(
    packed: SqliteStore, path: Path
) -> None:
    """Only packs that claims hold pieces of are opened for it."""
    await packed.enqueue(fresh(*named(0, 100)))
    await packed.enqueue(fresh(*named(100, 200)))
    await claimed(packed, 20)

    page = await packed.find(finding(limit=50, states=(State.PROCESSING,)))

    assert [one.id for one in page.jobs] == named(0, 20)[::-1]
    assert {one.lease_until for one in page.jobs} != {None}
    assert rows(path, "packs") == 1


# -- names -----------------------------------------------------------------------------------------

OURS = "0190f5fe-7c00-7a3d-b3c5-000000000001"


def test_ids_of_one_second_are_close() -> None:
    """Ids that were made within a second make a pack that is found by time."""
    soon = OURS.replace("7c00", "7dff")
    assert packing.span([soon, OURS]) == (False, OURS, soon)
    below = packing.latest(OURS)
    assert below is not None
    assert OURS < soon < below


@pytest.mark.parametrize("other", ["j1", OURS.replace("7c00", "9c00"), OURS.replace("-7a", "-4a")])
def test_other_ids_make_a_loose_pack(other: str) -> None:
    """Ids that say nothing of time, or were made far apart, are looked for in all such packs."""
    loose, first, last = packing.span([other, OURS])
    assert loose
    assert [first, last] == sorted([other, OURS])


# -- upgrade ---------------------------------------------------------------------------------------


async def test_a_file_of_the_first_version_is_brought_up(path: Path) -> None:
    """Its jobs stay, and new ones are packed."""
    first = resources.files("holdfast.stores.sqlite").joinpath("migrations/0001_jobs.sql")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(first.read_text("utf-8"))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    await store.enqueue([job("old", rules=GONE)])
    await store.enqueue(fresh(*named(0, 20)))

    assert ids(await claimed(store, 100)) == ["old", *named(0, 20)]
    await store.close()
