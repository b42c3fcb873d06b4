"""`python -m bench.storm`: limits over all tenants under live changes and kills, judged by the log.

Eight worker processes, twenty tenants with more work than may run, one running limit of the whole
store and one rate of a queue over all tenants. The limits change two hundred times, and workers are
killed. Printed for each store: breaches of the log, how much of the rate was used while work
waited, and the places that leaked.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from tests.chaos.herd import Herd, make_app, until_present
from tests.servers.cluster import Cluster
from tests.servers.kinds import install_of
from tests.servers.service import Host

from bench.places import place
from bench.run_info import say
from holdfast import App, State
from holdfast.audit import Audit
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import Event, EventKind
from holdfast.core.rate import Bucket, Rate
from holdfast.core.scope import ScopeKind, decode, scope_of
from holdfast.store import Store
from holdfast.typed import Job

QUEUE = "default"
TENANTS = 20
WORKERS = 8
KILL_EVERY = 10
"""Changes between two kills."""
PACE_S = 0.1
"""Between two changes."""
MOST = range(60, 161, 20)
RATES = range(100, 301, 50)
"""Starts a second. The workers could do more, so that the limits decide."""
PAUSE_S = 0.2
"""How long a job takes at most."""
DRAIN_S = 120.0
KINDS = ("sqlite", "postgres", "redis", "cluster", "remote")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    changes: int = 200

    @property
    def jobs(self) -> int:
        """Of each tenant: more than the highest rate could start."""
        return int(self.changes * PACE_S + 5) * max(RATES) // TENANTS


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one storm found."""

    breaches: Sequence[str]
    completed: int
    jobs: int
    kills: int
    rescued: int
    rate_used: float
    """Starts while work waited, of those that the rate allowed."""
    leaked: Sequence[str]
    """Scopes that count running jobs after the drain, or whose counts a recount corrected."""

    @property
    def clean(self) -> bool:
        return not self.breaches and not self.leaked and self.completed == self.jobs


async def storm(url: str, shape: Shape, seed: int = 18) -> Found:
    """One storm on a store that several processes can open."""
    app, chance, kills = make_app(url), random.Random(seed), 0
    step = app.registry.named("step")
    assert step is not None
    async with app:
        store, platform = app.store, app.platform()
        await platform.set(max_running=max(MOST))
        await platform.queue(QUEUE).set(rate=f"{min(RATES)}/s")
        with Herd(url) as herd:
            herd.revive(WORKERS)
            await until_present(store, WORKERS)
            await _fill(app, step.kind, shape.jobs)
            for change in range(shape.changes):
                await _change(app, chance)
                if change % KILL_EVERY == KILL_EVERY // 2:
                    herd.kill(chance.choice(herd.living))
                    herd.revive(WORKERS)
                    kills += 1
                await asyncio.sleep(PACE_S)
            await platform.queue(QUEUE).set(rate="1000000/s")
            await _until_drained(store, herd)
            herd.stop()
        events = [event async for event in _events(store)]
        audit = Audit()
        audit.feed(events)
        return Found(
            breaches=[breach.words for breach in audit.breaches],
            completed=len(audit.ended(EventKind.COMPLETED)),
            jobs=shape.jobs * TENANTS,
            kills=kills,
            rescued=audit.counts.get(EventKind.RESCUED, 0),
            rate_used=rate_used(events),
            leaked=await _leaked(store),
        )


async def _fill(app: App, kind: type[Job[Any]], each: int) -> None:
    for number in range(TENANTS):
        tenant = app.tenant(f"t{number:02}")
        await tenant.enqueue_many(kind(pause_s=PAUSE_S) for _ in range(each))


async def _change(app: App, chance: random.Random) -> None:
    if chance.random() < 0.5:
        await app.platform().set(max_running=chance.choice(MOST))
    else:
        await app.platform().queue(QUEUE).set(rate=f"{chance.choice(RATES)}/s")


