"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast import limits
from holdfast.clock import Micros
from holdfast.errors import InvalidInput, StaleSetting, TenantFull
from holdfast.job import By
from holdfast.scope import PREFIX, SLOTS, Scope, decode, scope_of, slot_scope_of
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.redis.rows import exact, raw, words
from holdfast.stores.redis.shards import Shards, together
from holdfast.stores.redis.sight import KIND_CODES

_OF_TENANT = re.compile(rf"(?:{PREFIX}|{SLOTS})(?:tenant|queue|group)/([0-9]+):")

STALE, FULL = 0, 2


class Names(msgspec.Struct, frozen=True):
    """A page of the names under a prefix."""

    under: str
    after: str
    limit: int

    def told(self, after: str) -> tuple[str, Any, int]:
        """As the scripts take it, on from a name. The order is that of the bytes, as of letters."""
        start = f"({after}" if after >= self.under else f"[{self.under}"
        # No text has such a byte.
        return start, raw(b"(" + self.under.encode() + b"\xff"), self.limit


async def put(
    shards: Shards, puts: Sequence[Put], by: By | None, now: Micros | None
) -> list[Setting]:
    scopes = [scope_of(one.name) for one in puts]
    for one, scope in zip(puts, scopes, strict=True):
        if one.value is not None and scope is not None:
            decode(one.name, one.value)  # Refused before anything is changed.
    spread = shards.spread(puts, _homes(shards, scopes))
    if len(spread) > 1:
        why = "settings of several tenants cannot be put in one call on a store with shards"
        raise InvalidInput(field="puts", why=why)
    for shard in spread:
        items = [
            (one.name, raw(one.value), exact("version", one.version), *_scope(scope))
            for one, scope in zip(puts, scopes, strict=True)
        ]
        args = (items, None, limits.SETTINGS_MAX, words(by))
        return _settings(await shards.call("settings", shard, args, now), puts)
    return []


async def settings_under(shards: Shards, page: Names, now: Micros | None) -> list[Setting]:
    args = ((), page.told(page.after), limits.SETTINGS_MAX, None)
    answers = await shards.each("settings", _under(shards, page.under), args, now)
    found = [each for answer in answers for each in _settings(answer, ())]
    return sorted(found, key=lambda one: one.name)[: page.limit]


def _settings(answer: list[Any], puts: Sequence[Put]) -> list[Setting]:
    done, *facts = answer
    if done == STALE:
        name, version = facts[0].decode(), int(facts[1])
        expected = next(one.version for one in puts if one.name == name and one.version != version)
        raise StaleSetting(field="version", name=name, version=version, expected=expected)
    if done == FULL:
        tenant = facts[0].decode()
        raise TenantFull(tenant=tenant, what="scopes", max=limits.SETTINGS_MAX)
    threes = zip(facts[::3], facts[1::3], facts[2::3], strict=True)
    return [Setting(name.decode(), value, int(version)) for name, value, version in threes]


async def take(shards: Shards, takes: Sequence[Take], now: Micros | None) -> list[Hold]:
    scopes = [slot_scope_of(one.name) for one in takes]
    spread = shards.spread(takes, _homes(shards, scopes))
    items = {
        shard: [_take(takes[place], scopes[place]) for place in places]
        for shard, places in spread.items()
    }
    if len(spread) > 1:
        # What one shard refuses, none shall have done.
        for shard in spread:
            _held(await _hold(shards, shard, items[shard], now, check=True))
    found: dict[int, Hold] = {}
    for shard, places in spread.items():
        answer = _held(await _hold(shards, shard, items[shard], now, check=False))
        found |= dict(zip(places, answer, strict=True))
    return [found[place] for place in range(len(takes))]


async def _hold(
    shards: Shards, shard: int, items: list[Any], now: Micros | None, *, check: bool
) -> Any:
    return await shards.call("hold", shard, (items, None, limits.SLOTS_MAX, check), now)


def _take(one: Take, scope: Scope | None) -> tuple[Any, ...]:
    slot = None if scope is None else one.name.removeprefix(scope.slots)
    return (one.name, one.owner, one.length_us, one.note, *_scope(scope), slot)


async def holds_under(shards: Shards, page: Names, now: Micros | None) -> list[Hold]:
    pages = await together(
        _holds_of(shards, shard, page, now) for shard in _under(shards, page.under)
    )
    return sorted((hold for each in pages for hold in each), key=lambda h: h.name)[: page.limit]


async def _holds_of(shards: Shards, shard: int, page: Names, now: Micros | None) -> list[Hold]:
    """A page of one shard, looked for a bounded number of names at a time."""
    found: list[Hold] = []
    after = page.after
    while True:
        args = ((), page.told(after), limits.SLOTS_MAX, False)
        answer = await shards.call("hold", shard, args, now)
        found += _held(answer)
        after = answer[1].decode()
        if not after or len(found) >= page.limit:
            return found


def _held(answer: list[Any]) -> list[Hold]:
    full, _, *told = answer
    if full:
        raise TenantFull(tenant=full.decode(), what="slots", max=limits.SLOTS_MAX)
    return [
        Hold(name.decode(), owner.decode(), int(until), note.decode())
        for name, owner, until, note in told
    ]


def _scope(scope: Scope | None) -> tuple[str | None, str | None, str | None]:
    """A scope as the scripts take it."""
    if scope is None:
        return None, None, None
    return KIND_CODES[scope.kind], scope.tenant, scope.part


def _homes(shards: Shards, scopes: Iterable[Scope | None]) -> list[str]:
    """A tenant of the shard that each name lives in; those of no scope live in shard 0."""
    return ["" if scope is None else scope.tenant for scope in scopes]


def _under(shards: Shards, under: str) -> list[int]:
    """The shards that may know names under a prefix."""
    found = _OF_TENANT.match(under)
    if found is not None and len(under) >= found.end() + int(found[1]):
        return [shards.of(under[found.end() : found.end() + int(found[1])])]
    return shards.all()
