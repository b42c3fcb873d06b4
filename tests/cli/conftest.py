"""What the tests of the command line share: a store on disk, calls in this process, and workers."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result

from holdfast import operate
from holdfast.cli.main import cli
from holdfast.core.job import Envelope, JobRecord, Lease, NewJob, Rules, State
from holdfast.core.lifecycle import Transition
from holdfast.store import Claim, Find, Selection, Store
from holdfast.stores import open_store

HERE = Path(__file__).parent
PATIENCE_S = 30.0

T = TypeVar("T")


class Shelf:
    """A SQLite file with jobs on it, reached without the command line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def use(self, act: Callable[[Store], Awaitable[T]]) -> T:
        """What `act` gives, with the store open."""

        async def main() -> T:
            async with self._opened() as store:
                return await act(store)

        return asyncio.run(main())

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Store]:
        store = open_store(self.url)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    def add(self, id: str, tenant: str = "acme", **options: Any) -> str:
        """Enqueues one job of the type `greet`."""
        job = NewJob(
            tenant=tenant,
            id=id,
            queue=options.pop("queue", "default"),
            envelope=Envelope(options.pop("type", "greet"), "json", 1, b'{"name":"Ada"}'),
            rules=options.pop("rules", Rules()),
            **options,
        )
        self.use(lambda store: store.enqueue([job]))
        return id

    def lease(self, limit: int = 1) -> list[Lease]:
        """Leases the jobs that come next."""
        claim = Claim(
            worker="w1", nonce=f"secret{secrets.token_hex(8)}", limit=limit, lease_us=60_000_000
        )
        return self.use(lambda store: store.claim(claim))

    def settle(self, lease: Lease, to: State, **more: Any) -> None:
        job = lease.job
        change = Transition(tenant=job.tenant, id=job.id, token=lease.token, to=to, **more)
        [answer] = self.use(lambda store: store.ack([change]))
        assert answer.error is None

    def bury(self, *ids: str, **options: Any) -> None:
        """Makes dead letters."""
        for id in ids:
            self.add(id, **options)
            [lease] = self.lease()
            self.settle(lease, State.FAILED, error="ValueError: no good")

    def get(self, id: str) -> JobRecord:
        return self.use(lambda store: operate.timeline(store, id)).job

    def all(self) -> list[JobRecord]:
        find = Find(select=Selection(tenant=None), newest_first=False)
        return list(self.use(lambda store: store.find(find)).jobs)


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def hear_interrupts() -> None:
    """A shell that runs the tests in the background has them ignore SIGINT, and their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "jobs.db")
    made.use(lambda store: store.migrate())
    return made


@pytest.fixture
def run(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls a command in this process, on the shelf's store."""
    monkeypatch.delenv("HOLDFAST_APP", raising=False)
    monkeypatch.setenv("HOLDFAST_STORE", shelf.url)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, prog_name="holdfast")

    return call


@pytest.fixture
def in_shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands where `shop:app` can be imported."""
    monkeypatch.chdir(HERE)


class Process:
    """A `holdfast` process under test; it talks to a file, so that it never blocks on a pipe."""

    def __init__(self, log: Path, url: str, *arguments: str) -> None:
        self.log = log
        env = {**os.environ, "HOLDFAST_STORE": url}
        env.pop("HOLDFAST_APP", None)
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *arguments],
                cwd=HERE,
                env=env,
                stdout=output,
                stderr=output,
            )

    def said(self) -> str:
        return self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def ended(self) -> int:
        return self.popen.wait(PATIENCE_S)

    def stop(self) -> None:
        """The end of the test: nothing is left, whatever happened."""
        if self.popen.poll() is None:
            self.popen.kill()  # What it started is tied to it and ends too.
            self.popen.wait()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, shelf: Shelf) -> Iterator[Start]:
    """Starts `holdfast` processes on the shelf's store, and ends them after the test."""
    started: list[Process] = []

    def one(*arguments: str) -> Process:
        process = Process(tmp_path / f"{len(started)}.log", shelf.url, *arguments)
        started.append(process)
        return process

    yield one
    for process in started:
        process.stop()


Until = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def until() -> Until:
    """Looks again and again until there is something to see; fails after a bounded time."""

    def look(see: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if seen := see():
                return seen
            time.sleep(0.02)
        pytest.fail("not seen in time")

    return look
