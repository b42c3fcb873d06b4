"""The part of prune that deletes keys which no verb deletes: counters at zero, full buckets, names
of claimers that are gone, locks of limits, and tenants of which nothing rests in their tier. Goes
round each space, some keys with each step.

All of it is read by snapshot, for others write it all the time: a key is deleted only if it still
has the value that was read (compare and clear), and the value of a lock does not matter.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.clock import SECOND
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.stores.foundationdb.claim_repeat import until_of
from holdfast.stores.foundationdb.claim_sharing import is_gone
from holdfast.stores.foundationdb.layout import Space, after, number
from holdfast.stores.foundationdb.limits_caps import NAMED, counter_key
from holdfast.stores.foundationdb.limits_tiers import forget_idle
from holdfast.stores.foundationdb.overlay import Pair, count_of
from holdfast.stores.foundationdb.rows import lease_of
from holdfast.stores.foundationdb.step import Step

SWEEP_STEP = 1000
"""Keys of a space that one step reads."""
RESTS_STEP = 200
"""Tenants of which one step checks whether anything rests."""
SCOPES_MAX = 200
"""Queues and groups that one step finds to have no jobs."""
FULL_FOR = 60 * SECOND
"""How long a bucket is full before it is deleted: longer than clocks of two hosts may differ."""


class Sweep:
    """The places at which one store's rounds go on."""

    def __init__(self) -> None:
        self._places: dict[Space, bytes] = {}

    async def run(self, step: Step) -> bool:
        """One step of every round; True when there was so much to do that another is worth it."""
        busy = False
        for space, stale in _STALE.items():
            pairs = await self._some(step, space)
            gone = [pair for pair in pairs if stale(step, *pair)]
            for key, value in gone:
                step.drop_if(key, value)
            busy = busy or len(gone) >= SWEEP_STEP // 2
        busy = await _drop_counters(step, await self._some(step, Space.COUNTS)) or busy
        for space in (Space.HELD, Space.SPENT):
            await _move_restored(step, space, await self._some(step, space))
        locks = await self._some(step, Space.LIMIT_LOCKS)
        for key in await _idle(step, [key for key, _ in locks]):
            step.drop(key)
        rests = await self._some(step, Space.TIER_RESTS, RESTS_STEP)
        await forget_idle(step, [key for key, _ in rests])
        return busy

    async def _some(self, step: Step, space: Space, most: int = SWEEP_STEP) -> list[Pair]:
        """The next keys of a space."""
        prefix = step.keys.all(space)
        begin = max(prefix, self._places.get(space, b""))
        pairs = await step.range(begin, after(prefix), most, snapshot=True)
        self._places[space] = pairs[-1][0] + b"\0" if len(pairs) == most else b""
        return pairs


def _is_full(step: Step, key: bytes, value: bytes) -> bool:
    return number(value) + FULL_FOR <= step.now


def _is_gone(step: Step, key: bytes, value: bytes) -> bool:
    return is_gone(value, step.at.version)


def _is_over(step: Step, key: bytes, value: bytes) -> bool:
    return until_of(value) <= step.now


_STALE: dict[Space, Callable[[Step, bytes, bytes], bool]] = {
    Space.BUCKETS: _is_full,
    Space.CLAIMERS: _is_gone,
    Space.CLAIMED: _is_over,
}


async def _drop_counters(step: Step, pairs: list[Pair]) -> bool:
    """Deletes the counters at zero of tenants, and of queues and groups that have no others. These
    have no jobs any more: their tenant has one queue or group less.
    """
    zero = [(key, value) for key, value in pairs if count_of(value) == 0]
    scopes: dict[Scope, bytes] = {}
    for key, value in zero:
        scope, _ = step.keys.scope_of(Space.COUNTS, key)
        if scope.kind is ScopeKind.TENANT or scope.of_platform:
            step.drop_if(key, value)
        elif len(scopes) < SCOPES_MAX:
            scopes[scope] = step.keys.scope(Space.COUNTS, scope)
    for prefix in scopes.values():
        step.ask_under(prefix, 0)
    for scope, prefix in scopes.items():
        found = await step.under(prefix, snapshot=True)
        if all(count_of(value) == 0 for _, value in found):
            step.tr.add_read_conflict_range(prefix, after(prefix))
            for key, _ in found:
                step.drop(key)
            step.add(counter_key(step, scope.tenant, NAMED[scope.kind]), -1)
    return len(zero) >= SWEEP_STEP // 2


async def _move_restored(step: Step, space: Space, pairs: list[Pair]) -> None:
    """Moves leases from before a restore to where the wall clock will end them."""
    names = [
        step.keys.name_of(space, key)
        for key, value in pairs
        if step.at.ahead(step.keys.instant_of(space, key), lease_of(value)[1])
    ]
    for row in await step.rows(names):
        held = row is not None and row.state is State.PROCESSING and row.lease_until is not None
        if row is not None and held and step.at.ahead(row.held_at, row.lease_us):
            assert row.lease_until is not None
            row.held_at = step.at.restored_deadline(row.lease_until)
            step.save(row)


async def _idle(step: Step, keys: list[bytes]) -> list[bytes]:
    """The locks of scopes that have no jobs any more."""
    scopes = {key: step.keys.scope_of(Space.LIMIT_LOCKS, key)[0] for key in keys}
    counters = {scope: step.keys.scope(Space.COUNTS, scope) for scope in scopes.values()}
    found = await step.firsts([(prefix, after(prefix)) for prefix in counters.values()])
    busy = {scope for scope, pair in zip(counters, found, strict=True) if pair is not None}
    return [key for key, scope in scopes.items() if scope not in busy]
