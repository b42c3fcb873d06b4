"""Settings: named values with compare-and-set. Those of scopes take effect at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from holdfast.core import tiers
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import StaleSetting
from holdfast.core.job import EventKind
from holdfast.core.scope import Scope, ScopeKind, scope_of
from holdfast.store import Put, Setting
from holdfast.stores.foundationdb import (
    limits_caps,
    limits_groups,
    limits_platform,
    limits_tiers,
)
from holdfast.stores.foundationdb.fairness_lines import ask_open_lines, wake_lines
from holdfast.stores.foundationdb.layout import Space
from holdfast.stores.foundationdb.limits import bucket_of, put_bucket
from holdfast.stores.foundationdb.rows import StoredSetting, pack, setting_key, setting_of
from holdfast.stores.foundationdb.runner import Runner
from holdfast.stores.foundationdb.scope_cache import kinds_of, settings_prefix
from holdfast.stores.foundationdb.step import Step


async def put_settings(step: Step, puts: Sequence[Put]) -> list[Setting]:
    """Applies all of them, or none."""
    last: dict[str, int] = {}
    _ask(step, puts)
    for put in puts:
        stored = await _stored(step, put.name)
        last[put.name] = 0 if stored is None else stored.version
        version = 0 if stored is None or stored.value is None else stored.version
        if version != put.version:
            raise StaleSetting(
                field="version", name=put.name, version=version, expected=put.version
            )
    await limits_tiers.check(step, puts)
    over = await limits_caps.scopes_over(step, puts)
    if over is not None:
        raise over
    for put in puts:
        last[put.name] += 1
        await _put(step, put, last[put.name])
    await limits_groups.regroup(step)
    found = [await _stored(step, put.name) for put in puts]
    return [_setting(each) for each in found if each is not None and each.value is not None]


def _ask(step: Step, puts: Sequence[Put]) -> None:
    """Requests what is read of each of them: many may be put together."""
    step.ask(setting_key(step.keys, put.name) for put in puts)
    scopes = [scope for put in puts if (scope := scope_of(put.name)) is not None]
    if scopes:
        step.settings.ask(scope.tenant for scope in scopes)
    for scope in scopes:
        step.ask([step.keys.scope(Space.BUCKETS, scope)])
        for kind in kinds_of(scope.tenant):
            step.ask_under(settings_prefix(step.keys, scope.tenant, kind), 0)
        if scope.kind is ScopeKind.TENANT:
            limits_tiers.ask_move(step, scope.tenant)
            ask_open_lines(step, scope.tenant)


async def _stored(step: Step, name: str) -> StoredSetting | None:
    key = setting_key(step.keys, name)
    found = await step.get(key)
    return None if found is None else setting_of(step.keys, key, found)


def _setting(stored: StoredSetting) -> Setting:
    assert stored.value is not None
    return Setting(stored.name, stored.value, stored.version)


async def _put(step: Step, put: Put, version: int) -> None:
    scope, tier = scope_of(put.name), tiers.tier_of(put.name)
    key, value = setting_key(step.keys, put.name), pack((put.value, version))
    if scope is not None:
        await step.settings.load([scope.tenant])
        await _configure(step, scope, key, value, has_settings=put.value is not None)
    elif tier is not None:
        await limits_tiers.set_tier(step, tier, put, (key, value))
    else:
        step.put(key, value)
        return
    tenant = "" if scope is None else scope.tenant
    words = (put.value or b"").decode()
    step.record(EventKind.CONFIGURED, tenant, (put.name, "", ""), note=words)


async def _configure(
    step: Step, scope: Scope, key: bytes, value: bytes, *, has_settings: bool
) -> None:
    """Applies the new settings of a scope."""
    settings = step.settings
    before, tier = settings.of(scope), settings.tier_named(scope.tenant)
    bucket = await bucket_of(step, scope, before.rate)
    group_values = settings.group_values(scope.tenant)
    if scope.of_platform:
        await limits_platform.mark(step, scope, has_settings=has_settings)
    step.put(key, value)
    await settings.change(scope.tenant)
    if settings.tier_named(scope.tenant) != tier:
        await limits_tiers.move_tenant(step, scope.tenant, tier)
    after = settings.of(scope)
    if after.rate is not None and bucket.full_at:
        put_bucket(step, scope, bucket.bounded(after.rate, step.now))
    if scope.kind is ScopeKind.GROUP:
        limits_groups.mark_regroup(step, scope.tenant, scope.part)
    elif not scope.of_platform and (
        before.groups != after.groups or group_values != settings.group_values(scope.tenant)
    ):
        limits_groups.mark_regroup(step, scope.tenant, None)
    await scope_changed(step, scope)


async def scope_changed(step: Step, scope: Scope) -> None:
    """Lets the lines of a scope go on or rest by its new room, and wakes their sleepers."""
    if scope.of_platform or step.settings.marked:
        step.wakes_all = True  # Its lines may wait where `wake_lines` does not look.
    if not scope.of_platform:
        step.tenants.add(scope.tenant)
        await wake_lines(step, scope)


async def list_settings(runner: Runner, under: str, after: str, limit: int) -> list[Setting]:
    """A page, in as many transactions as it takes: deleted settings take no place in it."""
    found: list[Setting] = []
    while len(found) < limit:
        some = await runner.read(partial(_some, under=under, after=after))
        found += [_setting(each) for each in some if each.value is not None]
        if len(some) < PAGE_MAX:
            break
        after = some[-1].name
    return found[:limit]


async def _some(step: Step, under: str, after: str) -> list[StoredSetting]:
    pairs = await step.names(Space.SETTINGS, under, after, PAGE_MAX)
    return [setting_of(step.keys, *pair) for pair in pairs]
