"""Settings: names with a value and a version. Those of a scope are in its tenant's shard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core import bounds
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, StaleSetting, TenantFull
from holdfast.core.job import By
from holdfast.core.scope import PREFIX, SLOTS, Scope, decode, scope_of
from holdfast.store import Put, Setting
from holdfast.stores.redis.count import KIND_CODES
from holdfast.stores.redis.rows import exact, raw, words
from holdfast.stores.redis.shards import Shards

_OF_TENANT = re.compile(rf"(?:{PREFIX}|{SLOTS})(?:tenant|queue|group|platform|type)/([0-9]+):")

STALE, FULL = 0, 2


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
    scopes = [scope_of(one.name) for one in puts]
    for one, scope in zip(puts, scopes, strict=True):
        if one.value is not None and scope is not None:
            decode(one.name, one.value)  # Refused before anything changes.
    spread = shards.spread(puts, homes_of(shards, scopes))
    if len(spread) > 1:
        why = "settings of several tenants cannot be put in one call on a store with shards"
        raise InvalidInput(field="puts", why=why)
    for shard in spread:
        items = [
            (one.name, raw(one.value), exact("version", one.version), *scope_args(scope))
            for one, scope in zip(puts, scopes, strict=True)
        ]
        args = (items, None, bounds.SETTINGS_MAX, words(by))
        return _settings(await shards.call("settings", shard, args, now), puts)
    return []


async def list_settings(shards: Shards, page: NamePage, now: Micros | None) -> list[Setting]:
    args = ((), page.args(page.after), bounds.SETTINGS_MAX, None)
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
    found = _OF_TENANT.match(under)
    if found is not None and len(under) >= found.end() + int(found[1]):
        return [shards.of(under[found.end() : found.end() + int(found[1])])]
    return shards.all()
