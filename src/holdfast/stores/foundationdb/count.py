"""Count: how many jobs the scopes have, read from counters that every step keeps up to date."""

from __future__ import annotations

from collections import Counter
from time import monotonic

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind, slot_scope_of
from holdfast.store import Tally
from holdfast.stores.foundationdb.layout import KINDS, Space, after, number, text, whole
from holdfast.stores.foundationdb.limits import running_key
from holdfast.stores.foundationdb.overlay import count_of
from holdfast.stores.foundationdb.rows import Row, hold_of
from holdfast.stores.foundationdb.scope_cache import PLATFORM
from holdfast.stores.foundationdb.step import STATE_OF, Step

KEYS_MAX = 20_000
"""Counters that are read at a time."""
DUE_MAX = 1000
"""Due jobs that are read at a time."""
DUE_S = 2.0
"""How long one transaction reads due jobs; those beyond count as scheduled until a claim has made
them ready."""

Counts = dict[Scope, Counter[State]]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes to count."""

    tenant: str | None
    by: ScopeKind
    part: str | None
    after: tuple[str, str] | None
    limit: int

    def names(self, scope: Scope) -> bool:
        """Whether a scope of this kind and tenant is asked for."""
        return (self.part is None or scope.part == self.part) and (
            self.after is None or (scope.tenant, scope.part) > self.after
        )


async def count_jobs(step: Step, asked: Asked, correction: int) -> list[Tally]:
    if asked.tenant == PLATFORM or asked.by not in KINDS:
        return await _platform(step, asked, correction)
    counts, oldest = await _counts(step, asked), dict[Scope, Micros]()
    for row in await _due(step, asked.tenant):
        for scope in step.scopes_of(row):
            if scope in counts:  # A due job is seen as enqueued.
                counts[scope][row.state] -= 1
                counts[scope][State.ENQUEUED] += 1
                oldest[scope] = min(row.run_at, oldest.get(scope, row.run_at))
    slots = await _slots(step, asked)
    found = sorted(scope for scope in counts.keys() | slots.keys() if asked.names(scope))
    return [
        Tally(
            scope.tenant,
            scope.part,
            dict(+counts.get(scope, Counter())),
            await _oldest(step, scope, oldest.get(scope)),
            slots[scope],
            correction,
        )
        for scope in found[: asked.limit]
    ]


async def _platform(step: Step, asked: Asked, correction: int) -> list[Tally]:
    """The running jobs of the platform's scopes that have settings."""
    await step.settings.load()
    named = (each for each in step.settings.platform if each.kind is asked.by and asked.names(each))
    found = sorted(named)[: asked.limit]
    step.ask(running_key(step, scope) for scope in found)
    return [
        Tally(
            scope.tenant,
            scope.part,
            {State.PROCESSING: await step.counted(running_key(step, scope))},
            None,
            0,
            correction,
        )
        for scope in found
    ]


async def _counts(step: Step, asked: Asked) -> Counts:
    """The counters of scopes that have jobs: of as many scopes as are asked for, at least."""
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
    found: Counts = {}
    while begin < end and len(found) <= asked.limit:
        pairs = await step.range(begin, end, KEYS_MAX, snapshot=True)
        for key, value in pairs:
            scope, what = step.keys.scope_of(Space.COUNTS, key)
            state, jobs = STATE_OF.get(what), count_of(value)
            if state is not None and jobs:
                found.setdefault(scope, Counter())[state] = jobs
        if len(pairs) < KEYS_MAX:
            break
        begin = pairs[-1][0] + b"\0"
    return found


async def _due(step: Step, tenant: str | None) -> list[Row]:
    """The due jobs, of a tenant or of all, that no claim has made ready yet."""
    begin = step.keys.all(Space.DUE)
    end, ends, found = begin + whole(step.now + 1), monotonic() + DUE_S, list[Row]()
    while begin < end and monotonic() < ends:
        pairs = await step.range(begin, end, DUE_MAX, snapshot=True)
        names = [step.keys.name_of(Space.DUE, key) for key, _ in pairs]
        mine = [name for name in names if tenant in (None, name[0])]
        found += [row for row in await step.peek(mine) if row is not None]
        begin = pairs[-1][0] + b"\0" if len(pairs) == DUE_MAX else end
    return found


async def _slots(step: Step, asked: Asked) -> Counter[Scope]:
    """The slots that are held now, by scope."""
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


async def _oldest(step: Step, scope: Scope, due: Micros | None) -> Micros | None:
    """Since when the longest-waiting job of a queue could have run; `due` is that of due jobs."""
    if scope.kind is not ScopeKind.QUEUE:
        return None
    prefix = step.keys.own(scope.tenant, Space.AGES, text(scope.part))
    pairs = await step.under(prefix, 1, snapshot=True)
    instants = [number(key[len(prefix) :]) for key, _ in pairs]
    return min([*instants, *([] if due is None else [due])], default=None)
