"""Holds: names held for a time, for leaders, present workers and slots of scopes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import TenantFull
from holdfast.core.scope import Scope, ScopeKind, slot_scope_of
from holdfast.store import Hold, Take
from holdfast.stores.foundationdb import limits_caps, limits_groups
from holdfast.stores.foundationdb.fairness_lines import wake_lines
from holdfast.stores.foundationdb.layout import Space, number, text, texts, whole
from holdfast.stores.foundationdb.limits import contend_all
from holdfast.stores.foundationdb.rows import hold_key, hold_of, pack
from holdfast.stores.foundationdb.runner import Runner
from holdfast.stores.foundationdb.step import Step


async def take_holds(step: Step, takes: Sequence[Take]) -> list[Hold] | TenantFull:
    """The holder of each name; or why all of them are refused, counting lapsed slots."""
    over = await limits_caps.slots_over(step, takes)
    if over is not None:
        return over
    holds = [await _take(step, one) for one in takes]
    await limits_groups.reopen_freed(step)
    return holds


async def _take(step: Step, take: Take) -> Hold:
    key, now = hold_key(step.keys, take.name), step.now
    found = await step.get(key)
    held = None if found is None else hold_of(step.keys, key, found)
    if held is not None and held.until > now and held.owner != take.owner:
        return held
    if held is not None:
        step.drop(_end_key(step, held))
    hold = Hold(take.name, take.owner, now + take.length_us, take.note)
    if take.length_us <= 0:
        hold = Hold(take.name, "", 0, "")
        step.drop(key)
    else:
        step.put(key, pack((hold.owner, hold.until, hold.note)))
        step.put(_end_key(step, hold), b"")
    scope = slot_scope_of(take.name)
    if scope is not None:
        more = (take.length_us > 0) - (held is not None)
        if more:
            limits_caps.count_slot(step, scope.tenant, more)
        await _slots_changed(step, scope)
    return hold


def _end_key(step: Step, hold: Hold) -> bytes:
    return step.keys.all(Space.HOLD_ENDS, whole(hold.until), text(hold.name))


async def _slots_changed(step: Step, scope: Scope) -> None:
    """Uses or takes away the room of a scope whose slots have changed."""
    await step.settings.load([scope.tenant])
    if not step.settings.has_any(scope.tenant):
        return
    contend_all(step, scope)
    if scope.kind is ScopeKind.GROUP:
        step.groups.add((scope.tenant, scope.part))
    else:
        step.tenants.add(scope.tenant)
    await wake_lines(step, scope)


async def prune_holds(step: Step, limit: int) -> int:
    """Drops names that nobody holds any more; returns how many it looked at."""
    begin = step.keys.all(Space.HOLD_ENDS)
    past = await step.range(begin, begin + whole(step.now + 1), limit, snapshot=True)
    for entry, _ in past:
        until = number(entry[len(begin) :])
        [name] = texts(entry[len(begin) + 8 :], 1)
        step.drop(entry)
        key = hold_key(step.keys, name)
        found = await step.get(key)
        if found is not None and hold_of(step.keys, key, found).until == until:
            step.drop(key)
            scope = slot_scope_of(name)
            if scope is not None:
                limits_caps.count_slot(step, scope.tenant, -1)
    return len(past)


async def list_holds(runner: Runner, under: str, after: str, limit: int) -> list[Hold]:
    """A page, in as many transactions as it takes: lapsed holds take no place in it."""
    found: list[Hold] = []
    while len(found) < limit:
        now, some = await runner.read(partial(_some, under=under, after=after))
        found += [hold for hold in some if hold.until > now]
        if len(some) < PAGE_MAX:
            break
        after = some[-1].name
    return found[:limit]


async def _some(step: Step, under: str, after: str) -> tuple[Micros, list[Hold]]:
    pairs = await step.names(Space.HOLDS, under, after, PAGE_MAX)
    return step.now, [hold_of(step.keys, *pair) for pair in pairs]
