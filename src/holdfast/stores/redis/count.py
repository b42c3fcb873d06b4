"""Count: tallies of scopes, merged from the shards of their tenants. Reads only."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.scope import ScopeKind
from holdfast.store import Tally
from holdfast.stores.redis.rows import STATES
from holdfast.stores.redis.shards import Shards, together

KIND_CODES = {
    ScopeKind.TENANT: "t",
    ScopeKind.QUEUE: "q",
    ScopeKind.GROUP: "g",
    ScopeKind.PLATFORM: "p",
    ScopeKind.TYPE: "y",
}
DUE_CALLS_MAX = 500
"""Calls that read due jobs which no claim has moved yet; each reads 2000."""

_Key = tuple[str, str]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Which scopes to count."""

    tenant: str | None
    by: ScopeKind
    part: str | None
    after: tuple[str, str] | None
    limit: int


class _Counted(msgspec.Struct):
    numbers: list[int]
    """By state, in the order of `STATES`."""
    oldest: int | None
    slots: int


async def count_scopes(
    shards: Shards, asked: Asked, now: Micros | None, correction: int = 0
) -> list[Tally]:
    if asked.limit == 0:
        return []
    of_platform = asked.tenant == "" or asked.by in (ScopeKind.PLATFORM, ScopeKind.TYPE)
    tenants = None if asked.tenant is None or of_platform else (asked.tenant,)
    concerned = shards.concerned(tenants)
    pages = await together(_count(shards, shard, asked, now) for shard in concerned)
    if of_platform:
        pages = [_summed(pages)]
    found = sorted((key, one) for page in pages for key, one in page.items())
    return [_tally(key, one, correction) for key, one in found[: asked.limit]]


async def _count(
    shards: Shards, shard: int, asked: Asked, now: Micros | None
) -> dict[_Key, _Counted]:
    after = None if asked.after is None else "\0".join(asked.after)
    args = (KIND_CODES[asked.by], asked.tenant, asked.part, after, asked.limit)
    due_from, *rows = await shards.call("count", shard, (*args, 0), now)
    found = {
        key: one for key, one in map(_counted, rows) if asked.after is None or key > asked.after
    }
    for _ in range(DUE_CALLS_MAX):
        if due_from == b"":
            break
        due_from, *rows = await shards.call("count", shard, (*args, due_from), now)
        for key, more in map(_counted, rows):
            if key in found:
                _add(found[key], more)
    return found


def _summed(pages: list[dict[_Key, _Counted]]) -> dict[_Key, _Counted]:
    """The scopes that the home of the platform has, with what runs in all shards."""
    home, *others = pages
    for page in others:
        for key, one in page.items():
            if key in home:
                _add(home[key], one)
    return home


def _counted(row: Any) -> tuple[_Key, _Counted]:
    tenant, part, numbers, oldest, slots = row
    key = (tenant.decode(), part.decode())
    return key, _Counted(numbers, int(oldest) if oldest else None, slots)


def _add(one: _Counted, more: _Counted) -> None:
    """Adds what further due jobs change."""
    one.numbers = [a + b for a, b in zip(one.numbers, more.numbers, strict=True)]
    one.oldest = min((at for at in (one.oldest, more.oldest) if at is not None), default=None)


def _tally(key: _Key, one: _Counted, correction: int) -> Tally:
    counts = {state: n for state, n in zip(STATES, one.numbers, strict=True) if n}
    return Tally(*key, counts, one.oldest, one.slots, correction)
