"""A claim over several shards: look at the tenants of all, share among them, take from each.

With one shard claim.lua does all of this in one step. Over several, turns are numbered by time, so
that tenants of different shards compare; this shares the claim as `scope.rounds` says and each
shard takes what it was given, checking every gate again. A tenant lives in one shard, which gives
its lines their turns. Two claims at once may find less than they saw.

A repeated claim must lease nothing more in any shard, also while the first still runs. So one
shard, picked by the nonce, is told of each claim before the first job is leased, in the call that
looks at its tenants. A claim that is known there only asks the shards for what it has leased, each
of which remembers that by itself. One that found nothing is forgotten, for it may be repeated.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.errors import StoreError
from holdfast.job import Lease
from holdfast.scope import rounds
from holdfast.store import Claim
from holdfast.stores.redis import journey, packs
from holdfast.stores.redis.rows import Unreadable, exact, lease, leased
from holdfast.stores.redis.shards import Shards, together

ROUNDS_MAX = 20
"""Looks of one claim; more are needed only while others take what it saw."""

Taken = Lease | Unreadable


class Waiting(msgspec.Struct):
    """A tenant as `peek` saw it."""

    turn: int
    shard: int
    tenant: str
    weight: int
    credit: int
    ready: int
    """Jobs it could start, as many as the claim could take."""
    whole: int
    """1 if it has no more than these."""
    wanted: int = 0
    allowed: int = 0


def wish(claim: Claim) -> tuple[Any, ...]:
    """A claim as the scripts take it."""
    return (
        claim.worker,
        claim.nonce,
        claim.limit,
        exact("lease_us", claim.lease_us),
        None if claim.tenants is None else tuple(set(claim.tenants)),
        None if claim.queues is None else tuple(set(claim.queues)),
        claim.exclude_groups or None,
    )


def taken(answer: list[Any], claim: Claim, step: int) -> list[Taken]:
    """What the scripts leased for a claim; sequences are so far apart in a shard."""
    found: list[Taken] = []
    for told in leased(answer):
        if packs.is_piece(told[1]):
            found += packs.leases(told, claim, step)
        else:
            found.append(lease(told))
    return found


async def readable(shards: Shards, found: list[Taken], now: Micros | None) -> list[Lease]:
    """The leases of a claim. What cannot be read is failed by its own token, and nothing else."""
    broken = [one.failed() for one in found if isinstance(one, Unreadable)]
    if broken:
        with suppress(StoreError):  # Else it lapses, and is met again.
            await journey.ack(shards, broken, now)
    return [one for one in found if isinstance(one, Lease)]


def share(tenants: list[Waiting], room: int) -> list[Waiting]:
    """Those that have a turn, with what each may take: rounds over all, until it is full."""
    left = {one.tenant: one.ready for one in tenants}
    served: dict[str, Waiting] = {}
    while room > 0:
        found = [one for one in tenants if left[one.tenant] > 0][:room]
        if not found:
            break
        times = rounds(room, [one.weight for one in found])
        for one in found:
            allowed = one.credit if one.credit > 0 else one.weight * times
            one.credit = -1
            number = min(allowed, room, left[one.tenant])
            left[one.tenant] -= number
            one.wanted += number
            one.allowed += allowed
            room -= number
            served.pop(one.tenant, None)  # In the order of their last turns: so they queue again.
            served[one.tenant] = one
            if room == 0:
                break
    return list(served.values())


class Claiming:
    """One claim over several shards."""

    def __init__(
        self, shards: Shards, claim: Claim, concerned: list[int], now: Micros | None
    ) -> None:
        self._shards = shards
        self._claim = claim
        self._concerned = concerned
        self._now = now
        self._home = zlib.crc32(claim.nonce.encode()) % shards.number
        """The shard that knows which claims were begun."""
        self._dry: set[str] = set()
        """Tenants that have nothing more for this claim."""

    async def taken(self) -> list[Taken]:
        """In the order of their tenants' turns."""
        found: list[Taken] = []
        for turn in range(ROUNDS_MAX):
            room = self._claim.limit - len(found)
            if room <= 0:
                break
            seen = await self._peek(room + len(self._dry), first=turn == 0)
            if seen is None:
                return await self._again()
            tenants, base = seen
            tenants = [one for one in tenants if one.tenant not in self._dry]
            if not tenants:
                break
            found += await self._serve(share(tenants, room), base, turn)
        if not found:
            await self._shards.forget_claim(self._home, self._claim.nonce)
        return found

    async def _peek(self, most: int, *, first: bool) -> tuple[list[Waiting], int] | None:
        """The tenants that can be claimed from, in turn, and the latest time of a server; None if
        this claim was begun before.
        """
        claim = wish(self._claim)

        async def ask(shard: int) -> Any:
            nonce = self._claim.nonce if first and shard == self._home else None
            args = (*claim[4:6], most if shard in self._concerned else 0, nonce)
            return await self._shards.call("peek", shard, args, self._now)

        asked = [*self._concerned]
        if first and self._home not in asked:
            asked.append(self._home)
        answers = await together(ask(shard) for shard in asked)
        if any(known for _, known, *_ in answers):
            return None
        tenants = [
            Waiting(int(turn), shard, tenant.decode(), *map(int, numbers))
            for shard, (_, _, *found) in zip(asked, answers, strict=True)
            for turn, tenant, *numbers in found
        ]
        tenants.sort(key=lambda one: one.turn)
        return tenants, max(int(answer[0]) for answer in answers)

    async def _again(self) -> list[Taken]:
        """What this claim has leased already, as far as it still holds."""
        nonces = [self._nonce(turn) for turn in range(ROUNDS_MAX)]
        args = (wish(self._claim), nonces)
        answers = await self._shards.each("again", self._concerned, args, self._now)
        return [
            one for answer in answers for one in taken(answer, self._claim, self._shards.number)
        ]

    def _nonce(self, turn: int) -> str:
        """A lease of one round may have lapsed before the next: no token is given twice."""
        nonce = self._claim.nonce
        return nonce if turn == 0 else f"{nonce}-{turn - 1}"

    async def _serve(self, tenants: Sequence[Waiting], base: int, turn: int) -> list[Taken]:
        """Takes from each tenant what it was given."""
        claim = msgspec.structs.replace(self._claim, nonce=self._nonce(turn))
        by_shard: dict[int, list[int]] = {}
        for place, one in enumerate(tenants):
            by_shard.setdefault(one.shard, []).append(place)
        answers = await together(
            self._shards.call(
                "serve",
                shard,
                (wish(claim), [_given(tenants, place) for place in places]),
                self._now,
                base=base,
            )
            for shard, places in by_shard.items()
        )
        found: dict[int, list[Taken]] = {}
        for places, (told, numbers) in zip(by_shard.values(), answers, strict=True):
            rest = iter(taken(told, claim, self._shards.number))
            for place, number in zip(places, numbers, strict=True):
                one = tenants[place]
                found[place] = [next(rest) for _ in range(number)]
                if number < one.wanted or (one.whole and one.wanted == one.ready):
                    self._dry.add(one.tenant)
        return [each for place in sorted(found) for each in found[place]]


def _given(tenants: Sequence[Waiting], place: int) -> tuple[Any, ...]:
    """What serve.lua is told of a tenant."""
    one = tenants[place]
    # Only the last one's turn can have been cut short by a full claim.
    allowed = max(one.allowed, one.wanted) if place == len(tenants) - 1 else one.wanted
    return one.tenant, allowed, one.wanted, place
