"""What operators and tenants see: pages and counts, put together from all shards concerned."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import JobRecord, replay_id
from holdfast.limits import BATCH_MAX, SELECT_MAX, within
from holdfast.scope import ScopeKind
from holdfast.store import (
    Act,
    Change,
    Changed,
    Find,
    Lapsed,
    Page,
    Pruned,
    Ref,
    Selection,
    Tally,
)
from holdfast.stores.redis.rows import REASON_CODES, STATE_CODES, STATES, exact, record, words
from holdfast.stores.redis.shards import Shards, together

KIND_CODES = {ScopeKind.TENANT: "t", ScopeKind.QUEUE: "q", ScopeKind.GROUP: "g"}
SHARD_BITS = 53
"""A cursor of a change over all tenants is the sequence, below the place of the shard."""
PRUNE_STEP = 500
PROMOTES_MAX = 500
"""Calls that make due jobs ready before they are counted; each moves 2000."""


def bounded(select: Selection) -> Selection:
    """The selection, unless one of its fields has more values than its limit."""
    within("ids", len(select.ids), BATCH_MAX)
    for field in ("queues", "types", "states", "groups", "tags", "reasons"):
        within(field, len(getattr(select, field)), SELECT_MAX)
    return select


def chosen(select: Selection) -> tuple[Any, ...]:
    """A selection as the scripts take it."""
    return (
        select.tenant,
        select.ids or None,
        select.queues or None,
        select.types or None,
        [STATE_CODES[state] for state in select.states] or None,
        select.groups or None,
        select.tags or None,
        [REASON_CODES[reason] for reason in select.reasons] or None,
        select.key,
        exact("created_from", select.created_from),
        exact("created_before", select.created_before),
        exact("failed_from", select.failed_from),
        exact("failed_before", select.failed_before),
    )


# -- pages -----------------------------------------------------------------------------------------


async def find(shards: Shards, find: Find, now: Micros | None) -> Page:
    exact("after", find.after)
    if find.limit == 0:
        return Page([], find.after)
    concerned = _concerned(shards, find.select)
    most = find.limit + 1
    pages = await together(_page(shards, shard, find, most, now) for shard in concerned)
    merged = heapq.merge(*pages, key=lambda job: job.seq, reverse=find.newest_first)
    jobs = list(islice(merged, most))
    more = len(jobs) > find.limit
    jobs = jobs[: find.limit]
    return Page(jobs, jobs[-1].seq if more else None)


async def _page(
    shards: Shards, shard: int, find: Find, most: int, now: Micros | None
) -> list[JobRecord]:
    """Up to so many jobs of one shard, looked at a bounded number at a time."""
    jobs: list[JobRecord] = []
    after = find.after
    while True:
        args = (chosen(find.select), after, most - len(jobs), find.newest_first, False)
        told, reached, seen = await shards.call("find", shard, args, now)
        jobs += [record(one, int(seen)) for one in told]
        if not reached or len(jobs) >= most:
            return jobs
        after = int(reached)


def _concerned(shards: Shards, select: Selection) -> list[int]:
    return shards.concerned(None if select.tenant is None else (select.tenant,))


# -- changes ---------------------------------------------------------------------------------------


async def change(shards: Shards, change: Change, now: Micros | None) -> Changed:
    """One step, in one shard; the cursor says in which the next one goes on."""
    concerned = _concerned(shards, change.select)
    within("after", change.after, 1 << 63)
    place, after = change.after >> SHARD_BITS, change.after & ((1 << SHARD_BITS) - 1)
    done: dict[Ref, str] = {}
    while place < len(concerned):
        step = msgspec.structs.replace(change, after=after, limit=change.limit - len(done))
        part, reached = await _step(shards, concerned[place], step, now)
        done |= part
        if reached is None:
            place, after = place + 1, 0
        else:
            after = reached
        if reached is not None or len(done) >= change.limit:
            break
    if place >= len(concerned):
        return Changed(done, None)
    return Changed(done, place << SHARD_BITS | after)


async def _step(
    shards: Shards, shard: int, change: Change, now: Micros | None
) -> tuple[dict[Ref, str], int | None]:
    if change.act is Act.REPLAY:
        return await _replay(shards, shard, change, now)
    args = (
        chosen(change.select),
        change.act.value,
        change.after,
        change.limit,
        exact("priority", change.priority),
        exact("delay_us", change.delay_us),
        exact("run_at", change.run_at),
        words(change.by),
    )
    reached, *names = await shards.call("change", shard, args, now)
    pairs = zip(names[::2], names[1::2], strict=True)
    done = {Ref(tenant.decode(), id.decode()): id.decode() for tenant, id in pairs}
    return done, int(reached) if reached else None


async def _replay(
    shards: Shards, shard: int, change: Change, now: Micros | None
) -> tuple[dict[Ref, str], int | None]:
    """The new ids are hashes that the scripts cannot make: found first, then replayed by name."""
    args = (chosen(change.select), change.after, change.limit, False, True)
    told, reached, _ = await shards.call("find", shard, args, now)
    jobs = [record(one, 0) for one in told]
    items = [(f"{job.seq:016}", replay_id(job.tenant, job.id)) for job in jobs]
    answers = await shards.call("replay", shard, (items, words(change.by)), now) if items else []
    done = {
        Ref(job.tenant, job.id): new
        for job, (_, new), answer in zip(jobs, items, answers, strict=True)
        if answer
    }
    return done, int(reached) if reached else None


# -- counts ----------------------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes to count."""

    tenant: str | None
    by: ScopeKind
    part: str | None
    after: tuple[str, str] | None
    limit: int


