"""Claims over several shards while the platform has settings.

The home of the platform says which scopes have little room (`limits_platform.py`). Each shard tells
which tenants it could serve, in which scopes their jobs are, and sets aside what has no room. The
room is shared among the tenants of all shards, in the order of their turns and by weight, as one
server does it. Then the home gives permits for what was shared, each shard leases by them, and the
home is told how many jobs started.

Shards that told something else than the home knew are asked again: a lease that expired, a claim or
an ack that died half way have left room there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from holdfast.core.bounds import LIMIT_QUIET_S
from holdfast.core.clock import Micros, micros
from holdfast.core.scope import rounds
from holdfast.store import Claim
from holdfast.stores.redis.claim_shards import (
    ROUNDS_MAX,
    Candidate,
    ShardedClaim,
    Taken,
    candidate,
    grant,
)
from holdfast.stores.redis.limits_platform import (
    WHOLE_STORE,
    Answer,
    Question,
    ask_home,
    forget_gone,
    reports_of,
    scopes_of,
)
from holdfast.stores.redis.rows import Unreadable, lease, rows_of
from holdfast.stores.redis.shards import Shards, together

Rooms = dict[str, int]
"""How many jobs may start in the scopes that have little room."""


def share_room(tenants: list[Candidate], room: int, rooms: Rooms) -> list[Candidate]:
    """The tenants that have a turn, with what each may take in which scopes: rounds until the room
    is used. `rooms` is what is left of it.
    """
    room = min(room, rooms.get(WHOLE_STORE, room))
    served: dict[str, Candidate] = {}
    waiting = tenants
    while room > 0:
        waiting = [one for one in waiting if _can_start(one, rooms)]
        found = waiting[:room]
        if not found:
            break
        weights = [one.weight for one in found]
        times = rounds(room, weights)
        shares = {scope: rounds(free, weights) for scope, free in rooms.items() if free}
        for one in found:
            allowed = one.credit if one.credit > 0 else one.weight * times
            one.credit = -1
            number = _take(one, min(allowed, room), shares, rooms)
            if number == 0:
                continue
            one.wanted += number
            one.allowed += allowed if number == room else number
            if number < room and not _can_start(one, rooms) and one.classes:
                # A limit cut its turn short: it keeps the rest, but no more than its weight.
                one.allowed += max(0, min(allowed, one.weight) - number)
            room -= number
            served.pop(one.tenant, None)  # In the order of their last turns.
            served[one.tenant] = one
            if room == 0:
                break
    return list(served.values())


def _can_start(one: Candidate, rooms: Rooms) -> bool:
    """Whether it has jobs for which there is room."""
    return any(_has_room(scopes, rooms) for _, _, scopes in one.classes)


def _has_room(scopes: list[str], rooms: Rooms) -> bool:
    return all(rooms.get(scope, 1) > 0 for scope in scopes)


def _take(one: Candidate, most: int, shares: dict[str, int], rooms: Rooms) -> int:
    """Gives a tenant room for up to so many of its jobs, its share in each scope. Returns for how
    many.
    """
    taken: dict[str, int] = defaultdict(int)
    stopped: set[str] = set()
    left, got = [], 0
    for number, queue, scopes in one.classes:
        fits = [
            min(rooms[scope], one.weight * shares.get(scope, 0) - taken[scope])
            for scope in scopes
            if scope in rooms and scope != WHOLE_STORE
        ]
        fits += [number, most - got, rooms.get(WHOLE_STORE, number)]
        here = 0 if queue in stopped else max(0, min(fits))
        got += here
        if here:
            one.lines[queue] = one.lines.get(queue, 0) + here
        for scope in scopes:
            taken[scope] += here
            one.meant[scope] = one.meant.get(scope, 0) + here
            if scope in rooms:
                rooms[scope] -= here
        if number > here:
            left.append((number - here, queue, scopes))
            if _has_room(scopes, rooms):
                stopped.add(queue)  # The line goes on with these in the next round.
    one.classes = left
    return got


class LimitedClaim(ShardedClaim):
    """One claim under limits of the platform."""

    def __init__(
        self, shards: Shards, claim: Claim, concerned: list[int], now: Micros | None
    ) -> None:
        super().__init__(shards, claim, concerned, now)
        self._seen = Answer(0, {}, (), (), 0)
        """What the home said last."""
        self._told: list[tuple[int, Any]] = []
        """What the shards told with their candidates."""
        self._numbers: set[int] = set()
        """How many scopes with settings they know."""
        self._waits = False
        """Whether anything waits at a limit."""
        self._goes_on = False
        """Whether a shard may have more for this claim."""
        self._is_checked = False

    async def leases(self) -> list[Taken]:
        """In the order of the turns of their tenants."""
        found: list[Taken] = []
        await self._ask_home(Question(least=self._claim.limit))
        for turn in range(ROUNDS_MAX):
            room = self._claim.limit - len(found)
            if room <= 0:
                break
            seen = await self._candidates(room + len(self._dry), first=turn == 0)
            if seen is None:
                return await self._repeat()
            tenants, base = seen
            tenants = [one for one in tenants if one.tenant not in self._dry]
            if await self._finds_room():
                continue
            served = share_room(tenants, room, self._rooms())
            found += await self._take(served, base, turn)
            if not served or self._rooms().get(WHOLE_STORE) == 0 or self._has_all(tenants):
                break
        if not found:
            await self._shards.forget_claim(self._home, self._claim.nonce)
        return found

    # -- what is there ---------------------------------------------------------------------------

    def _rooms(self) -> Rooms:
        return {name: one.room for name, one in self._seen.scarce.items()}

    async def _ask_home(self, question: Question) -> Answer:
        self._seen = await ask_home(self._shards, question, self._now)
        return self._seen

    def _has_all(self, tenants: Sequence[Candidate]) -> bool:
        """Whether no tenant has more for this claim. One with jobs that others left no room for may
        have: its shard sets them aside when it is asked again, and looks at what is behind them.
        """
        return not self._goes_on and all(
            one.tenant in self._dry or (one.whole and not one.classes) for one in tenants
        )

    def _is_dry(self, one: Candidate, number: int) -> bool:
        return number == 0  # Others of its lines may have more.

    def _asked(self) -> list[int]:
        """All shards, if a place may be free in another one."""
        full = [name for name, one in self._seen.scarce.items() if one.room == 0]
        if not full:
            return [*self._concerned]
        is_quiet = self._shards.local_now() < self._shards.quiet_until
        is_overdue = any(one.overdue for one in self._seen.scarce.values())
        if not is_quiet or is_overdue:
            return self._shards.all()
        return [] if WHOLE_STORE in full else [*self._concerned]

    def _platform_args(self, shard: int) -> tuple[Any, ...]:
        scarce = self._seen.scarce
        rooms = [each for name, one in scarce.items() for each in (name, one.room)]
        fences = [
            each
            for name, one in scarce.items()
            for where, epoch in one.overdue
            for each in (name, epoch)
            if where == shard
        ]
        return ((rooms, fences, self._claim.exclude_groups or None),)

    def _found(self, answers: dict[int, Any], most: int) -> list[Candidate]:
        self._told, self._numbers, found = [], set(), []
        self._goes_on = self._waits = False
        quiet_us = micros(LIMIT_QUIET_S)
        for shard, (_, _, (told, number, waits, lapses, more), *rows) in answers.items():
            self._told.append((shard, told))
            self._numbers.add(number)
            self._waits = self._waits or bool(waits)
            quiet_us = min(quiet_us, int(lapses) if lapses else quiet_us)
            self._goes_on = bool(self._goes_on or more or len(rows) >= most)
            for *row, classes in rows:
                one = candidate(shard, *row)
                one.classes = [
                    (number, queue.decode(), [scope.decode() for scope in scopes])
                    for number, queue, *scopes in classes
                ]
                found.append(one)
        if len(answers) == self._shards.number:
            self._shards.quiet_until = self._shards.local_now() + quiet_us
        return found

    async def _finds_room(self) -> bool:
        """Whether there is more room than the home knew of."""
        if self._numbers == {0} and not self._waits and self._seen.number == 0:
            self._shards.is_limited = False  # For the next claims.
        if self._numbers - {self._seen.number} and not self._is_checked:
            self._is_checked = True
            return await self._forget_gone()
        reports = [report for report in reports_of(self._told) if self._tells_of_room(*report)]
        if not reports:
            return False
        before = self._rooms()
        await self._ask_home(Question(reports=reports, least=self._claim.limit))
        after = self._rooms()
        found = any(after.get(name, room + 1) > room for name, room in before.items())
        if found:
            self._dry.clear()
        return found

    def _tells_of_room(self, shard: int, scope: str, running: int, epoch: int) -> bool:
        one = self._seen.scarce.get(scope)
        if one is None or shard >= len(one.told):
            return False
        before, known = one.told[shard]
        return epoch > known or (epoch == known and running < before) or bool(one.overdue)

    async def _forget_gone(self) -> bool:
        """Has the shards forget scopes without settings, which a put left that died."""
        everywhere = self._shards.all()
        answers = await self._shards.each("scopes", everywhere, ((), ()), self._now)
        names = {name.decode() for _, found in answers for name in found}
        if not await forget_gone(self._shards, names, self._now):
            return False
        self._dry.clear()
        await self._ask_home(Question(least=self._claim.limit))
        return True

    # -- leases ----------------------------------------------------------------------------------

    async def _lease(
        self,
        claim: tuple[Any, ...],
        tenants: Sequence[Candidate],
        by_shard: dict[int, list[int]],
        base: int,
    ) -> list[Any]:
        wanted: dict[tuple[int, str], int] = defaultdict(int)
        for one in tenants:
            for scope, number in one.meant.items():
                wanted[one.shard, scope] += number
        question = Question(
            wanted=[(shard, scope, number) for (shard, scope), number in wanted.items()],
            least=self._claim.limit,
        )
        answer = await self._ask_home(question) if wanted else self._seen
        permits: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        for (shard, scope), (number, epoch) in zip(wanted, answer.permits, strict=bool(wanted)):
            if number > 0:
                permits[shard].append((scope, number, epoch))
        answers = await together(
            self._shards.call(
                "claim",
                shard,
                (
                    claim,
                    [
                        (
                            *grant(tenants, position),
                            _flat(tenants[position].meant.items()),
                            _flat(tenants[position].lines.items()),
                        )
                        for position in positions
                    ],
                    _flat(permits[shard]),
                ),
                self._now,
                base=base,
            )
            for shard, positions in by_shard.items()
        )
        if permits:
            await self._settle(by_shard, permits, answers)
        return answers

    async def _settle(
        self,
        by_shard: dict[int, list[int]],
        permits: dict[int, list[tuple[str, int, int]]],
        answers: Sequence[Any],
    ) -> None:
        """Tells the home what came of the permits."""
        used, told = [], []
        for shard, (rows, _, report, known, _) in zip(by_shard, answers, strict=True):
            told.append((shard, report))
            started = _started([lease(row) for row in rows_of(rows)])
            for scope, number, epoch in permits[shard]:
                # A call that was repeated may have started more than it answers.
                some = number if known or started is None else started.get(scope, 0)
                used.append((shard, scope, epoch, some))
        question = Question(reports=reports_of(told), used=used, least=self._claim.limit)
        await self._ask_home(question)


def _started(leases: Sequence[Taken]) -> dict[str, int] | None:
    """How many jobs started in each scope; None if that cannot be told."""
    found: dict[str, int] = defaultdict(int)
    for one in leases:
        if isinstance(one, Unreadable):
            return None
        for scope in scopes_of(one.job.queue, one.job.envelope.type):
            found[scope] += 1
    return found


def _flat(items: Any) -> list[Any]:
    return [each for item in items for each in item]
