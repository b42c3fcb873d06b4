"""Settings: named values with compare-and-set. Those of scopes and tiers take effect at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.core import bounds
from holdfast.core.ceiling import NO_CEILING
from holdfast.core.errors import StaleSetting, TenantFull
from holdfast.core.job import EventKind
from holdfast.core.scope import (
    NO_RULES,
    NO_SETTINGS,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    scope_of,
)
from holdfast.core.tiers import tier_of
from holdfast.store import Put, Setting
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.limits_tiers import check_puts, move_tenant, rate_columns, set_tier
from holdfast.stores.postgres.step import Step

SCOPE_DROP = "DELETE FROM holdfast.scopes WHERE kind = $1 AND tenant = $2 AND part = $3"
SCOPE_PUT = (
    "INSERT INTO holdfast.scopes (kind, tenant, part, max_running, price_us, burst, paused,"
    " slots_count, weight, max_queued, max_bytes, ordered, groups_max, groups_price, groups_burst,"
    " groups_order, top_running, top_price, top_burst) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,"
    " $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
)


async def put_settings(step: Step, puts: Sequence[Put]) -> list[Setting]:
    scopes = [scope_of(one.name) for one in puts]
    tiers = [tier_of(one.name) for one in puts]
    if any(each is not None for each in (*scopes, *tiers)):
        await step.run(sql.LOCK_CLAIMS)
    if any(each is not None and not each.of_platform for each in scopes):
        await step.run(sql.FOLD_IF_DUE)  # It reads and writes deltas, and there may be no claims.
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
    most = bounds.SETTINGS_MAX
    for name, more in (+new).items():
        if await step.value(sql.SCOPES_OF, name, most) + more > most:
            raise TenantFull(tenant=name, what="scopes", max=most)
    known = await check_puts(step, puts)  # Refused before anything is changed.
    for one, scope, tier in zip(puts, scopes, tiers, strict=True):
        last[one.name] += 1
        before = await step.row(sql.SETTING, one.name)
        tenant = None if scope is None else scope.tenant
        await step.run(sql.SETTING_PUT, one.name, one.value, last[one.name], tenant)
        if scope is not None:
            await _configure(step, scope, one, None if before is None else before[1])
        elif tier is not None:
            await set_tier(step, tier, one, known)
            _record(step, "", one)
    await step.flush()
    rows = [await step.row(sql.SETTING, one.name) for one in puts]
    return [Setting(*row) for row in rows if row is not None and row[1] is not None]


def _record(step: Step, tenant: str, put: Put) -> None:
    text = (put.value or b"").decode()
    step.add_event(EventKind.CONFIGURED, (tenant, put.name, "", ""), text=text)


async def _configure(step: Step, scope: Scope, put: Put, was: bytes | None) -> None:
    """Lets the new settings of a scope take effect: all of it under the lock of claims."""
    before = NO_SETTINGS if was is None else decode(put.name, was)
    now = NO_SETTINGS if put.value is None else decode(put.name, put.value)
    key = (scope.kind.value, scope.tenant, scope.part)
    await step.run(SCOPE_DROP, *key)
    if put.value is not None:
        await step.run(SCOPE_PUT, *key, *_columns(now))
    await step.run(sql.CAP_BUCKET, *key, step.now)
    if scope.of_platform:
        await step.run(sql.PLATFORM_CHANGED, scope.kind.value, scope.part, step.now)
    else:
        await _apply(step, scope, before, now)
    await step.touch(scope)
    _record(step, scope.tenant, put)


async def _apply(step: Step, scope: Scope, before: ScopeSettings, now: ScopeSettings) -> None:
    """Sorts what waits in a scope of a tenant anew."""
    grouped = scope.kind is ScopeKind.GROUP or now.groups is not None
    await step.run(sql.HAS_SETTINGS, scope.tenant, grouped)
    if before.tier != now.tier:
        await move_tenant(step, scope.tenant, now.tier)
    if scope.kind is ScopeKind.GROUP:
        await step.run(sql.RESET_GROUP_GATES, scope.tenant, scope.part)
    elif before.groups != now.groups:
        await step.run(sql.CAP_GROUP_BUCKETS, scope.tenant, scope.part, step.now)
        await step.run(sql.RESET_GROUP_GATES, scope.tenant, None)


def _columns(settings: ScopeSettings) -> tuple[object, ...]:
    """The columns of `scopes` after its key."""
    groups, top = settings.groups or NO_RULES, settings.ceiling or NO_CEILING
    return (
        settings.max_running,
        *rate_columns(settings.rate),
        settings.paused is not None,
        settings.slots_count,
        settings.weight,
        settings.max_queued,
        settings.max_bytes,
        settings.ordered,
        groups.max_running,
        *rate_columns(groups.rate),
        groups.ordered,
        top.max_running,
        *rate_columns(top.rate),
    )


async def settings_under(step: Step, under: str, after: str, limit: int) -> list[Setting]:
    return [Setting(*row) for row in await step.rows(sql.SETTINGS_UNDER, under, after, limit)]
