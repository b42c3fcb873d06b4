"""What one tenant may have at most: queues and groups with jobs, slots, scopes with settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from holdfast import limits
from holdfast.errors import TenantFull
from holdfast.job import NewJob
from holdfast.scope import PREFIX, Scope, ScopeKind, scope_of, slot_scope_of
from holdfast.store import Put, Take
from holdfast.stores.foundationdb.layout import Space, after, text
from holdfast.stores.foundationdb.named import hold_key, setting_key
from holdfast.stores.foundationdb.step import Step

SLOTS, QUEUES, GROUPS = b"\x41", b"\x42", b"\x43"
"""Beside the states among the counters of a tenant: its slots, its queues, its groups."""
NAMED = {ScopeKind.QUEUE: QUEUES, ScopeKind.GROUP: GROUPS}


def key_of(step: Step, tenant: str, what: bytes) -> bytes:
    return step.keys.scope(Space.COUNTS, Scope(tenant)) + what


# -- queues and groups -----------------------------------------------------------------------------


def _scopes(tenant: str, queue: str, group: str | None) -> Iterator[Scope]:
    yield Scope(tenant, ScopeKind.QUEUE, queue)
    if group is not None:
        yield Scope(tenant, ScopeKind.GROUP, group)


def ask(step: Step, jobs: Iterable[NewJob]) -> None:
    """Asks whether the queues and groups of these jobs are known."""
    for tenant, queue, group in {(job.tenant, job.queue, job.group) for job in jobs}:
        for scope in _scopes(tenant, queue, group):
            step.ask_under(step.keys.scope(Space.COUNTS, scope), 1)
        step.ask(key_of(step, tenant, what) for what in NAMED.values())


async def _new(step: Step, tenant: str, queue: str, group: str | None) -> list[Scope]:
    """The queue and the group, as far as they have no counters: they had no jobs for a while."""
    found = []
    for scope in _scopes(tenant, queue, group):
        if scope not in step.named:
            if await step.under(step.keys.scope(Space.COUNTS, scope), 1, snapshot=True):
                step.named.add(scope)
            else:
                found.append(scope)
    return found


async def over(step: Step, tenant: str, queue: str, group: str | None) -> TenantFull | None:
    """Why the tenant may not have one more queue or group; None when it may, or has it."""
    for scope in await _new(step, tenant, queue, group):
        most = limits.QUEUES_MAX if scope.kind is ScopeKind.QUEUE else limits.GROUPS_MAX
        if await step.counted(key_of(step, tenant, NAMED[scope.kind])) >= most:
            return TenantFull(tenant=tenant, what=f"{scope.kind.value}s", max=most)
    return None


async def name(step: Step, tenant: str, queue: str, group: str | None) -> None:
    """Counts a new queue or group. Of two that bring the same one, one is repeated."""
    for scope in await _new(step, tenant, queue, group):
        prefix = step.keys.scope(Space.COUNTS, scope)
        step.tr.add_read_conflict_range(prefix, after(prefix))
        step.add(key_of(step, tenant, NAMED[scope.kind]), 1)
        step.named.add(scope)


# -- slots -----------------------------------------------------------------------------------------


async def slots_over(step: Step, takes: Sequence[Take]) -> TenantFull | None:
    """Why the takes would give a tenant too many slots. Those that lapsed count until a prune."""
    slots = {one.name: scope for one in takes if (scope := slot_scope_of(one.name)) is not None}
    taken = [one.name for one in takes if one.length_us > 0 and one.name in slots]
    found = await step.get_many([hold_key(step.keys, each) for each in taken])
    absent = {each for each, value in zip(taken, found, strict=True) if value is None}
    new = Counter(slots[each].tenant for each in absent)
    for tenant, more in new.items():
        key = key_of(step, tenant, SLOTS)
        has = await step.counted(key)
        if has + more > limits.SLOTS_MAX - limits.BATCH_MAX:  # Of two that fill it up one is told.
            has = await step.counted(key, earnest=True)
        if has + more > limits.SLOTS_MAX:
            return TenantFull(tenant=tenant, what="slots", max=limits.SLOTS_MAX)
    return None


def count_slot(step: Step, tenant: str, number: int) -> None:
    step.add(key_of(step, tenant, SLOTS), number)


# -- settings --------------------------------------------------------------------------------------


async def scopes_over(step: Step, puts: Sequence[Put]) -> TenantFull | None:
    """Why the puts would give a tenant settings of too many scopes, deleted ones included."""
    new: dict[str, set[str]] = {}
    for one in puts:
        scope = scope_of(one.name)
        if scope is not None and await step.get(setting_key(step.keys, one.name)) is None:
            new.setdefault(scope.tenant, set()).add(one.name)
    for tenant, names in new.items():
        has = 0
        for kind in ScopeKind:
            prefix = text(f"{PREFIX}{kind.value}/{len(tenant)}:{tenant}/")[:-1]
            span = step.keys.all(Space.SETTINGS, prefix)
            has += len(await step.under(span, limits.SETTINGS_MAX))
        if has + len(names) > limits.SETTINGS_MAX:
            return TenantFull(tenant=tenant, what="scopes", max=limits.SETTINGS_MAX)
    return None
