"""Holds: names that are held for a time (leaders, the presence of workers, slots of scopes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core import bounds
from holdfast.core.clock import Micros
from holdfast.core.errors import TenantFull
from holdfast.core.scope import Scope, slot_scope_of
from holdfast.store import Hold, Take
from holdfast.stores.redis.settings import NamePage, homes_of, scope_args, shards_under
from holdfast.stores.redis.shards import Shards, together


async def take_holds(shards: Shards, takes: Sequence[Take], now: Micros | None) -> list[Hold]:
    scopes = [slot_scope_of(one.name) for one in takes]
    spread = shards.spread(takes, homes_of(shards, scopes))
    items = {
        shard: [_take(takes[position], scopes[position]) for position in positions]
        for shard, positions in spread.items()
    }
    if len(spread) > 1:
        # If one shard refuses, no shard may have changed anything.
        for shard in spread:
            _held(await _hold(shards, shard, items[shard], now, check=True))
    found: dict[int, Hold] = {}
    for shard, positions in spread.items():
        answer = _held(await _hold(shards, shard, items[shard], now, check=False))
        found |= dict(zip(positions, answer, strict=True))
    return [found[position] for position in range(len(takes))]


async def _hold(
    shards: Shards, shard: int, items: list[Any], now: Micros | None, *, check: bool
) -> Any:
    return await shards.call("hold", shard, (items, None, bounds.SLOTS_MAX, check), now)


def _take(one: Take, scope: Scope | None) -> tuple[Any, ...]:
    slot = None if scope is None else one.name.removeprefix(scope.slots)
    return (one.name, one.owner, one.length_us, one.note, *scope_args(scope), slot)


async def list_holds(shards: Shards, page: NamePage, now: Micros | None) -> list[Hold]:
    pages = await together(
        _holds_of(shards, shard, page, now) for shard in shards_under(shards, page.under)
    )
    return sorted((hold for each in pages for hold in each), key=lambda h: h.name)[: page.limit]


async def _holds_of(shards: Shards, shard: int, page: NamePage, now: Micros | None) -> list[Hold]:
    """A page of one shard; one call reads a bounded number of names."""
    found: list[Hold] = []
    after = page.after
    while True:
        args = ((), page.args(after), bounds.SLOTS_MAX, False)
        answer = await shards.call("hold", shard, args, now)
        found += _held(answer)
        after = answer[1].decode()
        if not after or len(found) >= page.limit:
            return found


def _held(answer: list[Any]) -> list[Hold]:
    full, _, *rows = answer
    if full:
        raise TenantFull(tenant=full.decode(), what="slots", max=bounds.SLOTS_MAX)
    return [
        Hold(name.decode(), owner.decode(), int(until), note.decode())
        for name, owner, until, note in rows
    ]
