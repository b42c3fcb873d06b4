"""Recount: counts the jobs themselves, and corrects the counters that differ, tenant by tenant.

A counter is right at a version only if all its jobs were read at that version, and a transaction
lives for 5 s. So each takes whole tenants, as many as it can read in STEP_S, and adds what differs:
that is exact whatever others add meanwhile. A tenant with more jobs than can be read in TENANT_S
(see layout.py) has only its held ones counted, by the index of leases: limits are checked against
these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic

import msgspec

from holdfast.core.job import TERMINAL, State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.stores.foundationdb.layout import KINDS, Space, after, text, texts
from holdfast.stores.foundationdb.overlay import count_of
from holdfast.stores.foundationdb.rows import Row, decode
from holdfast.stores.foundationdb.runner import Work
from holdfast.stores.foundationdb.scope_cache import PLATFORM
from holdfast.stores.foundationdb.step import BYTES, SHARDS, STATES, Step

STEP_S = 1.0
"""After so long a transaction begins with no further tenant."""
TENANT_S = 3.0
"""How long one transaction reads the jobs of one tenant."""
ROWS_MAX = 2000
"""Jobs that are read at a time."""
Kind = tuple[str, str | None, State, tuple[int, ...]]
"""What is counted of a job: its queue, its group, its state, its parts of limits."""
HELD = frozenset((STATES[State.PROCESSING], *SHARDS))
EVERYTHING = frozenset((*STATES.values(), *SHARDS, BYTES))
"""The counters that held jobs have, and those that all jobs have."""


class Counted(msgspec.Struct, frozen=True):
    """The result of one transaction of a recount."""

    place: bytes | None
    """The last tenant that is done; None when all are."""
    off: int = 0
    """By how many held jobs the counters were off."""
    large: tuple[str, ...] = ()
    """Tenants that have too many jobs to be counted."""


async def recount(write: Callable[[Work[Counted]], Awaitable[Counted]]) -> int:
    """Recounts all tenants; returns by how many held jobs the counters were off."""
    place: bytes | None = b""
    off, large = 0, list[str]()
    while place is not None:
        part = await write(partial(_recount_some, place=place))
        place, off = part.place, off + part.off
        large += part.large
    if large:
        off += (await write(partial(_recount_held, tenants=tuple(large)))).off
    return off


async def _recount_some(step: Step, place: bytes) -> Counted:
    """Counts the jobs of the tenants after a place."""
    began, start, off = monotonic(), place, 0
    while (name := await _next(step, place)) is not None:
        if place != start and monotonic() - began >= STEP_S:
            return Counted(place, off)
        [tenant] = texts(name, 1)
        true = await _jobs(step, tenant, began + TENANT_S)
        if true is None:  # It gets a transaction of its own, if it has not had one.
            return Counted(name, off, (tenant,)) if place == start else Counted(place, off)
        off += await _correct(step, tenant, true, EVERYTHING)
        place = name
    return Counted(None, off)


async def _recount_held(step: Step, tenants: tuple[str, ...]) -> Counted:
    """Counts the held jobs of these tenants."""
    alike: dict[str, Counter[Kind]] = {tenant: Counter() for tenant in tenants}
    for space in (Space.HELD, Space.SPENT):
        prefix = step.keys.all(space)
        begin, end = prefix, after(prefix)
        while pairs := await step.range(begin, end, ROWS_MAX, snapshot=True):
            names = [step.keys.name_of(space, key) for key, _ in pairs]
            for row in await step.peek([name for name in names if name[0] in alike]):
                if row is not None and row.state is State.PROCESSING:
                    alike[row.tenant][_kind(row)] += 1
            begin = pairs[-1][0] + b"\0"
    true = {tenant: _counters_of(step, tenant, alike[tenant]) for tenant in tenants}
    off = sum([await _correct(step, tenant, true[tenant], HELD) for tenant in tenants])
    return Counted(None, off)


async def _next(step: Step, place: bytes) -> bytes | None:
    """The first tenant after a place that has jobs or counters, as it is written in keys.

    The platform, whose name is empty, has events only.
    """
    found = []
    for prefix in (step.keys.owners, *_counters(step)):
        begin = after(prefix + (place or text(PLATFORM)))
        for key, _ in await step.range(begin, after(prefix), 1, snapshot=True):
            found.append(text(texts(key[len(prefix) :], 1)[0]))
    return min(found, default=None)


def _counters(step: Step) -> list[bytes]:
    return [step.keys.all(Space.COUNTS, bytes([kind])) for kind in KINDS.values()]


async def _jobs(step: Step, tenant: str, ends: float) -> Counter[bytes] | None:
    """What the counters of a tenant should be; None when its jobs cannot be read in time."""
    alike: Counter[Kind] = Counter()
    waiting = 0
    prefix = step.keys.own(tenant, Space.ROWS)
    begin, end = prefix, after(prefix)
    while pairs := await step.range(begin, end, ROWS_MAX, snapshot=True):
        if monotonic() >= ends:
            return None
        for row in (decode(value) for _, value in pairs):
            if row is None:
                continue
            alike[_kind(row)] += 1
            waiting += row.weight if row.state not in TERMINAL else 0
        begin = pairs[-1][0] + b"\0"
    true = _counters_of(step, tenant, alike)
    true[step.keys.scope(Space.COUNTS, Scope(tenant)) + BYTES] = waiting
    return true


def _kind(row: Row) -> Kind:
    return row.queue, row.group, row.state, row.places


def _counters_of(step: Step, tenant: str, alike: Counter[Kind]) -> Counter[bytes]:
    """The counters that so many jobs of these kinds make."""
    true: Counter[bytes] = Counter()
    for (queue, group, state, parts), jobs in alike.items():
        scopes = step.scopes(tenant, queue, group)
        for scope in scopes:
            true[step.keys.scope(Space.COUNTS, scope) + STATES[state]] += jobs
        for scope, part in zip(scopes, parts, strict=False):
            if part >= 0:
                true[step.shard_key(scope, part)] += jobs
    return true


async def _correct(step: Step, tenant: str, true: Counter[bytes], kinds: frozenset[bytes]) -> int:
    """Adds what counters of these kinds lack; returns by how many held jobs they were off."""
    named = text(tenant)
    counted: dict[bytes, int] = {}
    for prefix in _counters(step):
        for key, value in await step.under(prefix + named, snapshot=True):
            if key[-1:] in kinds:
                counted[key] = count_of(value)
    wrong = {
        key: true[key] - counted.get(key, 0)
        for key in counted.keys() | true.keys()
        if key[-1:] in kinds and true[key] != counted.get(key, 0)
    }
    if wrong:  # Of two that recount one is repeated, or both would add it.
        step.contend(step.keys.scope(Space.LIMIT_LOCKS, Scope(tenant)) + b"\x02")
    queues = step.keys.all(Space.COUNTS, bytes([KINDS[ScopeKind.QUEUE]]))
    for key, differs in wrong.items():
        step.add(key, differs)
    held = STATES[State.PROCESSING]
    return sum(abs(wrong[key]) for key in wrong if key.startswith(queues) and key.endswith(held))
