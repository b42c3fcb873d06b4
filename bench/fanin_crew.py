"""The processes of `bench.fanin`: workers that repeat calls and are killed, and a client.

`python -m bench.fanin_crew worker URL FOLDER` works until it is told to stop. `... client URL
FOLDER FORM CHILDREN NUMBER` starts so many fan-ins of this form, each of them twice, awaits their
ends and prints what memory it took. Both write down in FOLDER, outside of the store, what they did.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

from holdfast import App, Batch, Context, Flow, RetryPolicy
from holdfast.core.bounds import BATCH_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.worker import Worker
from holdfast.worker.signals import draining

ROOT = Path(__file__).parent.parent
DOUBLED = 0.05
"""The part of acks and enqueues that is repeated."""
LEASE_S = 3.0
CONCURRENCY = 50
IN_FLIGHT = 4
"""Fan-ins at the same time."""
WAIT_S = 600.0
LINE = len("ran 1\n")
FORMS = ("map", "flow", "batch")
"""`ctx.map`, `flow.map`, and a batch of nodes."""
TENANT = "acme"
HOWS = ("within", "beside", "after")
"""When a repeat comes: in the same call, in one at the same time, or in a later one."""


class Recorder:
    """The outside: carries out each effect once, and knows how often it was asked for it.

    An effect is refused if a run with a higher fence has asked for it before.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "effects.db"
        with closing(self._open()) as db, db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS effects (name TEXT, key TEXT, fence INTEGER,"
                " asked INTEGER, stale INTEGER, PRIMARY KEY (name, key))"
            )

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    def call(self, name: str, key: str, fence: int) -> None:
        with closing(self._open()) as db, db:
            db.execute(
                "INSERT INTO effects VALUES (?, ?, ?, 1, 0) ON CONFLICT DO UPDATE SET"
                " asked = asked + 1, stale = stale + (excluded.fence < fence),"
                " fence = max(fence, excluded.fence)",
                (name, key, fence),
            )

    def effects(self) -> list[tuple[str, int, int]]:
        """Of each effect that was carried out: its name, how often it was asked for, and how often
        by a run that had lost its lease.
        """
        with closing(self._open()) as db:
            return list(db.execute("SELECT name, asked, stale FROM effects"))


