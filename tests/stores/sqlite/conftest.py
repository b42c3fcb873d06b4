"""A database file of its own for each test, and child processes that work on it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.sqlite.cost import Cost

from holdfast.stores.sqlite.connection import open_writer
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock

CHILDREN = Path(__file__).with_name("children.py")

Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
def path() -> Iterator[Path]:
    """In a folder with a short name: that of a worker's `tmp_path` is too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        yield Path(folder) / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """An open, empty store on the system's clock."""
    store = SqliteStore.from_url(f"sqlite:///{path}")
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(store: SqliteStore, path: Path) -> AsyncIterator[SqliteStore]:
    """A second store on the same file, as another process has it."""
    other = SqliteStore.from_url(f"sqlite:///{path}")
    await other.open()
    yield other
    await other.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def start(path: Path) -> AsyncIterator[Start]:
    """Starts a child of `children.py` by name; whatever still runs at the end is killed."""
    started: list[asyncio.subprocess.Process] = []

    async def start(name: str, *words: str) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            str(CHILDREN),
            name,
            str(path),
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGKILL)
        await child.communicate()


@pytest.fixture
def cost(tmp_path: Path) -> Iterator[Callable[[], Cost]]:
    opened: list[Cost] = []

    def make() -> Cost:
        path = tmp_path / f"{len(opened)}.db"
        opened.append(Cost(open_writer(Options(path=str(path), synchronous="normal"))))
        return opened[-1]

    yield make
    for each in opened:
        with closing(each.connection):
            pass
