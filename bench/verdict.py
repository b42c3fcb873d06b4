"""The ratios that are asked for, worked out of one run. Pure: reads figures, gives checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from bench.figures import Check, Figures, Peer, Peers, Run, middle
from bench.mix.verdict import mix_checks
from bench.peers import OURS

SURVIVORS = ("dramatiq", "taskiq_stream", "streaq")
"""Those on Redis that give back what a killed worker held; the harness's measure `kill` shows it.
huey loses it, saq never runs it again.
"""
SQLITE_FULL = ("huey_sqlite_full", "persistqueue")
"""Durable against power loss."""
SQLITE_NORMAL = (*SQLITE_FULL, "huey_sqlite_normal", "litequeue")
"""At least against the death of processes and, but for the last commits, power loss; huey_sqlite
is set to less.
"""
Figure = Callable[[Peer], float | None]

BULK_TIMES = 1.5
"""The bulk enqueue, of the fastest peer on the engine, on SQLite FULL with that durability."""
FLAT = 1.2
"""How much more a worker may hold with 100 times as many jobs queued."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of our row on one engine. Names are the peers that count; None: all there."""

    title: str
    ours: str
    engine: str
    drain_times: float
    """The drain, of the fastest among `drain`."""
    drain: Sequence[str]
    single_times: float
    """One enqueue at a time, of the fastest among `single`."""
    single: Sequence[str] | None = None
    bulk: Sequence[str] | None = None
    pickup: Sequence[str] | None = None


ASKS = (
    Ask(
        title="Redis",
        ours="holdfast_redis",
        engine="redis",
        drain_times=4,
        drain=SURVIVORS,
        single_times=0.9,
    ),
    Ask(
        title="PostgreSQL",
        ours="holdfast_postgres",
        engine="postgres",
        drain_times=2.5,
        drain=("pgqueuer",),
        single_times=0.9,
    ),
    Ask(
        title="SQLite FULL",
        ours="holdfast_sqlite_full",
        engine="sqlite",
        drain_times=4,
        drain=("huey_sqlite_full",),
        single_times=0.5,
        single=SQLITE_FULL,
        bulk=SQLITE_FULL,
        pickup=SQLITE_FULL,
    ),
    Ask(
        title="SQLite NORMAL",
        ours="holdfast_sqlite_normal",
        engine="sqlite",
        drain_times=4,
        drain=("huey_sqlite_normal",),
        single_times=0.3,
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
    if run.mix is not None:
        found += mix_checks(run.mix)
    return found


def _beside_peers(ask: Ask, peers: Peers) -> Iterator[Check]:
    """The floors of the no-op."""
    ours = peers.row(ask.ours)
    if ours is None or ours.not_run:
        return
    rivals = [
        one
        for one in peers.rows
        if one.engine == ask.engine and one.name not in OURS and not one.not_run
    ]
    drain = _among(rivals, ask.drain)
    yield from _times(f"{ask.title}: drain", ours, drain, _drain, ask.drain_times)
    bulk = _among(rivals, ask.bulk)
    yield from _times(f"{ask.title}: bulk enqueue", ours, bulk, _bulk, BULK_TIMES)
    what, single = f"{ask.title}: enqueue one by one", _among(rivals, ask.single)
    yield from _times(what, ours, single, _single, ask.single_times)
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
