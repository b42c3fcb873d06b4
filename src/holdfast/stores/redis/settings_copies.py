"""Copies of tiers: what every shard applies to its own tenants.

No script sees two shards. So one shard, home, stores the settings of tiers (version, event,
listing), and every shard has a copy of each. A put first changes home, which gives the new state a
stamp and lists it as pending, then tells all other shards, then has home forget that it is pending.
A shard takes a copy only if its stamp is higher than that of the copy it has. Whoever dies in
between leaves a pending state, which the next put, prune or open tells the shards.

A tier that tenants are in is not deleted. They are in all shards, so its deletion has three steps:
home closes the tier; each shard closes its copy, from then on refuses new tenants in it, and says
how many it has; home deletes the tier if there are none, and opens it again if there are. Home
deletes only what is still closed by the same stamp. So whoever is in the way of a closed tier, or
finds one that somebody left closed, has home open it again: the deletion begins anew if its process
still lives. `lua/lib_copies.lua` shows what is stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.core import tiers
from holdfast.core.backoff import Delays
from holdfast.core.bounds import COPIES_MAX, COPY_PASSES_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import StoreUnavailable
from holdfast.stores.redis.rows_text import raw
from holdfast.stores.redis.shards import Shards, together

HOME = 0
"""The shard that stores the settings of tiers."""
UNKNOWN_TIER, CLOSING, CLOSED = 3, 8, 9
"""Of the answers of settings.lua: there is no such tier here; it is closing; these are closed."""
TRIES_MAX = 10
"""How often a put is tried that others keep from what it needs."""
RETRY_S_MIN = 0.005
RETRY_S_MAX = 0.2


class Copy(msgspec.Struct, frozen=True):
    """A state of a tier as shards are told of it."""

    tier: str
    stamp: int
    text: bytes | None
    """What it sets; None if it is deleted."""
    closing: bool
    users: int
    """Tenants of home in it."""


async def put_at_home(
    shards: Shards, items: Sequence[tuple[Any, ...]], more: tuple[Any, ...], now: Micros | None
) -> list[Any]:
    """Puts settings, tiers among them. Returns what settings.lua answered, after all shards know.

    An item is a put as settings.lua takes it; `more` are its further arguments.
    """
    named = [tiers.tier_of(name) for name, *_ in items]
    changed = [tier for tier in named if tier is not None]
    stamps: dict[str | None, int] = {}
    delays = Delays(RETRY_S_MIN, RETRY_S_MAX, chance=random.random)
    for _ in range(TRIES_MAX):
        puts = [
            (*item, None, stamps[tier]) if tier in stamps else item
            for item, tier in zip(items, named, strict=True)
        ]
        answer: list[Any] = await shards.call("settings", HOME, (puts, *more), now)
        if answer[0] != CLOSED:
            # Also after a refusal: this put may be the repeat of one whose answer was lost.
            await settle(shards, now, changed)
            return answer
        found = _copies(answer[1:])
        for copy, users in zip(found, await _tell(shards, found, now), strict=True):
            if users:
                await settle(shards, now, [one.tier for one in found], reopen=True)
                raise tiers.tier_in_use(copy.tier, users)
        if stamps:  # Somebody opened one of them again. Whoever did is given time to go on.
            await asyncio.sleep(delays.next_s())
        stamps = {copy.tier: copy.stamp for copy in found}
    raise _contended(shards, changed)


async def put_in_shard(
    shards: Shards, shard: int, args: tuple[Any, ...], now: Micros | None
) -> list[Any]:
    """Puts settings of a tenant. What they say of tiers goes by the shard's copies, so a refusal
    counts only after home has told the shard what it knows.
    """
    answer: list[Any] = []
    asked = False
    failed: StoreUnavailable | None = None
    for _ in range(TRIES_MAX):
        answer = await shards.call("settings", shard, args, now)
        in_the_way = answer[0] == CLOSING or (answer[0] == UNKNOWN_TIER and not asked)
        if shards.number == 1 or not in_the_way:
            if answer[0] == UNKNOWN_TIER and failed is not None:
                raise failed
            return answer
        if failed is not None:
            raise failed
        asked = True
        try:
            await settle(shards, now, [answer[1].decode()], reopen=True)
        except StoreUnavailable as error:
            failed = error  # Perhaps of another shard: this one may have been told.
    raise _contended(shards, [answer[1].decode()])


def _contended(shards: Shards, changed: Iterable[str]) -> StoreUnavailable:
    why = f"others change the tier {', '.join(changed)} again and again; try again"
    return StoreUnavailable(store=shards.name, why=why)


async def settle(
    shards: Shards, now: Micros | None, named: Sequence[str] = (), *, reopen: bool = False
) -> None:
    """Tells all shards of these tiers, and of what is pending. With `reopen` opens those of these
    that are closing; if none is named, all.
    """
    if shards.number == 1:
        return
    left = list(named)
    for _ in range(COPY_PASSES_MAX):
        asked = [(tier, reopen) for tier in left[:COPIES_MAX]]
        args = ("pending", asked, reopen and not named)
        found = _copies(await shards.call("copies", HOME, args, now))
        left = left[COPIES_MAX:]
        if found:
            await _tell(shards, found, now)
            done = [(copy.tier, copy.stamp) for copy in found]
            await shards.call("copies", HOME, ("done", done), now)
        if len(found) < COPIES_MAX and not left:
            return


async def _tell(shards: Shards, found: Sequence[Copy], now: Micros | None) -> list[int]:
    """Has each shard take these copies. Returns for each how many tenants use it, in all shards."""
    told = [(one.tier, one.stamp, raw(one.text), one.closing) for one in found]

    async def tell(shard: int) -> list[int]:
        users: list[int] = []
        for start in range(0, len(told), COPIES_MAX):
            args = ("accept", told[start : start + COPIES_MAX])
            users += await shards.call("copies", shard, args, now)
        return users

    answers = await together(tell(shard) for shard in shards.all() if shard != HOME)
    return [sum(numbers) for numbers in zip([one.users for one in found], *answers, strict=True)]


async def compare(shards: Shards, now: Micros | None) -> None:
    """Tells all shards again of what differs in one of them: a server that took over from another
    may lack what that one had confirmed.
    """
    if shards.number == 1:
        return
    answers = await shards.each("copies", shards.all(), ("list", ()), now)
    home, *others = [
        {tier.decode(): int(stamp) for tier, stamp in zip(each[::2], each[1::2], strict=True)}
        for each in answers
    ]
    highest: dict[str, int] = {}
    for other in others:
        for tier in home.keys() | other.keys():
            stamp = other.get(tier, 0)
            if stamp != home.get(tier, 0):
                highest[tier] = max(stamp, highest.get(tier, 0))
    told = [*highest.items()]
    for start in range(0, len(told), COPIES_MAX):
        args = ("again", told[start : start + COPIES_MAX])
        await shards.call("copies", HOME, args, now)
    await settle(shards, now, reopen=True)


def _copies(answer: Iterable[list[Any]]) -> list[Copy]:
    return [
        Copy(tier.decode(), int(stamp), text or None, bool(closing), users)
        for tier, stamp, text, closing, users in answer
    ]
