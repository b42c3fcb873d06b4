"""Clears away what nothing ends of itself: counters at zero, full buckets, names of claimers that
are gone, keys that were contended for. Goes round each space in turns, some keys with each step.

Nothing of it is read in earnest, for others write it all the time: a key goes only if it still has
the value that was seen (compare and clear), and one that was contended for has none that counts.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import SECOND
from holdfast.job import State
from holdfast.scope import Scope, ScopeKind
from holdfast.stores.foundationdb.layout import Space, after, number
from holdfast.stores.foundationdb.overlay import Pair, count_of
from holdfast.stores.foundationdb.repeats import until_of
from holdfast.stores.foundationdb.rows import lease_of
from holdfast.stores.foundationdb.shares import NAMED, key_of
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.turns import is_gone

SWEEP_STEP = 1000
"""Keys of a space that one step looks at."""
SCOPES_MAX = 200
"""Queues and groups that one step finds to be no more."""
FULL_FOR = 60 * SECOND
"""How long a bucket is full before it goes: longer than clocks of two hosts may differ."""


class Sweep:
    """The rounds of one store."""

    def __init__(self) -> None:
        self._places: dict[Space, bytes] = {}

    async def on(self, step: Step) -> bool:
        """One step of every round; True when there was so much to do that another is worth it."""
        busy = False
        for space, stale in _STALE.items():
            pairs = await self._some(step, space)
            gone = [pair for pair in pairs if stale(step, *pair)]
            for key, value in gone:
                step.drop_if(key, value)
            busy = busy or len(gone) >= SWEEP_STEP // 2
        busy = await _count_down(step, await self._some(step, Space.COUNTS)) or busy
        for space in (Space.HELD, Space.SPENT):
            await _bring_back(step, space, await self._some(step, space))
        gates = await self._some(step, Space.GATES)
        for key in await _idle(step, [key for key, _ in gates]):
            step.drop(key)
        return busy

    async def _some(self, step: Step, space: Space) -> list[Pair]:
        """The next keys of a space."""
        prefix = step.keys.all(space)
        begin = max(prefix, self._places.get(space, b""))
        pairs = await step.range(begin, after(prefix), SWEEP_STEP, snapshot=True)
        self._places[space] = pairs[-1][0] + b"\0" if len(pairs) == SWEEP_STEP else b""
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


async def _count_down(step: Step, pairs: list[Pair]) -> bool:
    """Drops the counters at zero of tenants, and of queues and groups that have no others: these
    are no more, and their tenants are told so.
    """
    zero = [(key, value) for key, value in pairs if count_of(value) == 0]
    scopes: dict[Scope, bytes] = {}
    for key, value in zero:
        scope, _ = step.keys.scope_of(Space.COUNTS, key)
        if scope.kind is ScopeKind.TENANT:
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
            step.add(key_of(step, scope.tenant, NAMED[scope.kind]), -1)
    return len(zero) >= SWEEP_STEP // 2


async def _bring_back(step: Step, space: Space, pairs: list[Pair]) -> None:
    """Puts leases of before a restore where the wall clock will end them."""
    names = [
        step.keys.name_of(space, key)
        for key, value in pairs
        if step.at.ahead(step.keys.instant_of(space, key), lease_of(value)[1])
    ]
    for row in await step.rows(names):
        held = row is not None and row.state is State.PROCESSING and row.lease_until is not None
        if row is not None and held and step.at.ahead(row.held_at, row.lease_us):
            assert row.lease_until is not None
            row.held_at = step.at.place(row.lease_until)
            step.save(row)


async def _idle(step: Step, keys: list[bytes]) -> list[bytes]:
    """Those that were contended for by scopes which have no jobs any more."""
    scopes = {key: step.keys.scope_of(Space.GATES, key)[0] for key in keys}
    counters = {scope: step.keys.scope(Space.COUNTS, scope) for scope in scopes.values()}
    found = await step.firsts([(prefix, after(prefix)) for prefix in counters.values()])
    busy = {scope for scope, pair in zip(counters, found, strict=True) if pair is not None}
    return [key for key, scope in scopes.items() if scope not in busy]
