"""Files and sockets: made for their owner alone, and those of others are left alone."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.finding import Level
from holdfast.store import Claim
from holdfast.stores.sqlite.doctor import examine
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import LEASE, job


@pytest.fixture(params=[0, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


async def test_a_new_database_is_its_owners_alone(umask: int, path: Path) -> None:
    """P19: the file and what SQLite keeps beside it, whatever the umask is."""
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    await store.enqueue([job("a")])

    modes = {each.name: mode(each) for each in path.parent.iterdir()}

    await store.close()
    assert modes == dict.fromkeys(("jobs.db", "jobs.db-wal", "jobs.db-shm"), 0o600)


async def test_sockets_are_their_owners_alone(umask: int, path: Path) -> None:
    """P19: also the folder that they are in."""
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    assert store._processes.listen()
    folder = path.with_name("jobs.db-wake")
    modes = {mode(folder), *(mode(each) | 0o100 for each in folder.iterdir())}
    sockets = len(list(folder.iterdir()))

    await store.close()
    assert (modes, sockets) == ({0o700}, 1)


@pytest.fixture
def readable(path: Path) -> Path:
    """An empty file that others may read."""
    path.touch()
    path.chmod(0o644)
    return path


async def test_a_file_that_others_may_open_is_told_and_not_changed(readable: Path) -> None:
    """P19: whoever gave it that mode may have meant it."""
    path, store = readable, SqliteStore.from_url(f"sqlite:///{readable}")
    await store.open()

    found = await examine(store)
    await store.close()

    assert mode(path) == 0o644
    assert [each.level for each in found if each.what == "access"] == [Level.WARNING]


async def test_a_store_closes_after_its_socket_was_removed(path: Path) -> None:
    """P15: the thread that reads it ends all the same."""
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    assert store._processes.listen()
    [bound] = path.with_name("jobs.db-wake").iterdir()
    bound.unlink()

    await store.close()

    assert not any(each.name == "holdfast-wake" for each in threading.enumerate())


@pytest.fixture
def theirs(path: Path) -> Iterator[socket.socket]:
    """A socket in a folder for sockets that others may enter."""
    folder = path.with_name("jobs.db-wake")
    folder.mkdir()
    folder.chmod(0o777)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(folder / "1-them.sock"))
        bound.setblocking(False)
        yield bound


async def test_nothing_is_told_in_a_folder_that_others_may_enter(
    path: Path, theirs: socket.socket
) -> None:
    """P7: hints name tenants, queues and jobs; workers poll instead, and the doctor says why."""
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    await store.enqueue([job("a")])
    leases = await store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=LEASE))
    found = await examine(store)
    await store.close()

    assert len(leases) == 1
    with pytest.raises(BlockingIOError):
        theirs.recv(1024)
    told = next(each for each in found if each.what == "wake-up")
    assert (told.level, "jobs.db-wake" in told.words) == (Level.WARNING, True)
