"""Several processes on one file."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import Ref, Watch
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import ACME, finding, job

BOUND_S = 50.0


async def _lines(child: asyncio.subprocess.Process) -> list[list[str]]:
    out, _ = await child.communicate()
    assert child.returncode == 0
    return [line.split() for line in out.decode().splitlines()]


async def test_four_processes_share_the_jobs_and_none_runs_twice(
    store: SqliteStore, start: Any
) -> None:
    """P2: one lease per job, whichever process asks."""
    ids = [f"j{number}" for number in range(400)]
    await store.enqueue([job(id) for id in ids])

    async with asyncio.timeout(BOUND_S):
        children = [await start("take_all", f"w{number}") for number in range(4)]
        said = await asyncio.gather(*(_lines(child) for child in children))

    taken = Counter(id for lines in said for line in lines for id in line)
    assert taken == Counter(ids)


async def test_enqueues_of_one_key_from_several_processes_make_one_job(
    store: SqliteStore, start: Any
) -> None:
    """P12: the key is taken in the transaction that writes the job."""
    async with asyncio.timeout(BOUND_S):
        children = [await start("add_keyed", f"c{number}") for number in range(4)]
        said = await asyncio.gather(*(_lines(child) for child in children))

    made = [id.split("-")[1] for lines in said for line in lines for id in line]
    assert Counter(made) == Counter(str(number) for number in range(50))


async def test_a_sleeper_is_woken_by_an_enqueue_of_another_process(
    store: SqliteStore, start: Any
) -> None:
    """P10: nobody polls; the datagram is what wakes it long before its time-out."""
    async with asyncio.timeout(BOUND_S):
        sleeper = await start("sleep")
        assert sleeper.stdout is not None
        assert await sleeper.stdout.readline() == b"ready\n"
        await store.enqueue([job("a")])

        assert await _lines(sleeper) == [["a"]]


async def test_a_sleeper_here_is_woken_by_a_child(store: SqliteStore, start: Any) -> None:
    """P10: the other way round."""
    async with asyncio.timeout(BOUND_S):
        child = await start("add", "a", "b")
        assert child.stdin is not None
        waiting = asyncio.create_task(store.wait(Watch(), BOUND_S))
        child.stdin.write(b"go\n")
        await waiting
        said = await _lines(child)

    assert said == [["ready"], ["1", "1"]]
    assert len((await store.find(finding())).jobs) == 2


async def test_the_end_of_a_job_is_heard_in_other_processes(store: SqliteStore, start: Any) -> None:
    """P10: who waits for one job hears of its end, also when many end at once."""
    ids = [f"j{number}" for number in range(100)]
    await store.enqueue([job(id) for id in ids])

    async with asyncio.timeout(BOUND_S):
        waiting = asyncio.create_task(store.wait(Watch(job=Ref(ACME, "j99")), BOUND_S))
        child = await start("take_all", "w")
        await waiting
        await _lines(child)


async def test_killing_a_writer_loses_nothing_it_had_confirmed(
    store: SqliteStore, start: Any
) -> None:
    """P1: an enqueue that returned is kept, and each call is kept whole or not at all."""
    async with asyncio.timeout(BOUND_S):
        child = await start("stream")
        assert child.stdout is not None
        said = [(await child.stdout.readline()).decode().strip() for _ in range(40)]
        os.kill(child.pid, signal.SIGKILL)
        out, _ = await child.communicate()
    said += out.decode().split()

    found = (await store.find(finding(limit=1000))).jobs
    kept = Counter(record.id.split("-")[0] for record in found)
    assert set(said) <= set(kept)
    assert set(kept.values()) == {3}


async def test_many_processes_may_open_and_migrate_at_once(start: Any) -> None:
    """The schema is made once, in a transaction; the others find it there."""
    async with asyncio.timeout(BOUND_S):
        children = [await start("nothing") for _ in range(6)]
        said = await asyncio.gather(*(_lines(child) for child in children))

    assert said == [[["open"]]] * 6


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_a_directory_that_may_not_be_written_is_named(path: Path, start: Any) -> None:
    """The error says what is wrong, instead of failing at the first write."""
    os.chmod(path.parent, 0o755)
    async with asyncio.timeout(BOUND_S):
        said = await _lines(await start("nobody"))

    assert said[0][0] == "STORE_READ_ONLY"
    assert repr(str(path.parent)) in " ".join(said[0])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_a_file_that_may_not_be_written_is_refused(path: Path, start: Any) -> None:
    """The file may be readable and its directory writable: SQLite would fail at the first write."""
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    await store.close()
    os.chmod(path, 0o444)
    os.chmod(path.parent, 0o777)
    async with asyncio.timeout(BOUND_S):
        said = await _lines(await start("nobody"))

    assert said[0][0] == "STORE_READ_ONLY"
