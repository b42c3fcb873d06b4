"""`python -m bench.fanin`: wide joins under duplicates and kills, judged by a recorder outside.

For each store: `ctx.map` and `flow.map` over 10,000 and 100,000 children, a batch of 1,000 and
9,999 nodes, and a hundred joins of a thousand. Three worker processes repeat 5 % of the acks and
enqueues, each start is made twice, and workers are killed with SIGKILL all the time. Printed: how
often the callbacks ran, what was left, the time of the joins and the peak memory.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.fanin_crew import (
    FORMS,
    TENANT,
    Diary,
    Recorder,
    make_app,
    peak_mb,
    run_client,
    run_worker,
)
from bench.places import Missing, place
from bench.run_info import say
from holdfast import App
from holdfast.audit import Audit
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.flow import ITEMS, flow_id, node_id
from holdfast.core.job import TERMINAL, Event, EventKind
from holdfast.core.journal import await_join
from holdfast.journal_map import child_id
from holdfast.store import Find, Selection, Store

STORES = ("sqlite-full", "postgres", "redis")
JOINS = "joins"
"""Many maps, a few at the same time."""
WORKERS = 3
KILLS = 12
"""Of one measurement, at random instants of its progress."""
EACH = 300
"""Children for each kill at least."""
LOOK_S = 0.02


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: so many fan-ins of this form."""

    form: str
    children: int
    number: int = 1

    @property
    def kills(self) -> int:
        return min(KILLS, self.children * self.number // EACH)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one measurement found."""

    shape: Shape
    seconds: float
    callbacks: int
    """Effects of callbacks, by effect key; one for each fan-in is right."""
    lasts: int
    """Effects of last jobs: of each flow one."""
    asked: int
    """How often all these effects were asked for: more, if a worker died after one."""
    stale: int
    """How often by a run that had lost its lease."""
    completed: int
    """Children that completed."""
    completions: int
    """How often children completed: as many, if none did twice."""
    ran: int
    """How often children ran: more, if their workers died before the ack."""
    doubled: dict[str, int]
    kills: int
    rescued: int
    breaches: Sequence[str]
    left: int
    """Jobs that have not ended."""
    claimable_ms: Sequence[float]
    """Of each join: from the last ack of a child until its job could be claimed."""
    leased_ms: Sequence[float]
    """Of each join: from the last ack of a child until its job was claimed."""
    worker_mb: float
    client_mb: float

    @property
    def faults(self) -> list[str]:
        """What is not as it must be."""
        shape = self.shape
        wanted = shape.children * shape.number
        lasts = shape.number if shape.form == "flow" else 0
        checks = (
            (self.callbacks == shape.number, f"{self.callbacks} callbacks"),
            (self.lasts == lasts, f"{self.lasts} last jobs"),
            (self.completed == wanted, f"{self.completed} children of {wanted} completed"),
            (self.completions == self.completed, "a child completed twice"),
            (self.left == 0, f"{self.left} jobs left"),
        )
        return [words for fine, words in checks if not fine] + list(self.breaches[:10])


async def fan_in(url: str, shape: Shape, seed: int = 19) -> Found:
    """One measurement on an empty store that several processes can open."""
    with tempfile.TemporaryDirectory(prefix="holdfast-fanin-") as name:
        folder = Path(name)
        app = make_app(url, folder)
        async with app:
            begun = time.perf_counter()
            ran = await _under_kills(url, folder, shape, random.Random(seed))
            seconds = time.perf_counter() - begun
            diary, effects = Diary(folder).read(), Recorder(folder).effects()
            log = _Log()
            await log.read(app.store)
            left = await _left(app.store)
            joins = [await _join(app, shape, each) for each in range(shape.number)]
            times = [found for one in joins if (found := log.times(one)) is not None]
    asked = [asked for _, asked, _ in effects]
    return Found(
        shape=shape,
        seconds=seconds,
        callbacks=sum(name.startswith("callback ") for name, _, _ in effects),
        lasts=sum(name.startswith("last ") for name, _, _ in effects),
        asked=sum(asked),
        stale=sum(stale for _, _, stale in effects),
        completed=len(log.ended),
        completions=log.completions,
        ran=diary["ran"],
        doubled={"ack": diary["ack"], "enqueue": diary["enqueue"]},
        kills=ran.kills,
        rescued=log.audit.counts.get(EventKind.RESCUED, 0),
        breaches=[breach.words for breach in log.audit.breaches],
        left=left,
        claimable_ms=sorted(ready / 1000 for ready, _ in times),
        leased_ms=sorted(leased / 1000 for _, leased in times),
        worker_mb=ran.worker_mb,
        client_mb=ran.client_mb,
    )


class _Ran(msgspec.Struct):
    kills: int = 0
    worker_mb: float = 0.0
    client_mb: float = 0.0


async def _under_kills(url: str, folder: Path, shape: Shape, chance: random.Random) -> _Ran:
    """Has the fan-ins made by workers that are killed, one after the other."""
    ran, workers = _Ran(), [run_worker(url, folder) for _ in range(WORKERS)]
    client = asyncio.create_task(run_client(url, folder, shape.form, shape.children, shape.number))
    children, diary = shape.children * shape.number, Diary(folder)
    times = sorted(chance.randrange(children) for _ in range(shape.kills))
    try:
        while not client.done():
            await asyncio.sleep(LOOK_S)
            ran.worker_mb = max(ran.worker_mb, *(peak_mb(worker.pid) for worker in workers))
            if times and diary.progress() >= times[0]:
                times.pop(0)
                victim = workers.pop(chance.randrange(WORKERS))
                victim.kill()
                victim.wait()
                workers.append(run_worker(url, folder))
                ran.kills += 1
        ran.client_mb = await client
        for worker in workers:
            worker.terminate()
        for worker in workers:
            await asyncio.to_thread(worker.wait, 60)
        return ran
    finally:
        client.cancel()
        for worker in workers:
            worker.kill()
            worker.wait()


async def _left(store: Store) -> int:
    return sum(
        number
        for tally in await store.count(TENANT)
        for state, number in tally.counts.items()
        if state not in TERMINAL
    )


# -- the time of a join ----------------------------------------------------------------------------


class _Join(msgspec.Struct, frozen=True):
    """The job that awaits others, the name of its join, and the others."""

    target: str
    name: str
    children: Sequence[str]


async def _join(app: App, shape: Shape, number: int) -> _Join:
    if shape.form == "batch":
        flow = flow_id(TENANT, "batch", f"{number}")
        nodes = [node_id(flow, each) for each in range(shape.children)]
        return _Join(node_id(flow, shape.children), "", nodes)
    target, name = f"map-{number}", "all"
    if shape.form == "flow":
        target, name = node_id(flow_id(TENANT, "flow", f"{number}"), 1), ITEMS
    find = Find(select=Selection(tenant=TENANT, ids=(target,)), limit=1)
    [job] = (await app.store.find(find)).jobs
    return _Join(target, name, [child_id(job, name, each) for each in range(shape.children)])


class _Log:
    """The event log: what the audit says, and the instants of the store's clock that count."""

    def __init__(self) -> None:
        self.audit = Audit()
        self.ended: dict[str, Event] = {}
        """The ends of children."""
        self.completions = 0
        self._others: dict[str, list[Event]] = {}

    async def read(self, store: Store) -> None:
        after = 0
        while True:
            page = await store.events(None, after, PAGE_MAX)
            self.audit.feed(page.events)
            for event in page.events:
                self._take(event)
            after = page.cursor
            if len(page.events) < PAGE_MAX:
                return

    def _take(self, event: Event) -> None:
        if event.type != "child":
            self._others.setdefault(event.job_id, []).append(event)
        elif event.kind is EventKind.COMPLETED:
            self.completions += 1
            self.ended[event.job_id] = event

    def times(self, join: _Join) -> tuple[int, int] | None:
        """Microseconds from the last end until the job was ready, and until it was leased. None if
        the job did not wait at the last end: a worker that made the children was killed.
        """
        last = max((self.ended[id] for id in join.children), key=lambda event: event.cursor)
        ready: Event | None = None
        for event in self._others[join.target]:
            if event.cursor < last.cursor:
                continue
            if event.kind is EventKind.READY and event.note == await_join(join.name):
                ready = event
            elif event.kind is EventKind.LEASED and ready is not None:
                return ready.at - last.at, event.at - last.at
        return None


# -- what is printed -------------------------------------------------------------------------------


def told(found: Found) -> str:
    """The measurement in one line."""
    shape = found.shape
    many = f"{shape.number} x " if shape.number > 1 else ""
    return (
        f"{shape.form:5} {many}{shape.children:,}: {found.callbacks} callbacks "
        f"(asked {found.asked} times for {found.callbacks + found.lasts} effects, {found.stale} "
        f"stale); {found.completed:,} children completed, {found.completions:,} completions, "
        f"{found.ran:,} runs; {found.doubled['ack']:,} acks and {found.doubled['enqueue']:,} "
        f"enqueues doubled, {found.kills} kills, {found.rescued:,} rescued; {found.left} left, "
        f"{len(found.breaches)} breaches; {found.seconds:.1f} s; after the last ack claimable "
        f"{_spread(found.claimable_ms)}, claimed {_spread(found.leased_ms)}; peak of a worker "
        f"{found.worker_mb:.0f} MB, of the client {found.client_mb:.0f} MB"
    )


def _spread(times: Sequence[float]) -> str:
    """p50 and p99 of sorted times."""
    if not times:
        return "(it did not wait)"
    if len(times) == 1:
        return f"{times[0]:.1f} ms"
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    return f"p50 {times[len(times) // 2]:.1f} p99 {p99:.1f} ms of {len(times)}"


def shapes(children: int, joins: int, forms: Sequence[str]) -> list[Shape]:
    """What is measured: each form at a tenth of its size and at its whole, and many joins."""
    sizes = {"map": children, "flow": children, "batch": min(children, 9_999)}
    found = [
        Shape(form=form, children=size)
        for form in FORMS
        for size in (sizes[form] // 10, sizes[form])
    ]
    found.append(Shape(form="map", children=children // 100, number=joins))
    return [one for one in found if (JOINS if one.number > 1 else one.form) in forms]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.fanin", description=__doc__)
    parser.add_argument("--stores", default=",".join(STORES), help="default: %(default)s")
    parser.add_argument("--children", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--joins", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--forms", default=",".join((*FORMS, JOINS)), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=19)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that no worker is left behind.
    faults = 0
    for name in given.stores.split(","):
        for shape in shapes(given.children, given.joins, given.forms.split(",")):
            try:
                with place(name) as where:
                    say(f"{name}: {shape.form} of {shape.children:,}, {shape.number} times")
                    found = asyncio.run(fan_in(where.fresh("fanin"), shape, given.seed))
            except Missing as lack:
                say(f"{name}: not measured: {lack}")
                break
            print(f"{name}: {told(found)}", flush=True)
            for words in found.faults:
                print(f"  {words}", flush=True)
            faults += len(found.faults)
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
