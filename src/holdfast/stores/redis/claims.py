"""A claim over several shards: look at the lines of all, share among them, take from each.

With one shard claim.lua does all of this in one step. Over several, turns are numbered by time, so
that lines of different shards compare; this shares the claim as `scope.rounds` says and each shard
takes what it was given, checking every gate again. Two claims at once may find less than they saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import Micros
from holdfast.job import Lease
from holdfast.scope import rounds
from holdfast.store import Claim
from holdfast.stores.redis import packs
from holdfast.stores.redis.rows import leased, token
from holdfast.stores.redis.shards import Shards, together

ROUNDS_MAX = 20
"""Looks of one claim; more are needed only while others take what it saw."""


class Line(msgspec.Struct):
    """A line as `peek` saw it."""

    turn: int
    shard: int
    tenant: str
    queue: str
    weight: int
    credit: int
    ready: int
    wanted: int = 0
    allowed: int = 0

    @property
    def name(self) -> tuple[str, str]:
        return self.tenant, self.queue


def wish(claim: Claim) -> tuple[Any, ...]:
    """A claim as the scripts take it."""
    return (
        claim.worker,
        claim.nonce,
        claim.limit,
        claim.lease_us,
        claim.tenants,
        claim.queues,
        claim.exclude_groups or None,
    )


def leases(answer: list[Any], claim: Claim, step: int) -> list[Lease]:
    """What the scripts leased for a claim; sequences are so far apart in a shard."""
    found: list[Lease] = []
    for told in leased(answer):
        if packs.is_piece(told[1]):
            found += packs.leases(told, claim, step)
        else:
            job, secret = token(told, 0)
            assert job.lease_until is not None
            found.append(Lease(job, secret, job.lease_until))
    return found


def share(lines: list[Line], room: int) -> list[Line]:
    """The lines that have a turn, with what each may take: rounds over all, until it is full."""
    left = {line.name: line.ready for line in lines}
    served: dict[tuple[str, str], Line] = {}
    while room > 0:
        open_lines = [line for line in lines if left[line.name] > 0][:room]
        if not open_lines:
            break
        times = rounds(room, [line.weight for line in open_lines])
        for line in open_lines:
            allowed = line.credit if line.credit > 0 else line.weight * times
            line.credit = -1
            taken = min(allowed, room, left[line.name])
            left[line.name] -= taken
            line.wanted += taken
            line.allowed += allowed
            room -= taken
            served.pop(line.name, None)  # In the order of their last visits: so they queue again.
            served[line.name] = line
            if room == 0:
                break
        else:
            continue
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
        self._dry: set[tuple[str, str]] = set()
        """Lines that have nothing more for this claim."""

    async def leases(self) -> list[Lease]:
        """In the order of their lines' turns."""
        leases: list[Lease] = []
        limit, nonce = self._claim.limit, self._claim.nonce
        for turn in range(ROUNDS_MAX):
            room = limit - len(leases)
            if room <= 0:
                break
            lines, base = await self._peek(room + len(self._dry))
            lines = [line for line in lines if line.name not in self._dry]
            if not lines:
                break
            leases += await self._serve(share(lines, room), base)
            # A lease of this round may have lapsed before the next: no token is given twice.
            self._claim = msgspec.structs.replace(self._claim, nonce=f"{nonce}-{turn}")
        return leases

    async def _peek(self, most: int) -> tuple[list[Line], int]:
        """The lines that can be claimed from, in turn, and the latest time of a server."""
        args = (self._claim.tenants, self._claim.queues, most)
        answers = await self._shards.each("peek", self._concerned, args, self._now)
        lines = [
            Line(int(turn), shard, tenant.decode(), queue.decode(), *map(int, numbers))
            for shard, (_, *found) in zip(self._concerned, answers, strict=True)
            for turn, tenant, queue, *numbers in found
        ]
        lines.sort(key=lambda line: line.turn)
        return lines, max(int(answer[0]) for answer in answers)

    async def _serve(self, lines: Sequence[Line], base: int) -> list[Lease]:
        """Takes from each line what it was given."""
        by_shard: dict[int, list[int]] = {}
        for place, line in enumerate(lines):
            by_shard.setdefault(line.shard, []).append(place)
        answers = await together(
            self._shards.call(
                "serve",
                shard,
                (wish(self._claim), [_given(lines, place) for place in places]),
                self._now,
                base=base,
            )
            for shard, places in by_shard.items()
        )
        taken: dict[int, list[Lease]] = {}
        for places, (told, numbers) in zip(by_shard.values(), answers, strict=True):
            rest = iter(leases(told, self._claim, self._shards.number))
            for place, number in zip(places, numbers, strict=True):
                line = lines[place]
                taken[place] = [next(rest) for _ in range(number)]
                if number < line.wanted or line.wanted == line.ready:
                    self._dry.add(line.name)
        return [lease for place in sorted(taken) for lease in taken[place]]


def _given(lines: Sequence[Line], place: int) -> tuple[Any, ...]:
    """What serve.lua is told of a line."""
    line = lines[place]
    # Only the last line's turn can have been cut short by a full claim.
    allowed = max(line.allowed, line.wanted) if place == len(lines) - 1 else line.wanted
    return line.tenant, line.queue, allowed, line.wanted, place