async def _until_drained(store: Store, herd: Herd) -> None:
    async with asyncio.timeout(DRAIN_S):
        while await _alive(store):
            herd.revive(WORKERS)
            await asyncio.sleep(PACE_S)


async def _alive(store: Store) -> bool:
    states = (State.ENQUEUED, State.RETRYING, State.SCHEDULED, State.PROCESSING)
    tallies = await store.count(None, by=ScopeKind.TENANT)
    return any(tally.counts.get(state, 0) for tally in tallies for state in states)


async def _leaked(store: Store) -> list[str]:
    whose: list[tuple[str | None, ScopeKind]] = [
        *(("", kind) for kind in (ScopeKind.PLATFORM, ScopeKind.QUEUE)),
        *((None, kind) for kind in (ScopeKind.TENANT, ScopeKind.QUEUE)),
    ]
    return [
        f"{kind.value} {tally.tenant} {tally.queue}"
        for tenant, kind in whose
        for tally in await store.count(tenant, by=kind, recount=True)
        if tally.counts.get(State.PROCESSING, 0) or tally.correction
    ]


async def _events(store: Store) -> AsyncIterator[Event]:
    after = 0
    while page := await store.events(None, after, PAGE_MAX):
        for event in page.events:
            yield event
        if len(page.events) < PAGE_MAX:
            return
        after = page.cursor


def rate_used(events: Sequence[Event]) -> float:
    """Of the tokens that came from the first start to the last change, the part that was not lost.

    A token is lost when it comes to a full bucket: a start that comes later than it might have.
    """
    rate: Rate | None = None
    bucket, starts, lost, begun = Bucket(), 0, 0.0, False
    for event in events[: _last_change(events) + 1]:
        if rate is not None and begun and (_is_change(event) or event.kind is EventKind.LEASED):
            lost += max(0, event.at - bucket.full_at) / rate.price_us
            bucket = Bucket(max(bucket.full_at, event.at))
        if _is_change(event):
            rate = decode(event.job_id, (event.note or "").encode()).rate
            assert rate is not None
            bucket = bucket.bounded(rate, event.at)
        elif event.kind is EventKind.LEASED and rate is not None:
            begun, starts, bucket = True, starts + 1, bucket.take(rate, 1, event.at)
    return starts / (starts + lost)


def _is_change(event: Event) -> bool:
    scope = scope_of(event.job_id) if event.kind is EventKind.CONFIGURED else None
    return scope is not None and scope.part == QUEUE


def _last_change(events: Sequence[Event]) -> int:
    return max(at for at, event in enumerate(events) if _is_change(event))


@contextmanager
def place_of(kind: str) -> Iterator[str]:
    """A store of this kind, for this storm only."""
    if kind == "cluster":
        with Cluster(install_of(kind)) as cluster:
            yield cluster.lend("storm")
    elif kind == "remote":
        with tempfile.TemporaryDirectory(prefix="holdfast-storm-") as folder:
            host = Host()
            try:
                yield host.place("storm", store=f"sqlite:///{folder}/jobs.db").url
            finally:
                host.clear()
                host.close()
    else:
        with place("sqlite-full" if kind == "sqlite" else kind) as where:
            yield where.fresh("storm")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.storm", description=__doc__)
    parser.add_argument("--stores", default=",".join(KINDS), help="default: %(default)s")
    parser.add_argument("--changes", type=int, default=Shape().changes, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=18)
    given = parser.parse_args(arguments)
    clean = True
    for kind in given.stores.split(","):
        with place_of(kind) as url:
            say(f"{kind}: a storm of {given.changes} changes")
            found = asyncio.run(storm(url, Shape(changes=given.changes), given.seed))
        clean = clean and found.clean
        print(
            f"{kind}: {found.completed} of {found.jobs} jobs completed, {found.kills} kills, "
            f"{found.rescued} rescued; {len(found.breaches)} breaches, {len(found.leaked)} places "
            f"leaked; {found.rate_used:.1%} of the rate used"
        )
        for words in (*found.breaches[:10], *found.leaked[:10]):
            print(f"  {words}")
    if not clean:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
