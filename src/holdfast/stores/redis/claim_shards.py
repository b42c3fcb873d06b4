"""Claims over several shards.

A claim asks each shard for its tenants that have jobs (claim_candidates.lua), shares its room among
them as `scope.rounds` says, and has each shard lease what its tenants were given (claim.lua with
grants), which checks every limit again. Turns are numbered by time, so tenants of different shards
are comparable. Claims at the same time may find less than they saw.

A repeated claim must lease nothing more in any shard, also while the first still runs. So one
shard, chosen by the nonce, records each claim before the first job is leased, in the call that asks
for its candidates. A claim that is known there only asks the shards for its own leases, which each
of them remembers. A claim that found nothing is forgotten, because it may be repeated.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import Lease
from holdfast.core.scope import rounds
from holdfast.store import Claim
from holdfast.stores.redis.rows import Unreadable, exact, lease, rows_of
from holdfast.stores.redis.shards import Shards, together

BEGUN, LIMITED = 1, 2
"""What a shard answers: the claim was begun before; limits of the platform count."""
ROUNDS_MAX = 20
"""Rounds of one claim; it needs more than one only if others take what it saw."""

Taken = Lease | Unreadable


def claim_args(claim: Claim, nonces: Sequence[str]) -> tuple[Any, ...]:
    """A claim as lib_leasing.lua takes it; the last nonce is that of its new leases."""
    return (
        claim.worker,
        nonces,
        claim.limit,
        exact("lease_us", claim.lease_us),
        None if claim.tenants is None else tuple(set(claim.tenants)),
        None if claim.queues is None else tuple(set(claim.queues)),
        claim.exclude_groups or None,
    )


class Candidate(msgspec.Struct):
    """A tenant that a claim can serve, as claim_candidates.lua describes it."""

    turn: int
    shard: int
    tenant: str
    weight: int
    credit: int
    ready: int
    """Jobs that it could start, at most as many as the claim could take."""
    whole: int
    """1 if it has no more than these."""
    classes: list[tuple[int, str, list[str]]] = []
    """Under limits of the platform: how many of these jobs in a row, of which queue, need room in
    which scopes."""
    wanted: int = 0
    allowed: int = 0
    meant: dict[str, int] = {}
    """Under limits of the platform: for how many of the jobs it wants there is room, by scope."""
    lines: dict[str, int] = {}
    """The same by queue, in the order in which its lines are visited."""


def candidate(shard: int, turn: bytes, tenant: bytes, *numbers: Any) -> Candidate:
    """A candidate, as claim_candidates.lua answers."""
    weight, credit, ready, whole = map(int, numbers)
    return Candidate(int(turn), shard, tenant.decode(), weight, credit, ready, whole)


def share(tenants: list[Candidate], room: int) -> list[Candidate]:
    """The tenants that have a turn, with what each may take: rounds until the room is used."""
    left = {one.tenant: one.ready for one in tenants}
    served: dict[str, Candidate] = {}
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
            served.pop(one.tenant, None)  # In the order of their last turns.
            served[one.tenant] = one
            if room == 0:
                break
    return list(served.values())


class ShardedClaim:
    """One claim over several shards."""

    def __init__(
        self, shards: Shards, claim: Claim, concerned: list[int], now: Micros | None
    ) -> None:
        self._shards = shards
        self._claim = claim
        self._concerned = concerned
        self._now = now
        self._home = zlib.crc32(claim.nonce.encode()) % shards.number
        """The shard that records which claims were begun."""
        self._dry: set[str] = set()
        """Tenants that have nothing more for this claim."""
        self.meets_limits = False
        """Whether a shard did nothing, because limits of the platform count there."""

    async def leases(self) -> list[Taken]:
        """In the order of the turns of their tenants."""
        found: list[Taken] = []
        for turn in range(ROUNDS_MAX):
            room = self._claim.limit - len(found)
            if room <= 0:
                break
            seen = await self._candidates(room + len(self._dry), first=turn == 0)
            if seen is None:
                return await self._repeat()
            tenants, base = seen
            tenants = [one for one in tenants if one.tenant not in self._dry]
            if not tenants:
                break
            found += await self._take(share(tenants, room), base, turn)
        if not found:
            await self._shards.forget_claim(self._home, self._claim.nonce)
        return found

    async def _candidates(self, most: int, *, first: bool) -> tuple[list[Candidate], int] | None:
        """The tenants that can be claimed from, by turn, and the latest time of a server; None if
        this claim was begun before.
        """
        _, _, _, _, tenants, queues, _ = claim_args(self._claim, ())

        async def ask(shard: int) -> Any:
            nonce = self._claim.nonce if first and shard == self._home else None
            args = (tenants, queues, most if shard in self._concerned else 0, nonce)
            more = self._platform_args(shard)
            return await self._shards.call("claim_candidates", shard, (*args, *more), self._now)

        asked = self._asked()
        if first and self._home not in asked:
            asked.append(self._home)
        answers = dict(zip(asked, await together(ask(shard) for shard in asked), strict=True))
        if any(known == BEGUN for _, known, *_ in answers.values()):
            return None
        self.meets_limits = any(known == LIMITED for _, known, *_ in answers.values())
        if self.meets_limits:
            await self._shards.forget_claim(self._home, self._claim.nonce)
            return [], 0
        found = self._found(answers, most)
        found.sort(key=lambda one: one.turn)
        return found, max((int(answer[0]) for answer in answers.values()), default=0)

    def _is_dry(self, one: Candidate, number: int) -> bool:
        """Whether a tenant that got so many jobs has no more."""
        return number < one.wanted or bool(one.whole and one.wanted == one.ready)

    def _asked(self) -> list[int]:
        """The shards that are asked for candidates."""
        return [*self._concerned]

    def _platform_args(self, shard: int) -> tuple[Any, ...]:
        """What else claim_candidates.lua takes, under limits of the platform."""
        return ()

    def _found(self, answers: dict[int, Any], most: int) -> list[Candidate]:
        return [
            candidate(shard, *row[:6]) for shard, (_, _, *rows) in answers.items() for row in rows
        ]

    async def _repeat(self) -> list[Taken]:
        """The leases that this claim got before, as far as they are valid. Without grants it gets
        no others.
        """
        nonces = [self._nonce(turn) for turn in range(ROUNDS_MAX)]
        args = (claim_args(self._claim, nonces), ())
        answers = await self._shards.each("claim", self._concerned, args, self._now)
        return [lease(row) for rows, *_ in answers for row in rows_of(rows)]

    def _nonce(self, turn: int) -> str:
        """Each round has a nonce of its own: a lease of one round may expire before the next, and
        no token is given twice.
        """
        nonce = self._claim.nonce
        return nonce if turn == 0 else f"{nonce}-{turn - 1}"

    async def _take(self, tenants: Sequence[Candidate], base: int, turn: int) -> list[Taken]:
        """Leases from each tenant what it was given."""
        claim = claim_args(self._claim, [self._nonce(turn)])
        by_shard: dict[int, list[int]] = {}
        for position, one in enumerate(tenants):
            by_shard.setdefault(one.shard, []).append(position)
        answers = await self._lease(claim, tenants, by_shard, base)
        found: dict[int, list[Taken]] = {}
        for positions, (rows, numbers, *_) in zip(by_shard.values(), answers, strict=True):
            rest = map(lease, rows_of(rows))
            for position, number in zip(positions, numbers, strict=True):
                one = tenants[position]
                found[position] = [next(rest) for _ in range(number)]
                if self._is_dry(one, number):
                    self._dry.add(one.tenant)
        return [each for position in sorted(found) for each in found[position]]

    async def _lease(
        self,
        claim: tuple[Any, ...],
        tenants: Sequence[Candidate],
        by_shard: dict[int, list[int]],
        base: int,
    ) -> list[Any]:
        """What claim.lua answers for each shard, given the positions of its tenants."""
        return await together(
            self._shards.call(
                "claim",
                shard,
                (claim, [grant(tenants, position) for position in positions]),
                self._now,
                base=base,
            )
            for shard, positions in by_shard.items()
        )


def grant(tenants: Sequence[Candidate], position: int) -> tuple[Any, ...]:
    """What a tenant may take, as claim.lua takes it."""
    one = tenants[position]
    # Only the turn of the last tenant can have been cut short by a full claim.
    is_last = position == len(tenants) - 1
    allowed = max(one.allowed, one.wanted) if is_last else one.wanted
    return one.tenant, allowed, one.wanted, position
