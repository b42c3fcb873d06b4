"""Which shard a tenant lives in, and the calls that concern several of them.

A shard is a hash tag: all its keys are in one slot, so that a script sees all of it. A tenant lives
in one shard; so do the settings and slots of its scopes. All other names live in shard 0.
"""

from __future__ import annotations

import asyncio
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from holdfast.core.clock import Clock, Micros, micros
from holdfast.stores.redis.connection import Links
from holdfast.stores.redis.rows import pack

_CONTROL = struct.Struct(">dIIBd")
NONE = -1
"""In place of an instant that is not given."""

T = TypeVar("T")


class Shards:
    """The scripts, for each shard that a call concerns."""

    def __init__(self, links: Links, clock: Clock | None, number: int, events: bool) -> None:
        self._links = links
        self._clock = clock
        self.number = number
        self._events = events
        self.name = links.options.name
        self._prefix = links.options.prefix
        self.channel = f"{self._prefix}wake"
        self._tags = [f"{{{self._prefix}{shard}}}" for shard in range(number)]
        self.is_limited = False
        """Over several shards: whether the platform has settings, as far as claims here know."""
        self.quiet_until: Micros = 0
        """Likewise: until then a claim here that finds the whole store at its limit does not ask
        the shards for room of which the home has not heard.
        """
        self.is_behind = False
        """With one shard: whether the last claim here left jobs that may start once others end."""
        self._plain = [self._control(shard, None, None) for shard in range(number)]
        """The control of nearly all calls, for each shard."""

    def of(self, tenant: str) -> int:
        return zlib.crc32(tenant.encode()) % self.number

    def all(self) -> list[int]:
        return list(range(self.number))

    def concerned(self, tenants: Iterable[str] | None) -> list[int]:
        """The shards that these tenants live in; None is every tenant."""
        return self.all() if tenants is None else sorted({self.of(tenant) for tenant in tenants})

    def spread(self, items: Sequence[T], tenants: Iterable[str]) -> dict[int, list[int]]:
        """For each shard the positions of its items in a batch."""
        if self.number == 1:
            return {0: list(range(len(items)))} if items else {}
        positions: dict[int, list[int]] = {}
        for position, tenant in enumerate(tenants):
            positions.setdefault(self.of(tenant), []).append(position)
        return positions

    def local_now(self) -> Micros:
        """An instant that only this process compares with others."""
        return micros(time.monotonic()) if self._clock is None else self._clock.now()

    def now(self) -> Micros | None:
        """The instant of a call; None lets the server's clock say."""
        return None if self._clock is None else self._clock.now()

    async def call(
        self,
        name: str,
        shard: int,
        args: Any,
        now: Micros | None,
        *,
        texts: Sequence[str | bytes] = (),
        base: int | None = None,
        wait: bool = False,
        long: bool = False,
        patient: bool = False,
    ) -> Any:
        """What a script answers for one shard; `wait` until replicas have it, if that is asked;
        `long` and `patient`: see `wire.py`.

        `texts` follow the arguments as they are: packed, each byte would be copied twice more.
        """

        control = self._plain[shard]
        if now is not None or base is not None:
            control = self._control(shard, now, base)
        replicas = self._links.options.wait_replicas if wait else 0
        every = (control, pack(args), *texts)
        return await self._links.script(
            name, self._tags[shard], every, replicas, long=long, patient=patient
        )

    def _control(self, shard: int, now: Micros | None, base: int | None) -> bytes:
        """The first argument of every script; see lib_base.lua."""
        numbers = _CONTROL.pack(
            NONE if now is None else now,
            self.number,
            shard,
            self._events,
            NONE if base is None else base,
        )
        return numbers + self.channel.encode()

    async def each(self, name: str, shards: Iterable[int], args: Any, now: Micros | None) -> Any:
        """What it answers for each of them, asked at the same time."""
        return await together(self.call(name, shard, args, now) for shard in shards)

    async def scatter(
        self,
        name: str,
        items: Sequence[T],
        tenants: Iterable[str],
        args: Callable[[list[int]], Any],
        now: Micros | None,
        *,
        wait: bool = False,
        patient: bool = False,
        more: list[tuple[int, Any]] | None = None,
    ) -> list[Any]:
        """One answer per item of a batch, from the shards of their tenants, asked at the same time.

        `args` makes the arguments of a script from the positions of its items in the batch. What a
        shard answers after that for its items is added to `more`.
        """
        found: list[Any] = [None] * len(items)

        async def call(shard: int, positions: list[int]) -> None:
            answers = await self.call(name, shard, args(positions), now, wait=wait, patient=patient)
            if more is not None:
                more.extend((shard, each) for each in answers[len(positions) :])
                del answers[len(positions) :]
            for position, answer in zip(positions, answers, strict=True):
                found[position] = answer

        spread = self.spread(items, tenants)
        await together(call(shard, positions) for shard, positions in spread.items())
        return found

    async def forget_claim(self, shard: int, nonce: str) -> None:
        """Lets a claim that was begun in this shard be made again (claim_candidates.lua)."""
        key = f"{self.tag(shard)}:claim:{nonce}\0"
        await self._links.command("DEL", key, key=key)

    async def sizes(self, name: str) -> int:
        """How many members a sorted set has, in all shards."""
        keys = (f"{self.tag(shard)}:{name}" for shard in self.all())
        return sum(await together(self._links.command("ZCARD", key, key=key) for key in keys))

    def tag(self, shard: int) -> str:
        return self._tags[shard]


async def together(calls: Iterable[Any]) -> list[Any]:
    """The answers of calls made at the same time; all have ended when one of them fails."""
    found = list(calls)
    if len(found) <= 1:
        return [await each for each in found]
    answers = await asyncio.gather(*found, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers
