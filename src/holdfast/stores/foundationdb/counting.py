"""How many jobs the scopes have, read from what is kept in step."""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.scope import Scope, ScopeKind, slot_scope_of
from holdfast.store import Tally
from holdfast.stores.foundationdb.layout import KINDS, Space, after, number, text
from holdfast.stores.foundationdb.named import hold_of
from holdfast.stores.foundationdb.overlay import count_of
from holdfast.stores.foundationdb.step import STATE_OF, Step

KEYS_MAX = 20_000
"""Counters that are read at a time."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes to count."""

    tenant: str | None
    by: ScopeKind
    part: str | None
    after: tuple[str, str] | None
    limit: int


async def count(step: Step, asked: Asked, correction: int = 0) -> list[Tally]:
    counts = await _counts(step, asked)
    slots = await _slots(step, asked)
    found = sorted(
        scope
        for scope in counts.keys() | slots.keys()
        if (asked.part is None or scope.part == asked.part)
        and (asked.after is None or (scope.tenant, scope.part) > asked.after)
    )
    return [
        Tally(
            scope.tenant,
            scope.part,
            counts.get(scope, {}),
            await _oldest(step, scope, counts.get(scope, {})),
            slots[scope],
            correction,
        )
        for scope in found[: asked.limit]
    ]


async def _counts(step: Step, asked: Asked) -> dict[Scope, dict[State, int]]:
    """What is counted of scopes that have jobs: as many of them as are asked for, at least."""
    kind = bytes([KINDS[asked.by]])
    prefix = step.keys.all(Space.COUNTS, kind)
    if asked.tenant is not None:
        prefix += text(asked.tenant)
        if asked.part is not None:
            prefix += text(asked.part)
    begin, end = prefix, after(prefix)
    if asked.after is not None:
        behind = step.keys.all(Space.COUNTS, kind, text(asked.after[0]), text(asked.after[1]))
        begin = max(begin, after(behind))
    found: dict[Scope, dict[State, int]] = {}
    while begin < end and len(found) <= asked.limit:
        pairs = await step.range(begin, end, KEYS_MAX, snapshot=True)
        for key, value in pairs:
            scope, what = step.keys.scope_of(Space.COUNTS, key)
            state, jobs = STATE_OF.get(what), count_of(value)
            if state is not None and jobs:
                found.setdefault(scope, {})[state] = jobs
        if len(pairs) < KEYS_MAX:
            break
        begin = pairs[-1][0] + b"\0"
    return found


async def _slots(step: Step, asked: Asked) -> Counter[Scope]:
    """The places that outsiders hold now, by scope."""
    if asked.tenant is not None and asked.part is not None:
        name = Scope(asked.tenant, asked.by, asked.part).slots
    elif asked.tenant is not None:
        # A slot's name begins with those of its kind and its tenant.
        name = Scope(asked.tenant, asked.by).slots.removesuffix("0:/")
    else:
        name = f"slot/{asked.by.value}/"
    slots: Counter[Scope] = Counter()
    prefix = step.keys.all(Space.HOLDS, text(name)[:-1])
    for pair in await step.under(prefix, snapshot=True):
        hold = hold_of(step.keys, *pair)
        scope = slot_scope_of(hold.name)
        if scope is not None and hold.until > step.now:
            slots[scope] += 1
    return slots


async def _oldest(step: Step, scope: Scope, counts: dict[State, int]) -> Micros | None:
    """Since when the longest-waiting job of a queue could have run."""
    if scope.kind is not ScopeKind.QUEUE or State.ENQUEUED not in counts:
        return None
    prefix = step.keys.own(scope.tenant, Space.AGES, text(scope.part))
    for key, _ in await step.under(prefix, 1, snapshot=True):
        return number(key[len(prefix) :])
    return None
