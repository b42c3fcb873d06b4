"""Wake-ups between stores on one file: two in one process are as far apart as two processes."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from holdfast.store import Ref, Watch
from holdfast.stores.sqlite import notify
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, job

BOUND_S = 20.0
SLEEP_S = 50.0


async def _asleep(store: SqliteStore, watch: Watch) -> asyncio.Task[None]:
    """A task that has lain down: its look around has been answered."""
    task = asyncio.create_task(store.wait(watch, SLEEP_S))
    await asyncio.sleep(0)  # It has asked; the lane answers in order.
    assert store._notifier._sleepers
    await store._mine(store._readers).peek(lambda connection, now: None)
    return task


async def test_a_store_without_sleepers_binds_nothing(store: SqliteStore, path: Path) -> None:
    """Who only enqueues leaves no socket behind, and sends nothing where nobody sleeps."""
    await store.enqueue([job("a")])

    assert not path.with_name("jobs.db-wake").exists()


async def test_work_for_others_does_not_wake_a_sleeper(
    store: SqliteStore, other: SqliteStore
) -> None:
    """The datagram names the lines: a thousand idle workers stay asleep."""
    async with asyncio.timeout(BOUND_S):
        sleeper = await _asleep(other, Watch(queues=("audio",)))
        await store.enqueue([job("a", queue="mail")])
        await store.enqueue([job("b", queue="audio")])
        await sleeper

    assert sleeper.done()


async def test_more_ends_than_fit_still_wake_who_waits_for_one(
    store: SqliteStore, other: SqliteStore
) -> None:
    """A datagram that cannot name all says so, and every waiter for a job looks again."""
    ids = [f"j{number}" for number in range(notify.HINTS_MAX + 1)]
    await store.enqueue([job(id) for id in ids])

    async with asyncio.timeout(BOUND_S):
        sleeper = await _asleep(other, Watch(job=Ref(ACME, ids[-1])))
        await store.cancel([Ref(ACME, id) for id in ids])
        await sleeper


async def test_more_lines_than_fit_wake_everybody(store: SqliteStore, other: SqliteStore) -> None:
    """Better in vain than not at all."""
    async with asyncio.timeout(BOUND_S):
        sleeper = await _asleep(other, Watch(tenants=("t0",)))
        await store.enqueue(
            [job("a", tenant=f"t{number}") for number in range(notify.HINTS_MAX + 1)]
        )
        await sleeper


async def test_the_socket_of_a_killed_process_is_cleared_away(
    store: SqliteStore, path: Path
) -> None:
    """It refuses the datagram; the verb does not notice."""
    folder = path.with_name("jobs.db-wake")
    folder.mkdir(0o700)
    dead = folder / "1-dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(dead))

    await store.enqueue([job("a")])
    await store.enqueue([job("b")])  # Answered after the first one's ring.

    assert not dead.exists()


async def test_a_sleeper_that_does_not_listen_never_blocks_the_writer(
    store: SqliteStore, path: Path
) -> None:
    """A stopped process fills its buffer; hints are dropped then, jobs are not."""
    folder = path.with_name("jobs.db-wake")
    folder.mkdir(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(folder / "1-deaf.sock"))

        async with asyncio.timeout(BOUND_S):
            for number in range(300):
                assert (await store.enqueue([job(f"j{number}")]))[0].created


async def test_nonsense_in_a_datagram_is_only_a_wake_up(store: SqliteStore) -> None:
    """Whatever arrives on the socket can do no more than make sleepers look."""
    async with asyncio.timeout(BOUND_S):
        sleeper = await _asleep(store, Watch())
        assert store._processes._receiver is not None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"\xff{", store._processes._receiver.path)
        await sleeper


async def test_a_path_too_long_for_a_socket_uses_the_temporary_directory(
    tmp_path: Path,
) -> None:
    """Two stores of the same file still find each other."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    first, second = (SqliteStore.from_url(f"sqlite:///{deep / 'jobs.db'}") for _ in range(2))
    await first.open()
    await second.open()

    async with asyncio.timeout(BOUND_S):
        sleeper = await _asleep(second, Watch())
        assert second._processes._receiver is not None
        folder = Path(second._processes._receiver.path).parent
        await first.enqueue([job("a")])
        await sleeper
    await first.close()
    await second.close()

    assert second.capabilities.native_wakeup
    assert not folder.is_relative_to(tmp_path)
    assert folder not in folder.parent.iterdir()


async def test_without_sockets_sleepers_poll_and_the_store_says_so(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a sleep ends after a second, so that work of other processes is found."""
    monkeypatch.delattr(socket, "AF_UNIX")

    async with asyncio.timeout(BOUND_S):
        await store.wait(Watch(), SLEEP_S)

    assert not store.capabilities.native_wakeup
