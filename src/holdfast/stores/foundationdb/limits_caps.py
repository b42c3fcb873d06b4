"""What one tenant may have at most: jobs and bytes by its settings; queues, groups, slots and
scopes with settings by ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.core import bounds
from holdfast.core.errors import QUEUE_FULL_RETRY_S, HoldfastError, QueueFull, TenantFull
from holdfast.core.job import TERMINAL, NewJob
from holdfast.core.journal import Signal, no_room
from holdfast.core.scope import Scope, ScopeKind, scope_of, slot_scope_of
from holdfast.store import Put, Take
from holdfast.stores.foundationdb.layout import Space, after
from holdfast.stores.foundationdb.rows import Row, hold_key, setting_key
from holdfast.stores.foundationdb.scope_cache import kinds_of, settings_prefix
from holdfast.stores.foundationdb.step import BYTES, STATES, Step

SLOTS, QUEUES, GROUPS = b"\x41", b"\x42", b"\x43"
"""Beside the states among the counters of a tenant: its slots, its queues, its groups."""
NAMED = {ScopeKind.QUEUE: QUEUES, ScopeKind.GROUP: GROUPS}


def counter_key(step: Step, tenant: str, what: bytes) -> bytes:
    return step.keys.scope(Space.COUNTS, Scope(tenant)) + what


async def over(step: Step, row: Row) -> HoldfastError | None:
    """Why the tenant may not have this job waiting too; None when it may."""
    return await _too_many_names(step, row) or await _capped(step, row)


# -- jobs and bytes --------------------------------------------------------------------------------


def _has_cap(step: Step, tenant: str) -> bool:
    settings = step.settings.tenant(tenant)
    return settings.max_queued is not None or settings.max_bytes is not None


def _cap_keys(step: Step, tenant: str) -> list[bytes]:
    """The counters of what waits: its bytes, then its jobs by state."""
    alive = [place for state, place in STATES.items() if state not in TERMINAL]
    return [counter_key(step, tenant, what) for what in (BYTES, *alive)]


def ask_caps(step: Step, tenants: Iterable[str]) -> None:
    """Requests the counters of those tenants that have a cap."""
    for tenant in tenants:
        if _has_cap(step, tenant):
            step.ask(_cap_keys(step, tenant))


async def _capped(step: Step, row: Row) -> QueueFull | None:
    tenant = row.tenant
    if not _has_cap(step, tenant):
        return None
    settings = step.settings.tenant(tenant)
    held, *alive = [await step.counted(key) for key in _cap_keys(step, tenant)]
    for what, has, more, most in (
        ("jobs", sum(alive), 1, settings.max_queued),
        ("bytes", held, row.weight, settings.max_bytes),
    ):
        if most is not None and has + more > most:
            return QueueFull(
                tenant=tenant, what=what, queued=has, max=most, retry_after_s=QUEUE_FULL_RETRY_S
            )
    # Of two enqueues that take the last place one must fail; who ends a job only makes room.
    step.contend(step.keys.scope(Space.LIMIT_LOCKS, Scope(tenant)) + b"\x01")
    return None


async def no_room_for(step: Step, signal: Signal) -> QueueFull | None:
    """Why the tenant may not have this signal; None when it may. What others send at the same time
    is not seen.
    """
    max_bytes = step.settings.tenant(signal.tenant).max_bytes
    if max_bytes is None:
        return None
    held = await step.counted(counter_key(step, signal.tenant, BYTES))
    return no_room(signal.tenant, held, max_bytes, signal)


# -- queues and groups -----------------------------------------------------------------------------


def ask_names(step: Step, jobs: Iterable[NewJob]) -> None:
    """Requests whether the queues and groups of these jobs have counters."""
    for tenant, queue, group in {(job.tenant, job.queue, job.group) for job in jobs}:
        for scope in step.scopes(tenant, queue, group)[1:]:
            step.ask_under(step.keys.scope(Space.COUNTS, scope), 1)
        step.ask(counter_key(step, tenant, what) for what in NAMED.values())


async def _new_names(step: Step, row: Row) -> list[Scope]:
    """The job's queue and group, if they have no counters: they had no jobs for a while."""
    found = []
    for scope in step.scopes_of(row)[1:]:
        if scope not in step.named:
            if await step.under(step.keys.scope(Space.COUNTS, scope), 1, snapshot=True):
                step.named.add(scope)
            else:
                found.append(scope)
    return found


async def _too_many_names(step: Step, row: Row) -> TenantFull | None:
    for scope in await _new_names(step, row):
        most = bounds.QUEUES_MAX if scope.kind is ScopeKind.QUEUE else bounds.GROUPS_MAX
        if await step.counted(counter_key(step, row.tenant, NAMED[scope.kind])) >= most:
            return TenantFull(tenant=row.tenant, what=f"{scope.kind.value}s", max=most)
    return None


async def count_names(step: Step, row: Row) -> None:
    """Counts a new queue or group. Of two steps that bring the same one, one is repeated."""
    for scope in await _new_names(step, row):
        prefix = step.keys.scope(Space.COUNTS, scope)
        step.tr.add_read_conflict_range(prefix, after(prefix))
        step.add(counter_key(step, row.tenant, NAMED[scope.kind]), 1)
        step.named.add(scope)


# -- slots and settings ----------------------------------------------------------------------------


async def slots_over(step: Step, takes: Sequence[Take]) -> TenantFull | None:
    """Why the takes would give a tenant too many slots. Lapsed ones count until a prune."""
    slots = {one.name: scope for one in takes if (scope := slot_scope_of(one.name)) is not None}
    taken = [one.name for one in takes if one.length_us > 0 and one.name in slots]
    found = await step.get_many([hold_key(step.keys, each) for each in taken])
    absent = {each for each, value in zip(taken, found, strict=True) if value is None}
    for tenant, more in Counter(slots[each].tenant for each in absent).items():
        key = counter_key(step, tenant, SLOTS)
        has = await step.counted(key)
        if has + more > bounds.SLOTS_MAX - bounds.BATCH_MAX:
            # Near the bound, of two steps that fill it up one must fail.
            has = await step.counted(key, snapshot=False)
        if has + more > bounds.SLOTS_MAX:
            return TenantFull(tenant=tenant, what="slots", max=bounds.SLOTS_MAX)
    return None


def count_slot(step: Step, tenant: str, number: int) -> None:
    step.add(counter_key(step, tenant, SLOTS), number)


async def scopes_over(step: Step, puts: Sequence[Put]) -> TenantFull | None:
    """Why the puts would give a tenant settings of too many scopes, deleted ones included."""
    new: dict[str, set[str]] = {}
    for one in puts:
        scope = scope_of(one.name)
        if scope is not None and await step.get(setting_key(step.keys, one.name)) is None:
            new.setdefault(scope.tenant, set()).add(one.name)
    for tenant, names in new.items():
        has = 0
        for kind in kinds_of(tenant):
            prefix = settings_prefix(step.keys, tenant, kind)
            has += len(await step.under(prefix))
        if has + len(names) > bounds.SETTINGS_MAX:
            return TenantFull(tenant=tenant, what="scopes", max=bounds.SETTINGS_MAX)
    return None
