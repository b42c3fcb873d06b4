"""Stored sources: how they are read, and changed by compare-and-set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import uuid_utils
from msgspec.structs import replace

from holdfast.core.backoff import Delays
from holdfast.core.changes import Draft
from holdfast.core.clock import Micros
from holdfast.core.edge_bounds import SOURCE_TRIES_MAX
from holdfast.core.errors import SourceNotFound, StaleSource, did_you_mean
from holdfast.core.scope import Scope, ScopeKind
from holdfast.core.shadow import ShadowRead, ShadowRow, ShadowStep, SourceRow
from holdfast.core.source import GROUP, SourcePlan, SourceState, decode, encode
from holdfast.scopes import ScopeHandle
from holdfast.store import Store

PAUSE_S = 0.002
PAUSE_S_MAX = 0.1
"""The first and the longest pause before a step is tried again, about."""


class Found(msgspec.Struct, frozen=True):
    """A source as it was read, with the rows that were asked for."""

    row: SourceRow
    state: SourceState
    rows: Sequence[ShadowRow]
    at: Micros
    """The instant of the read, of the store's clock."""


async def tries(source: str) -> AsyncIterator[None]:
    """The tries of a step that others may have overtaken, with random pauses between them: callers
    in step would always lose to the same one. Raises StaleSource after the last one.
    """
    delays = Delays(PAUSE_S, PAUSE_S_MAX, chance=random.random)
    for _ in range(SOURCE_TRIES_MAX):
        yield
        await asyncio.sleep(delays.next_s())
    raise StaleSource(field="source", source=source)


class Stored:
    """One source of a tenant in a store."""

    def __init__(self, store: Store, tenant: str, source: str) -> None:
        self.store = store
        self.tenant = tenant
        self.source = source

    async def find(
        self, ids: Sequence[str] = (), *, after: str | None = None, limit: int = 0
    ) -> Found | None:
        """The source and these rows of it; None if it is not there."""
        read = ShadowRead(
            tenant=self.tenant, source=self.source, ids=tuple(ids), after=after, limit=limit
        )
        found = await self.store.shadow(read)
        if not found.sources:
            return None
        [row] = found.sources
        return Found(row, decode(self.source, row.state), found.rows, found.at)

    async def get(
        self, ids: Sequence[str] = (), *, after: str | None = None, limit: int = 0
    ) -> Found:
        """As `find`. Raises SourceNotFound."""
        found = await self.find(ids, after=after, limit=limit)
        if found is None:
            known = await self.store.shadow(ShadowRead(tenant=self.tenant))
            hint = did_you_mean(self.source, [one.source for one in known.sources])
            raise SourceNotFound(source=self.source, hint=hint)
        return found

    async def create(self, plan: SourcePlan) -> Found:
        """The source; made with this plan if it is not there."""
        async for _ in tries(self.source):
            found = await self.find()
            if found is not None:
                return found
            at = (await self.store.shadow(ShadowRead(tenant=self.tenant, limit=0))).at
            mark = str(uuid_utils.uuid7())
            state = SourceState(born=at, mark=mark, plan=plan.checked(), listed_at=at)
            await self.prepare(plan)
            try:
                await self.store.shadow(self._step("", state=encode(state)))
            except StaleSource:
                continue
        raise AssertionError("the last try raises")

    async def prepare(self, plan: SourcePlan) -> None:
        """Changes that are applied in order are in a group that runs one at a time."""
        if plan.ordered:
            group = Scope(self.tenant, ScopeKind.GROUP, f"{GROUP}{self.source}")
            await ScopeHandle(self.store, group).set(ordered=True)

    async def register(self, plan: SourcePlan) -> bool:
        """Stores what the code says. Returns whether anything has changed."""
        found = await self.find()
        if found is None:
            await self.create(plan)
            return True
        if found.state.plan == plan:
            return False
        await self.prepare(plan)
        await self.change(lambda state, at: replace(state, plan=plan))
        return True

    async def change(
        self,
        change: Callable[[SourceState, Micros], SourceState],
        *,
        plan: SourcePlan | None = None,
    ) -> SourceState:
        """The state after a change of it, which is computed again if another one came first. With a
        plan the source is made if it is not there.
        """
        async for _ in tries(self.source):
            found = await self.get() if plan is None else await self.create(plan)
            after = change(found.state, found.at)
            if after == found.state:
                return after
            try:
                await self.write(found, Draft(self.tenant, self.source, after, {}))
            except StaleSource:
                continue
            return after
        raise AssertionError("the last try raises")

    async def write(self, found: Found, draft: Draft) -> None:
        """One step: the state of the draft, its rows and its jobs, unless the source has changed
        since it was read.
        """
        step = self._step(
            found.row.stamp,
            state=encode(draft.state),
            put=tuple(draft.put.values()),
            drop=tuple(draft.drop),
            jobs=tuple(draft.jobs),
        )
        await self.store.shadow(step)

    async def drop(self, found: Found) -> int:
        """Drops the rows that were read; without any, the source itself. Returns how many. Raises
        StaleSource if the source was changed meanwhile.
        """
        ids = tuple(row.id for row in found.rows)
        state = encode(found.state) if ids else None
        await self.store.shadow(self._step(found.row.stamp, state=state, drop=ids))
        return len(ids)

    def _step(self, expect: str, **change: Any) -> ShadowStep:
        stamp = str(uuid_utils.uuid7())
        return ShadowStep(
            tenant=self.tenant, source=self.source, expect=expect, stamp=stamp, **change
        )