async def count(
    shards: Shards, asked: Asked, now: Micros | None, correction: int = 0
) -> list[Tally]:
    concerned = shards.concerned(None if asked.tenant is None else (asked.tenant,))
    pages = await together(_tallies(shards, shard, asked, now, correction) for shard in concerned)
    found = sorted((each for page in pages for each in page), key=lambda t: (t.tenant, t.queue))
    return found[: asked.limit]


async def _tallies(
    shards: Shards, shard: int, asked: Asked, now: Micros | None, correction: int
) -> list[Tally]:
    after = None if asked.after is None else "\0".join(asked.after)
    args = (KIND_CODES[asked.by], asked.tenant, asked.part, after, asked.limit)
    if asked.limit == 0:
        return []
    found: list[Any] = []
    for _ in range(PROMOTES_MAX):
        more, *found = await shards.call("count", shard, args, now)
        if not more:
            break
    return [
        Tally(
            tenant.decode(),
            part.decode(),
            {state: n for state, n in zip(STATES, numbers, strict=True) if n},
            int(oldest) if oldest else None,
            slots,
            correction,
        )
        for tenant, part, numbers, oldest, slots in found
        if asked.after is None or (tenant.decode(), part.decode()) > asked.after
    ]


# -- upkeep ----------------------------------------------------------------------------------------


async def expired(shards: Shards, limit: int, now: Micros | None) -> list[Lapsed]:
    answers = await shards.each("expired", shards.all(), (limit,), now)
    lapsed = [
        Lapsed(record(told, int(seen)), token.decode() or None, int(overdue))
        for seen, *answer in answers
        for overdue, token, told in answer
    ]
    return sorted(lapsed, key=lambda one: -one.overdue_us)[:limit]


async def prune(shards: Shards, limit: int, events_keep_us: Micros, now: Micros | None) -> Pruned:
    """In short steps: the server does nothing else while one lasts."""
    sums = [0, 0, 0]
    for shard in shards.all():
        while True:
            step = min(PRUNE_STEP, limit - max(sums))
            if step <= 0:
                return Pruned(sums[0], sums[2], more=True)
            numbers = await shards.call("prune", shard, (step, events_keep_us), now)
            sums = [sum(each) for each in zip(sums, numbers, strict=True)]
            if step not in numbers:
                break
    return Pruned(sums[0], sums[2], more=limit in sums)
