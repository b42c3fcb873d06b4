"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast import limits
from holdfast.errors import StaleSetting, TenantFull
from holdfast.job import EventKind
from holdfast.scope import (
    NO_RULES,
    NO_SETTINGS,
    Rate,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    scope_of,
    slot_scope_of,
)
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.step import Step

HOLD_TAKE = (
    "INSERT INTO holdfast.holds AS h VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name)"
    " DO UPDATE SET owner = excluded.owner, until = excluded.until, note = excluded.note"
    " WHERE h.until <= $8 OR h.owner = excluded.owner RETURNING name"
)
HOLD_DROP = "DELETE FROM holdfast.holds WHERE name = $1 AND (until <= $3 OR owner = $2)"
HOLD = "SELECT name, owner, until, note FROM holdfast.holds WHERE name = $1"
HOLDS_UNDER = (
    f"SELECT name, owner, until, note FROM holdfast.holds WHERE {sql.NAMES_PAGE} AND until > $4"
    " ORDER BY name LIMIT $3"
)
# One at a time for each tenant, so that two calls do not both take its last places.
SLOTS_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.slots/' || $1, 0))"
SLOTS_OF = (
    "SELECT count(*) FROM (SELECT FROM holdfast.holds WHERE kind IN ('tenant', 'queue', 'group')"
    " AND tenant = $1 AND until > $2 LIMIT $3) slots"
)
HELD_NAMES = "SELECT name FROM holdfast.holds WHERE name = ANY ($1) AND until > $2"


async def put(step: Step, puts: Sequence[Put]) -> list[Setting]:
    scopes = [scope_of(one.name) for one in puts]
    if any(scope is not None for scope in scopes):
        await step.run(sql.LOCK_CLAIMS)
    await step.run(sql.SETTINGS_LOCK)
    await step.begin()
    last: dict[str, int] = {}
    new: Counter[str] = Counter()
    for one, scope in zip(puts, scopes, strict=True):
        found = await step.row(sql.SETTING, one.name)
        _, value, version = found if found is not None else (one.name, None, 0)
        last[one.name] = version
        seen = 0 if value is None else version
        if seen != one.version:
            raise StaleSetting(field="version", name=one.name, version=seen, expected=one.version)
        if scope is not None:
            new[scope.tenant] += found is None
            if one.value is not None:
                decode(one.name, one.value)  # Refused before anything is changed.
    most = limits.SETTINGS_MAX
    for name, more in (+new).items():
        if await step.value(sql.SCOPES_OF, name, most) + more > most:
            raise TenantFull(tenant=name, what="scopes", max=most)
    for one, scope in zip(puts, scopes, strict=True):
        last[one.name] += 1
        before = await step.row(sql.SETTING, one.name)
        tenant = None if scope is None else scope.tenant
        await step.run(sql.SETTING_PUT, one.name, one.value, last[one.name], tenant)
        if scope is not None:
            await _configure(step, scope, one, None if before is None else before[1])
    await step.flush()
    rows = [await step.row(sql.SETTING, one.name) for one in puts]
    return [Setting(*row) for row in rows if row is not None and row[1] is not None]


async def _configure(step: Step, scope: Scope, put: Put, was: bytes | None) -> None:
    """Lets the new settings of a scope take effect: all of it under the lock of claims."""
    before = NO_SETTINGS if was is None else decode(put.name, was)
    now = NO_SETTINGS if put.value is None else decode(put.name, put.value)
    key = (scope.kind.value, scope.tenant, scope.part)
    await step.run(sql.SCOPE_DROP, *key)
    if put.value is not None:
        await step.run(sql.SCOPE_PUT, *key, *_columns(now))
    grouped = scope.kind is ScopeKind.GROUP or now.groups is not None
    await step.run(sql.RULED, scope.tenant, grouped)
    await step.run(sql.BOUND_BUCKET, *key, step.now)
    if scope.kind is ScopeKind.GROUP:
        await step.run(sql.REGRANT, scope.tenant, scope.part)
    elif before.groups != now.groups:
        await step.run(sql.BOUND_GROUPS, scope.tenant, scope.part, step.now)
        await step.run(sql.REGRANT, scope.tenant, None)
    await _touch(step, sql.TOUCH, scope)
    text = (put.value or b"").decode()
    step.fact(EventKind.CONFIGURED, (scope.tenant, put.name, "", ""), text=text)


