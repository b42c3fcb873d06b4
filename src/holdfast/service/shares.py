"""What callers share: each gets its part of the places, and the rest is left for others.

A caller is a tenant, whichever of its tokens it uses; a token that may act for any tenant is one by
itself. Who may do everything for everybody is the platform, and is not held to a share.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from holdfast.service.problems import Overloaded, TooManyRequests
from holdfast.service.rights import Caller, Right

RETRY_AFTER_S = 1


def owner(caller: Caller) -> str | None:
    """Whose share a call takes of; None is nobody's."""
    if caller.tenant is not None:
        return f"tenant/{caller.tenant}"
    return None if Right.ADMIN in caller.rights else f"token/{caller.name}"


class Places:
    """Places of one kind. `share` is how large a part of them one caller may have at a time."""

    def __init__(self, limit: str, most: int, share: float) -> None:
        self._limit = limit
        self._most = most
        self._each = max(1, int(most * share))
        self._held: Counter[str] = Counter()
        self.taken = 0

    def take(self, caller: Caller) -> str | None:
        """A place, which `give` takes back; refused by the name of the limit."""
        if self.taken >= self._most:
            why = f"{self._limit}: all {self._most} places are taken"
            raise Overloaded(why=why, retry_after_s=RETRY_AFTER_S)
        whose = owner(caller)
        if whose is not None and self._held[whose] >= self._each:
            why = f"{self._limit}: this caller has its share, {self._each} of {self._most} places"
            raise TooManyRequests(why=why, retry_after_s=RETRY_AFTER_S)
        self.taken += 1
        if whose is not None:
            self._held[whose] += 1
        return whose

    def give(self, whose: str | None) -> None:
        self.taken -= 1
        if whose is not None:
            self._held[whose] -= 1
            if not self._held[whose]:
                del self._held[whose]

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """One for the time of the block."""
        whose = self.take(caller)
        try:
            yield
        finally:
            self.give(whose)


class Lanes:
    """A caller has so many reads under way; its next ones wait for them, and nobody else does."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._lanes: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def lane(self, caller: Caller) -> AsyncIterator[None]:
        whose = owner(caller)
        if whose is None:
            yield
            return
        lane, users = self._lanes.setdefault(whose, (asyncio.Semaphore(self._each), []))
        users.append(None)
        try:
            async with lane:
                yield
        finally:
            users.pop()
            if not users:
                del self._lanes[whose]
