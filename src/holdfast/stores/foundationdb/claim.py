"""Claim: repairs first, selects and leases jobs (`claim_select.py`), then tidies up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from holdfast.core.bounds import REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.errors import StoreError
from holdfast.core.job import Lease
from holdfast.store import Claim
from holdfast.stores.foundationdb import claim_repair, claim_repeat
from holdfast.stores.foundationdb.claim_select import Attempt
from holdfast.stores.foundationdb.claim_sharing import (
    PATIENCE_S,
    Claimers,
    Mode,
    NotAnnounced,
    announce,
)
from holdfast.stores.foundationdb.fairness import Turns
from holdfast.stores.foundationdb.fairness_lines import Lines, drop_empty
from holdfast.stores.foundationdb.joins import Releases
from holdfast.stores.foundationdb.limits_groups import rest_lines
from holdfast.stores.foundationdb.limits_tiers import look_again
from holdfast.stores.foundationdb.runner import Ahead, Work
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

T = TypeVar("T")

REST_MAX = 200
"""Lines that one claim lets rest because they hide others."""
REST_STEP = 50
"""Lines that one step lets rest."""


class Write(Protocol):
    """Runs a step to its commit; `ahead` requests what each try of it will read."""

    async def __call__(self, work: Work[T], ahead: Ahead | None = None) -> T: ...


class RepairNeeded(Exception):
    """There is something to repair before a claim selects jobs."""

    def __init__(self, edges: bool) -> None:
        self.edges = edges
        """Whether there are edges to follow."""


class ClaimRun:
    """One claim of a store, until it has jobs or there are none for it."""

    def __init__(
        self, claim: Claim, write: Write, turns: Turns, claimers: Claimers, releases: Releases
    ) -> None:
        self._claim = claim
        self._write = write
        self._turns = turns
        self._claimers = claimers
        self._releases = releases

    async def run(self) -> list[Lease]:
        attempt = await self._wait_for_others(await self._first())
        if attempt.empty:
            with suppress(StoreError):  # The claim is done; the pointers can wait.
                await self._write(partial(drop_empty, lines=list(dict.fromkeys(attempt.empty))))
        full = self._full(attempt)
        for start in range(0, len(full), REST_STEP):
            with suppress(StoreError):
                await self._write(partial(rest_lines, lines=full[start : start + REST_STEP]))
        if attempt.platform.untidy:
            with suppress(StoreError):
                await self._write(attempt.platform.tidy)
        return attempt.leases

    def _full(self, attempt: Attempt) -> list[Line]:
        """The lines without room that are to rest: those that were found so often, and where there
        are more lines than a claim reads all, for these hide others.
        """
        often = self._claimers.often_full(attempt.full, attempt.visited)
        if attempt.lines.stopped is None or len(attempt.leases) == self._claim.limit:
            return often
        return sorted(attempt.full)[:REST_MAX]

    async def _first(self) -> Attempt:
        """The first attempt: after repairs, and after the store's name is known at a long line."""
        try:
            try:
                return await self._attempt(Mode.ANNOUNCE, may_repair=True)
            except RepairNeeded as needed:
                if needed.edges:
                    await self._write(self._releases.run)
                for _ in range(REPAIR_PASSES_MAX):
                    if await self._write(claim_repair.repair) < REPAIR_MAX:
                        break
                await self._look_again()
                return await self._attempt(Mode.ANNOUNCE)
        except NotAnnounced as error:
            line = error.line
        began = monotonic()
        version = await self._write(partial(announce, claimers=self._claimers, line=line))
        self._claimers.took(monotonic() - began)
        self._claimers.announced(line, version)
        await asyncio.sleep(self._claimers.settle_s)
        return await self._attempt(Mode.OWN)

    async def _look_again(self) -> None:
        """Looks at what rests by tiers that have changed, a portion at a time, until enough of it
        is open for this claim. One that names tenants looks at theirs, and at one portion.
        """
        opened = 0
        for _ in range(REPAIR_PASSES_MAX):
            looked = await self._write(partial(look_again, tenants=self._claim.tenants))
            opened += looked.opened
            if not looked.more or opened >= self._claim.limit or self._claim.tenants is not None:
                break

    async def _wait_for_others(self, attempt: Attempt) -> Attempt:
        """Tries again while there are only jobs that others are about to take; when they do not, or
        take too long, takes any.
        """
        ends = monotonic() + max(PATIENCE_S, 4 * self._claimers.settle_s)
        mode = Mode.OWN
        while attempt.others_left and not attempt.leases:
            await asyncio.sleep(self._claimers.settle_s)
            left, over = attempt.left, monotonic() >= ends
            attempt = await self._attempt(Mode.ANY if over else mode)
            mode = Mode.ANY if attempt.left >= left else Mode.OWN
            if over:
                break
        return attempt

    async def _attempt(self, mode: Mode, *, may_repair: bool = False) -> Attempt:
        """The attempt that was committed. With `may_repair`, RepairNeeded where something has to be
        repaired before.
        """
        tries: list[Attempt] = []

        def ahead(step: Step) -> None:
            if may_repair:
                claim_repair.ask_overdue(step)
            claim_repeat.ask(step, self._claim)
            step.settings.ask()
            Lines(step, self._turns, (self._claim.tenants, self._claim.queues)).ask()

        async def select(step: Step) -> Attempt:
            repeated = await claim_repeat.repeated(step, self._claim)
            if repeated is None and may_repair and await claim_repair.overdue(step):
                raise RepairNeeded(await claim_repair.edges_left(step))
            for attempt in tries:
                attempt.release()
            attempt = Attempt(step, self._claim, self._turns, self._claimers, mode)
            tries.append(attempt)
            if repeated is not None:
                attempt.leases = repeated
                return attempt
            await attempt.run()
            claim_repeat.remember(step, self._claim, attempt.leases)
            return attempt

        try:
            began = monotonic()
            done = await self._write(select, ahead)
            self._claimers.took(monotonic() - began)
            done.committed()
            return done
        finally:
            for attempt in tries:
                attempt.release()
