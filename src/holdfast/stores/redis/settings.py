"""Settings: names with a value and a version. Those of a scope are in its tenant's shard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core import bounds, tiers
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, StaleSetting, TenantFull
from holdfast.core.job import By
from holdfast.core.scope import PREFIX, SLOTS, Scope, decode, encode, scope_of
from holdfast.store import Put, Setting
from holdfast.stores.redis import limits_platform, settings_copies
from holdfast.stores.redis.count import KIND_CODES
from holdfast.stores.redis.rows import exact, words
from holdfast.stores.redis.rows_text import raw
from holdfast.stores.redis.settings_copies import HOME, UNKNOWN_TIER
from holdfast.stores.redis.shards import Shards

_OF_TENANT = re.compile(rf"(?:{PREFIX}|{SLOTS})(?:tenant|queue|group|platform|type)/([0-9]+):")

STALE, FULL, TIER_IN_USE, TIERS_FULL = 0, 2, 4, 5
TIER_CODE = "d"
"""In place of the kind of a scope: the setting is a tier, or the platform's defaults."""


class NamePage(msgspec.Struct, frozen=True):
    """A page of the names under a prefix."""

    under: str
    after: str
    limit: int

    def args(self, after: str) -> tuple[str, Any, int]:
        """As the scripts take it, on from a name. Names are in the order of their bytes."""
        start = f"({after}" if after >= self.under else f"[{self.under}"
        # No UTF-8 text contains this byte.
        return start, raw(b"(" + self.under.encode() + b"\xff"), self.limit


async def put_settings(
    shards: Shards, puts: Sequence[Put], by: By | None, now: Micros | None
) -> list[Setting]:
    if not puts:
        return []
    scopes = [scope_of(one.name) for one in puts]
    items = [_item(one, scope) for one, scope in zip(puts, scopes, strict=True)]
    more = (None, bounds.SETTINGS_MAX, words(by), bounds.TIERS_MAX)
    spread = shards.spread(puts, homes_of(shards, scopes))
    copied = shards.number > 1 and any(tiers.tier_of(one.name) is not None for one in puts)
    of_tenants = any(scope is not None and scope.tenant for scope in scopes)
    if len(spread) > 1 or (copied and of_tenants):
        why = "settings of several tenants cannot be put in one call on a store with shards"
        raise InvalidInput(field="puts", why=why)
    platform = [scope for scope in scopes if scope is not None and scope.of_platform]
    if copied and platform:
        why = "tiers and scopes of the platform cannot be put in one call on a store with shards"
        raise InvalidInput(field="puts", why=why)
    if copied:
        return _settings(await settings_copies.put_at_home(shards, items, more, now), puts)
    if platform and shards.number > 1:
        deletes = any(one.value is None for one in puts)
        args = (items, *more)
        answer = await limits_platform.put(shards, platform, args, now, deletes=deletes)
        return _settings(answer, puts)
    (shard,) = spread
    answer = await settings_copies.put_in_shard(shards, shard, (items, *more), now)
    return _settings(answer, puts)


def _item(one: Put, scope: Scope | None) -> tuple[Any, ...]:
    """A put as settings.lua takes it. A value that cannot be one is refused.

    Scripts read the value as it is encoded here: without nulls, for which Lua has a value.
    """
    head = one.name, raw(one.value), exact("version", one.version)
    if scope is not None:
        rules = None if one.value is None else decode(one.name, one.value)
        text = None if rules is None else encode(rules)
        return *head, *scope_args(scope), raw(text), rules and rules.tier
    tier = tiers.tier_of(one.name)
    if tier is None:
        return head
    text = None if one.value is None else tiers.encode(tiers.decode(one.name, one.value))
    return *head, TIER_CODE, "", tier, raw(text)


async def list_settings(shards: Shards, page: NamePage, now: Micros | None) -> list[Setting]:
    args = ((), page.args(page.after), bounds.SETTINGS_MAX, None, bounds.TIERS_MAX)
    answers = await shards.each("settings", shards_under(shards, page.under), args, now)
    found = [each for answer in answers for each in _settings(answer, ())]
    return sorted(found, key=lambda one: one.name)[: page.limit]


def _settings(answer: list[Any], puts: Sequence[Put]) -> list[Setting]:
    done, *values = answer
    if done == STALE:
        name, version = values[0].decode(), int(values[1])
        expected = next(one.version for one in puts if one.name == name and one.version != version)
        raise StaleSetting(field="version", name=name, version=version, expected=expected)
    if done == FULL:
        tenant = values[0].decode()
        raise TenantFull(tenant=tenant, what="scopes", max=bounds.SETTINGS_MAX)
    if done == UNKNOWN_TIER:
        tier, *known = (value.decode() for value in values)
        raise tiers.unknown_tier(tier, known)
    if done == TIER_IN_USE:
        raise tiers.tier_in_use(values[0].decode(), int(values[1]))
    if done == TIERS_FULL:
        why = f"there are {bounds.TIERS_MAX}, and no more may be"
        raise InvalidInput(field="tier", why=why)
    threes = zip(values[::3], values[1::3], values[2::3], strict=True)
    return [Setting(name.decode(), value, int(version)) for name, value, version in threes]


def scope_args(scope: Scope | None) -> tuple[str | None, str | None, str | None]:
    """A scope as the scripts take it."""
    if scope is None:
        return None, None, None
    return KIND_CODES[scope.kind], scope.tenant, scope.part


def homes_of(shards: Shards, scopes: Iterable[Scope | None]) -> list[str]:
    """The tenant whose shard stores each name; "" is in shard 0."""
    return ["" if scope is None else scope.tenant for scope in scopes]


def shards_under(shards: Shards, under: str) -> list[int]:
    """The shards that may have names under a prefix."""
    if under.startswith(tiers.PREFIX):
        return [HOME]
    found = _OF_TENANT.match(under)
    if found is not None and len(under) >= found.end() + int(found[1]):
        return [shards.of(under[found.end() : found.end() + int(found[1])])]
    return shards.all()