class Diary:
    """What the processes did, a line each: a process that is killed has lost none of its lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    def write(self, word: str, number: int = 1) -> None:
        if self._file is None:
            path = self._folder / f"{os.getpid()}.diary"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._file, f"{word} {number}\n".encode())

    def progress(self) -> int:
        """About how many children ran, without reading it all."""
        return sum(path.stat().st_size for path in self._folder.glob("*.diary")) // LINE

    def read(self) -> Counter[str]:
        """The numbers of all processes, added up by their words."""
        found: Counter[str] = Counter()
        for path in self._folder.glob("*.diary"):
            for line in path.read_text().splitlines():
                word, number = line.split()
                found[word] += int(number)
        return found


class Doubling:
    """A store that gets a part of the acks and enqueues twice."""

    def __init__(self, real: Store, diary: Diary) -> None:
        self._real = real
        self._diary = diary

    @property
    def capabilities(self) -> Capabilities:
        return self._real.capabilities

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._real, verb)

    async def ack(self, transitions: Sequence[Any]) -> list[Any]:
        how = random.choice(HOWS)
        return await self._twice("ack", how, self._real.ack, transitions, _some(transitions))

    async def enqueue(self, jobs: Sequence[Any], *, whole: bool = False) -> list[Any]:
        if whole:  # Only all of it can be repeated. There are few such calls, so each one is.
            call = partial(self._real.enqueue, whole=True)
            return await self._twice("enqueue", random.choice(HOWS[1:]), call, jobs, list(jobs))
        how = random.choice(HOWS)
        again = _some(jobs)
        if how == "beside":  # Who repeats a call before its answer repeats the whole of it.
            again = list(jobs) if random.random() < DOUBLED else []
        return await self._twice("enqueue", how, self._real.enqueue, jobs, again)

    async def _twice(
        self, verb: str, how: str, call: Callable[..., Any], items: Sequence[Any], again: list[Any]
    ) -> list[Any]:
        if again:
            self._diary.write(verb, len(again))
        if how == "within" and len(items) + len(again) <= BATCH_MAX:
            return list(await call([*items, *again]))[: len(items)]
        if how == "beside" and again:
            return list((await asyncio.gather(call(items), call(again)))[0])
        answers: list[Any] = await call(items)
        if again:
            await call(again)
        return answers


def _some(items: Sequence[Any]) -> list[Any]:
    return [item for item in items if random.random() < DOUBLED]


def make_app(store: str | Store, folder: Path) -> App:
    """The app of all processes."""
    # The list that a map of a flow goes over is a result.
    app = App(
        store,
        lease_s=LEASE_S,
        leader_s=1.0,
        max_attempts=1000,
        result_max=1 << 20,
        concurrency=CONCURRENCY,
    )
    again = RetryPolicy(base_s=0.0, cap_s=0.0)
    recorder, diary = Recorder(folder), Diary(folder)

    async def call(name: str, ctx: Context) -> None:
        recorder.call(f"{name} {ctx.job_id}", ctx.effect_key, ctx.fence)

    @app.job(queue="children", retry=again)
    async def child(ctx: Context, number: int) -> int:
        diary.write("ran")
        return number

    @app.job(queue="parents", retry=again)
    async def parent(ctx: Context, number: int) -> int:
        found = await ctx.map("all", child, range(number))
        assert found == list(range(number))
        await call("callback", ctx)
        return number

    @app.job(queue="parents", retry=again)
    async def listing(ctx: Context, number: int) -> list[int]:
        return list(range(number))

    @app.job(queue="parents", retry=again)
    async def callback(ctx: Context) -> None:
        await call("callback", ctx)

    @app.job(queue="parents", retry=again)
    async def last(ctx: Context) -> None:
        await call("last", ctx)

    return app


async def fan_in(app: App, form: str, children: int, number: int) -> None:
    """Starts one fan-in, and at the same time once more; returns when it has ended."""
    acme, kinds = app.tenant(TENANT), app.registry
    child, parent, listing, callback, last = (
        kinds.named(name).kind  # type: ignore[union-attr]
        for name in ("child", "parent", "listing", "callback", "last")
    )

    async def once() -> str:
        if form == "map":
            made = await acme.enqueue(parent(number=children), id=f"map-{number}")
            return str(made.id)
        if form == "flow":
            flow = Flow("flow", key=f"{number}")
            fanned = flow.map(child, over=flow.add(listing(number=children)))
            flow.add(callback(), after=fanned)
            flow.finally_(last())
            return (await acme.start(flow)).id
        batch = Batch("batch", key=f"{number}")
        batch.add_many(child(number=each) for each in range(children))
        batch.then(callback(), on_failure="fail")
        return (await acme.start(batch)).id

    id, same = await asyncio.gather(once(), once())
    assert id == same
    await acme.wait(id, timeout=WAIT_S)


def run_worker(url: str, folder: Path) -> subprocess.Popen[bytes]:
    """A worker process."""
    command = [sys.executable, "-m", "bench.fanin_crew", "worker", url, str(folder)]
    return subprocess.Popen(command, cwd=ROOT)


async def run_client(url: str, folder: Path, form: str, children: int, number: int) -> float:
    """Has fan-ins started and awaited by a process of its own; returns its peak memory in MB."""
    command = ["-m", "bench.fanin_crew", "client", url, str(folder), form, f"{children}"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, f"{number}", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the client ended with {process.returncode}")
    return float(json.loads(said))


def peak_mb(pid: int) -> float:
    """The peak memory of a living process, since its program was loaded."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0  # It has just ended.


async def _work(url: str, folder: Path) -> None:
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # Each doubled ack is a warning.
    store = cast(Store, Doubling(open_store(url).inner, Diary(folder)))
    worker = Worker(make_app(store, folder))
    with draining(worker.stop):
        await worker.run()


async def _start_all(url: str, folder: Path, form: str, children: int, number: int) -> None:
    store = cast(Store, Doubling(open_store(url).inner, Diary(folder)))
    app = make_app(store, folder)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one(each: int) -> None:
        async with places:
            await fan_in(app, form, children, each)

    async with app:
        await asyncio.gather(*map(one, range(number)))
    print(peak_mb(os.getpid()))


def main(role: str, url: str, folder: str, *rest: str) -> None:
    if role == "worker":
        asyncio.run(_work(url, Path(folder)))
    else:
        form, children, number = rest
        asyncio.run(_start_all(url, Path(folder), form, int(children), int(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
