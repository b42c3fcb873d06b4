"""The ratios that are asked for, worked out of one run. Pure: reads figures, gives checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from bench.figures import Check, Figures, Peer, Peers, Run, middle
from bench.peers import OURS, ceiling

SURVIVORS = ("dramatiq", "taskiq_stream", "streaq")
"""Those on Redis that give back what a killed worker held; the harness's measure `kill` shows it.
huey loses it, saq never runs it again.
"""
SQLITE_FULL = ("huey_sqlite_full", "persistqueue")
"""Durable against power loss."""
SQLITE_NORMAL = (*SQLITE_FULL, "litequeue")
"""At least against the death of processes and, but for the last commits, power loss; huey_sqlite
is set to less.
"""
Figure = Callable[[Peer], float | None]

FLAT = 1.2
"""How much more a worker may hold with 100 times as many jobs queued."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of our row on one engine. Names are the peers that count; None: all there."""

    title: str
    ours: str
    engine: str
    times: float
    """The drain, of the fastest among `drain`."""
    drain: Sequence[str] | None = None
    part: float = 0.0
    """The drain, of the ceiling whose name starts so."""
    ceiling: str = ""
    bulk: Sequence[str] | None = None
    single: Sequence[str] | None = None
    pickup: Sequence[str] | None = None


ASKS = (
    Ask(
        title="Redis",
        ours="holdfast_redis",
        engine="redis",
        times=5,
        drain=SURVIVORS,
        part=0.3,
        ceiling="Lua claim 100 with lease + ack 100",
    ),
    Ask(
        title="PostgreSQL",
        ours="holdfast_postgres",
        engine="postgres",
        times=2,
        part=0.3,
        ceiling="asyncpg claim 1000 + ack of the previous 1000",
    ),
    Ask(
        title="SQLite FULL",
        ours="holdfast_sqlite_full",
        engine="sqlite",
        times=5,
        drain=SQLITE_FULL,
        part=0.25,
        ceiling="sqlite3 WAL FULL claim 100",
        bulk=SQLITE_FULL,
        single=SQLITE_FULL,
        pickup=SQLITE_FULL,
    ),
    Ask(
        title="SQLite NORMAL",
        ours="holdfast_sqlite_normal",
        engine="sqlite",
        times=4,
        single=SQLITE_NORMAL,
    ),
)


def checks(run: Run) -> list[Check]:
    """What this run can say; what was not measured is left out."""
    found: list[Check] = []
    if run.peers is not None:
        for ask in ASKS:
            found += _beside_peers(ask, run.peers)
    for store in run.stores:
        found += _alone(store)
    return found


def _beside_peers(ask: Ask, peers: Peers) -> Iterator[Check]:
    ours = peers.row(ask.ours)
    if ours is None or ours.not_run:
        return
    rivals = [
        one
        for one in peers.rows
        if one.engine == ask.engine and one.name not in OURS and not one.not_run
    ]
    yield from _times(f"{ask.title}: drain", ours, _among(rivals, ask.drain), _drain, ask.times)
    if ask.ceiling:
        top, mine = ceiling(peers, ask.ceiling), ours.best_drain
        if top is not None and mine is not None:
            what, against = f"{ask.title}: drain, of the ceiling", top[0].partition(",")[0]
            yield Check(what=what, value=mine / top[1], target=ask.part, against=against)
    yield from _times(f"{ask.title}: bulk enqueue", ours, _among(rivals, ask.bulk), _bulk, 2)
    what = f"{ask.title}: 100 enqueues in flight"
    yield from _times(what, ours, _among(rivals, ask.bulk), _concurrent, 3)
    what = f"{ask.title}: enqueue one by one"
    yield from _times(what, ours, _among(rivals, ask.single), _single, 1)
    yield from _pickups(ask.title, ours, _among(rivals, ask.pickup))
    if (us := middle(ours.worker_us)) is not None:
        what = f"{ask.title}: worker CPU, us a job"
        yield Check(what=what, value=us, target=30, most=True)


def _times(
    what: str, ours: Peer, rivals: list[Peer], figure: Figure, times: float
) -> Iterator[Check]:
    """Ours to the fastest. A drain in which nothing of ours ran counts, as 0.

    A rival without a figure, or with 0, failed to be measured: it is named, since the fastest may
    have been that one.
    """
    mine = figure(ours)
    if mine is None or not rivals:
        return
    failed = [one.name for one in rivals if not figure(one)]
    fastest = max(rivals, key=lambda one: figure(one) or 0.0)
    theirs = figure(fastest)
    against = "" if not theirs else fastest.name
    if failed:
        against = f"{against} (no figure: {', '.join(failed)})".strip()
    yield Check(what=what, value=mine / theirs if theirs else None, target=times, against=against)


def _pickups(title: str, ours: Peer, rivals: list[Peer]) -> Iterator[Check]:
    p50, p99 = middle(ours.pickup_p50_ms), middle(ours.pickup_p99_ms)
    if p50 is None or p99 is None:
        return
    best = min(
        ((middle(one.pickup_p50_ms), one.name) for one in rivals if one.pickup_p50_ms),
        key=lambda pair: pair[0] or 0.0,
        default=None,
    )
    if best is not None and best[0]:
        what = f"{title}: pick-up p50, ms"
        yield Check(what=what, value=p50, target=best[0], most=True, against=best[1])
    yield Check(what=f"{title}: pick-up p99, ms", value=p99, target=20, most=True)


def _alone(store: Figures) -> Iterator[Check]:
    """What needs no peer."""
    drain, floor, us = middle(store.drain), middle(store.floor), middle(store.worker_us)
    if drain is not None and floor is not None:
        what = f"{store.store}: drain, of the bare floor"
        against = "decode + one task per job, same loop"
        yield Check(what=what, value=drain / floor, target=0.4, against=against)
    if us is not None:
        what = f"{store.store}: worker CPU, us a job (own run)"
        yield Check(what=what, value=us, target=30, most=True)
    if len(store.depth) == 2:
        few, many = store.depth
        against = f"{few.queued:,}"
        what = f"{store.store}: drain of {many.queued:,} queued"
        yield Check(what=what, value=many.per_s / few.per_s, target=0.8, against=against)
        if store.store != "memory":  # whose jobs are in the worker's own process
            what = f"{store.store}: worker's memory with {many.queued:,} queued"
            value = many.worker_mb / few.worker_mb
            yield Check(what=what, value=value, target=FLAT, most=True, against=against)


def _among(rivals: list[Peer], names: Sequence[str] | None) -> list[Peer]:
    return [one for one in rivals if names is None or one.name in names]


def _drain(one: Peer) -> float | None:
    return one.best_drain


def _bulk(one: Peer) -> float | None:
    return middle(one.bulk)


def _single(one: Peer) -> float | None:
    return middle(one.single)


def _concurrent(one: Peer) -> float | None:
    return one.best_concurrent
