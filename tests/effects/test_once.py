"""Objects that are written once, whoever repeats them (P4)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context
from holdfast.core.errors import InvalidInput
from holdfast.effects import object_name, put_once, put_once_sync
from holdfast.testing import ManualClock, drain


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_the_first_write_of_a_file_stays(tmp_path: Path) -> None:
    """A repeat is told, and leaves no part of itself."""
    assert await put_once(tmp_path, "a/b/receipt.txt", b"first")
    assert not await put_once(str(tmp_path), "a/b/receipt.txt", b"second")
    assert not put_once_sync(tmp_path, "a/b/receipt.txt", b"third")

    assert (tmp_path / "a/b/receipt.txt").read_bytes() == b"first"
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["receipt.txt"]


def test_of_many_writers_one_writes_and_all_of_it(tmp_path: Path) -> None:
    """A reader sees a whole object or none, also while threads race."""
    bodies = [bytes([number]) * 200_000 for number in range(8)]
    start, done = threading.Barrier(len(bodies)), list[bool]()

    def write(body: bytes) -> None:
        start.wait()
        done.append(put_once_sync(tmp_path, "object", body))

    threads = [threading.Thread(target=write, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(done) == [False] * 7 + [True]
    assert (tmp_path / "object").read_bytes() in bodies
    assert len(list(tmp_path.iterdir())) == 1


async def test_retries_of_a_job_write_the_same_object_and_other_jobs_another(
    tmp_path: Path,
) -> None:
    """P4: the name comes from the effect key; a worker that was cut off changes nothing."""
    wrote: list[bool] = []
    clock = ManualClock()
    app = App("memory://", clock=clock, max_attempts=3)

    @app.job
    async def report(ctx: Context[Any]) -> None:
        name = object_name(ctx, "report.txt")
        wrote.append(await put_once(tmp_path, name, f"attempt {ctx.attempt}".encode()))
        if ctx.attempt < 3:
            raise ValueError("after the effect")

    async with app:
        for id in ("one", "two"):
            await app.tenant("acme").enqueue(report(), id=id)
        for _ in range(3):
            await drain(app)
            clock.advance(3600)

    found = [path.read_bytes() for path in files(tmp_path)]
    assert (found, sorted(wrote)) == ([b"attempt 1"] * 2, [False] * 4 + [True] * 2)


async def test_object_stores_refuse_a_name_that_is_taken(tmp_path: Path) -> None:
    """By a conditional put, which the store decides."""
    stores = pytest.importorskip("obstore.store")
    for store in (stores.MemoryStore(), stores.LocalStore(str(tmp_path))):
        assert await put_once(store, "a/receipt.txt", b"first")
        assert not await put_once(store, "a/receipt.txt", b"second")
        assert not await asyncio.to_thread(put_once_sync, store, "a/receipt.txt", b"third")
        assert bytes((await store.get_async("a/receipt.txt")).bytes()) == b"first"


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../up", "a/../../b", "a\nb", "a\\b", "./a", "x" * 513], ids=repr
)
async def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    """P7: part of a name may come from a payload."""
    with pytest.raises(InvalidInput, match="name"):
        await put_once(tmp_path / "in", name, b"x")

    assert files(tmp_path) == []


async def test_what_is_no_place_is_refused_by_its_kind() -> None:
    """The error names what it got."""
    with pytest.raises(InvalidInput, match=r"is a builtins\.object; must be a store of obstore"):
        await put_once(object(), "a", b"x")
