"""A claim and its tries: repair first, a name at the line, patience with others; then tidying up.

What one try takes is in `taking.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from holdfast.errors import StoreError
from holdfast.job import Lease
from holdfast.limits import REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.store import Claim
from holdfast.stores.foundationdb import claims, gates, repeats
from holdfast.stores.foundationdb.lines import tidy
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.runner import Ahead, Work
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.taking import Manner, Stranger, Taking, ask
from holdfast.stores.foundationdb.turns import PATIENCE_S, Turns, announce

T = TypeVar("T")


class Write(Protocol):
    """Does a step to its commit; `ahead` asks for what each try of it will need."""

    async def __call__(self, work: Work[T], ahead: Ahead | None = None) -> T: ...


async def mend(write: Write, known: Known) -> None:
    """Brings all up to this instant, within bounds."""
    for _ in range(REPAIR_PASSES_MAX):
        if await write(partial(claims.repair, known=known)) < REPAIR_MAX:
            break


class Claiming:
    """One claim of a store, until it has jobs or there are none for it."""

    def __init__(self, claim: Claim, write: Write, turns: Turns, known: Known) -> None:
        self._claim = claim
        self._write = write
        self._turns = turns
        self._known = known

    async def run(self) -> list[Lease]:
        taking = await self._patient(await self._first_try())
        if taking.empty:
            with suppress(StoreError):  # The claim is done; the pointers can wait.
                await self._write(partial(tidy, lines=list(dict.fromkeys(taking.empty))))
        for line in self._turns.shut(taking.shut, taking.visited):
            with suppress(StoreError):
                await self._write(partial(gates.close, known=self._known, line=line))
        return taking.leases

    async def _first_try(self) -> Taking:
        try:
            try:
                return await self._take(Manner.SHY, look=True)
            except claims.Overdue:
                await mend(self._write, self._known)
                return await self._take(Manner.SHY)
        except Stranger as stranger:
            line = stranger.line
        began = monotonic()
        version = await self._write(partial(announce, turns=self._turns, line=line))
        self._turns.took(monotonic() - began)
        self._turns.came(line, version)
        await asyncio.sleep(self._turns.settle_s)
        return await self._take(Manner.FAIR)

    async def _patient(self, taking: Taking) -> Taking:
        """Looks again while there is only what others are about to take; when they do not, or take
        too long, it is anybody's.
        """
        ends = monotonic() + max(PATIENCE_S, 4 * self._turns.settle_s)
        manner = Manner.FAIR
        while taking.late and not taking.leases:
            await asyncio.sleep(self._turns.settle_s)
            left, over = taking.left, monotonic() >= ends
            taking = await self._take(Manner.HUNGRY if over else manner)
            manner = Manner.HUNGRY if taking.left >= left else Manner.FAIR
            if over:
                break
        return taking

    async def _take(self, manner: Manner, *, look: bool = False) -> Taking:
        """The try that was done. With `look`, Overdue where there is something to repair before."""
        tries: list[Taking] = []

        def ahead(step: Step) -> None:
            if look:
                claims.ask_overdue(step)
            repeats.ask(step, self._claim)
            ask(step, self._claim, self._turns)

        async def take(step: Step) -> Taking:
            again = await repeats.again(step, self._claim)
            if again is None and look and await claims.overdue(step):
                raise claims.Overdue
            for taking in tries:
                taking.release()
            taking = Taking(step, self._claim, self._turns, self._known, manner)
            tries.append(taking)
            if again is not None:
                taking.leases = again
                return taking
            await taking.run()
            repeats.remember(step, self._claim, taking.leases)
            return taking

        try:
            began = monotonic()
            done = await self._write(take, ahead)
            self._turns.took(monotonic() - began)
            done.done()
            return done
        finally:
            for taking in tries:
                taking.release()
