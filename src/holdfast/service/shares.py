"""Limits that callers share: no caller can use up more than its share of one.

A caller is a tenant, whichever of its tokens it uses; a token that may act for any tenant is a
caller by itself. An admin of every tenant is the platform, which is not limited to a share.
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
    """The caller whose share a call counts against; None: not limited."""
    if caller.tenant is not None:
        return f"tenant/{caller.tenant}"
    return None if Right.ADMIN in caller.rights else f"token/{caller.name}"


class ShareLimit:
    """A limit on open calls of one kind; `share` is the part of it that one caller may use."""

    def __init__(self, limit: str, most: int, share: float) -> None:
        self._limit = limit
        self._most = most
        self._each = max(1, int(most * share))
        self._held: Counter[str] = Counter()
        self.taken = 0

    def take(self, caller: Caller) -> str | None:
        """Takes a place, which `give` releases. The refusal names the limit."""
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
        """Takes a place for the duration of the block."""
        whose = self.take(caller)
        try:
            yield
        finally:
            self.give(whose)


class ReadLimits:
    """A limit on the open reads of each caller: its further reads wait, those of others do not."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._limits: dict[str, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def admit(self, caller: Caller) -> AsyncIterator[None]:
        whose = owner(caller)
        if whose is None:
            yield
            return
        limit, users = self._limits.setdefault(whose, (asyncio.Semaphore(self._each), []))
        users.append(None)
        try:
            async with limit:
                yield
        finally:
            users.pop()
            if not users:
                del self._limits[whose]
