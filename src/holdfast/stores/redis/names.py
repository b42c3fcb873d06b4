"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.clock import Micros
from holdfast.errors import InvalidInput, StaleSetting
from holdfast.scope import PREFIX, SLOTS, Scope, decode, scope_of, slot_scope_of
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.redis.rows import raw
from holdfast.stores.redis.shards import Shards
from holdfast.stores.redis.sight import KIND_CODES

_OF_TENANT = re.compile(rf"(?:{PREFIX}|{SLOTS})(?:tenant|queue|group)/([0-9]+):")


async def put(
    shards: Shards, puts: Sequence[Put], under: str | None, now: Micros | None
) -> list[Setting]:
    scopes = [scope_of(one.name) for one in puts]
    for one, scope in zip(puts, scopes, strict=True):
        if one.value is not None and scope is not None:
            decode(one.name, one.value)  # Refused before anything is changed.
    spread = shards.spread(puts, _homes(shards, scopes))
    if len(spread) > 1:
        why = "settings of several tenants cannot be put in one call on a store with shards"
        raise InvalidInput(field="puts", why=why)
    settings: list[Setting] = []
    for shard in spread:
        items = [
            (one.name, raw(one.value), one.version, *_scope(scope))
            for one, scope in zip(puts, scopes, strict=True)
        ]
        settings = _settings(await shards.call("settings", shard, (items, None), now), puts)
    return settings if under is None else await settings_under(shards, under, now)


async def settings_under(shards: Shards, under: str, now: Micros | None) -> list[Setting]:
    answers = await shards.each("settings", _under(shards, under), ((), under), now)
    return sorted(
        (each for answer in answers for each in _settings(answer, ())), key=lambda s: s.name
    )


def _settings(answer: list[Any], puts: Sequence[Put]) -> list[Setting]:
    done, *facts = answer
    if not done:
        name, version = facts[0].decode(), int(facts[1])
        expected = next(one.version for one in puts if one.name == name and one.version != version)
        raise StaleSetting(field="version", name=name, version=version, expected=expected)
    threes = zip(facts[::3], facts[1::3], facts[2::3], strict=True)
    return [Setting(name.decode(), value, int(version)) for name, value, version in threes]


async def take(
    shards: Shards, takes: Sequence[Take], under: str | None, now: Micros | None
) -> list[Hold]:
    scopes = [slot_scope_of(one.name) for one in takes]
    spread = shards.spread(takes, _homes(shards, scopes))
    found: dict[int, Hold] = {}
    for shard, places in spread.items():
        items = [_take(takes[place], scopes[place]) for place in places]
        answer = await shards.call("hold", shard, (items, None), now)
        found |= dict(zip(places, map(_hold, answer), strict=True))
    if under is not None:
        return await holds_under(shards, under, now)
    return [found[place] for place in range(len(takes))]


def _take(one: Take, scope: Scope | None) -> tuple[Any, ...]:
    slot = None if scope is None else one.name.removeprefix(scope.slots)
    return (one.name, one.owner, one.length_us, one.note, *_scope(scope), slot)


async def holds_under(shards: Shards, under: str, now: Micros | None) -> list[Hold]:
    answers = await shards.each("hold", _under(shards, under), ((), under), now)
    return sorted((_hold(each) for answer in answers for each in answer), key=lambda h: h.name)


def _hold(told: list[bytes]) -> Hold:
    name, owner, until, note = told
    return Hold(name.decode(), owner.decode(), int(until), note.decode())


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