def _columns(settings: ScopeSettings) -> tuple[object, ...]:
    """The columns of `scopes` after its key."""
    groups = settings.groups or NO_RULES
    return (
        settings.max_running,
        *_rate(settings.rate),
        settings.paused is not None,
        settings.slots_count,
        settings.weight,
        settings.max_queued,
        settings.max_bytes,
        settings.ordered,
        groups.max_running,
        *_rate(groups.rate),
        groups.ordered,
    )


def _rate(rate: Rate | None) -> tuple[int | None, int | None]:
    return (None, None) if rate is None else (rate.price_us, rate.burst)


async def _touch(step: Step, statement: str, scope: Scope) -> None:
    """Has the next claim look at a scope whose room may have changed by other things than jobs."""
    group = scope.part if scope.kind is ScopeKind.GROUP else None
    await step.run(statement, scope.tenant, group)
    found = await step.rows(sql.FREED, [scope.tenant])
    step.lines |= {(tenant, queue) for tenant, queue in found}


async def settings_under(step: Step, under: str, after: str, limit: int) -> list[Setting]:
    return [Setting(*row) for row in await step.rows(sql.SETTINGS_UNDER, under, after, limit)]


# -- holds -----------------------------------------------------------------------------------------


async def take(step: Step, takes: Sequence[Take]) -> list[Hold]:
    scopes = {one.name: slot_scope_of(one.name) for one in takes}
    await step.begin()
    await _check_room(step, takes, scopes)
    holds: dict[int, Hold] = {}
    # In the order of names, so that two calls never wait for each other.
    for place, one in sorted(enumerate(takes), key=lambda pair: pair[1].name):
        holds[place] = await _take(step, one, scopes[one.name])
    return [holds[place] for place in range(len(takes))]


async def _check_room(step: Step, takes: Sequence[Take], scopes: dict[str, Scope | None]) -> None:
    """TenantFull if the takes would give a tenant more slots than it may have."""
    taken = {one.name for one in takes if one.length_us > 0}
    slots = {name: scope for name, scope in scopes.items() if scope is not None and name in taken}
    if not slots:
        return
    for tenant in sorted({scope.tenant for scope in slots.values()}):
        await step.run(SLOTS_LOCK, tenant)
    held = {row[0] for row in await step.rows(HELD_NAMES, list(slots), step.now)}
    new = Counter(scope.tenant for name, scope in slots.items() if name not in held)
    most = limits.SLOTS_MAX
    for tenant, more in new.items():
        if await step.value(SLOTS_OF, tenant, step.now, most) + more > most:
            raise TenantFull(tenant=tenant, what="slots", max=most)


async def _take(step: Step, one: Take, scope: Scope | None) -> Hold:
    now = step.now
    if one.length_us <= 0:
        await step.run(HOLD_DROP, one.name, one.owner, now)
        found = await step.row(HOLD, one.name)
        if found is not None:
            return Hold(*found)
        answer = Hold(one.name, "", 0, "")
    else:
        answer = Hold(one.name, one.owner, now + one.length_us, one.note)
        where = (None,) * 3 if scope is None else (scope.kind.value, scope.tenant, scope.part)
        values = (answer.name, answer.owner, answer.until, answer.note)
        if await step.value(HOLD_TAKE, *values, *where, now) is None:
            found = await step.row(HOLD, one.name)
            assert found is not None, "who was in the way is locked by the attempt"
            return Hold(*found)
    if scope is not None:
        await _touch(step, sql.TOUCH_RULED, scope)
    return answer


async def holds_under(step: Step, under: str, after: str, limit: int) -> list[Hold]:
    await step.begin()
    found = await step.rows(HOLDS_UNDER, under, after, limit, step.now)
    return [Hold(*row) for row in found]
