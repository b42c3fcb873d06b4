"""Handles for sources: `acme.source("consignments")` returns one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import uuid_utils
from msgspec.structs import replace

from holdfast.core.bounds import within
from holdfast.core.changes import entries
from holdfast.core.clock import Micros
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX, SOURCE_PAGE_MAX
from holdfast.core.progress import released
from holdfast.core.shadow import ShadowRead
from holdfast.core.source import Item, SourcePlan, SourceState, check_source, stop
from holdfast.sources.status import ShadowObject, SourceStatus, object_of, status_of
from holdfast.sources.stored import Stored
from holdfast.sources.write import write_entries
from holdfast.store import Enqueued, Store

UNNAMED = "unnamed"
"""The author of acts that name none."""


class Pushed(msgspec.Struct, frozen=True):
    """What pushed items have changed."""

    items: int
    created: int
    updated: int
    deleted: int


class ObjectPage(msgspec.Struct, frozen=True):
    """A page of the shadow."""

    objects: Sequence[ShadowObject]
    after: str | None
    """Pass it as `after` to get the next page; None on the last one."""


class SourceHandle:
    """A handle for one source of a tenant. Cheap to create; it keeps no resources."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        name: str,
        *,
        plan: Callable[[], SourcePlan] | None = None,
    ) -> None:
        self.tenant = tenant
        self.name = check_source(name)
        self._store = store
        self._stored = Stored(store, tenant, self.name)
        self._plan = plan

    # -- look ------------------------------------------------------------------------------------

    async def status(self) -> SourceStatus:
        """Cursor, counts, faults and what is in progress. Raises SourceNotFound."""
        read = ShadowRead(tenant=self.tenant, source=self.name, limit=0)
        found = await self._store.shadow(read)
        if not found.sources:
            await self._stored.get()  # It raises, with a hint.
        return status_of(self.tenant, found.sources[0])

    async def objects(self, *, after: str = "", limit: int = SHADOW_ROWS_MAX) -> ObjectPage:
        """A page of the shadow, by id, tombstones included."""
        within("limit", limit, SHADOW_ROWS_MAX)
        found = await self._stored.get(after=after, limit=limit)
        full = bool(found.rows) and len(found.rows) == limit
        rows = [object_of(row) for row in found.rows]
        return ObjectPage(rows, rows[-1].id if full else None)

    async def get(self, *ids: str) -> list[ShadowObject]:
        """These objects of the shadow, without those that it does not have."""
        found = await self._stored.get(ids)
        return [object_of(row) for row in found.rows]

    # -- act -------------------------------------------------------------------------------------

    async def push(self, items: Iterable[Item]) -> Pushed:
        """Takes items that the source has sent, as a page of it. Changes become jobs; what the
        shadow has already changes nothing, so a push may be repeated. The cursor stays.
        """
        given = list(items)
        within("items", len(given), SOURCE_PAGE_MAX)
        found = entries(self.name, given)
        await self._known()
        done = await write_entries(self._stored, found)
        return Pushed(len(found), done.created, done.updated, done.deleted)

    async def poll_now(self) -> Enqueued[object]:
        """Makes a poll at once, besides its schedule. While one waits, returns that one."""
        plan = (await self._known()).plan
        made = plan.poll.job(self.tenant, str(uuid_utils.uuid7()))
        made = replace(made, key=plan.poll.type, rules=replace(made.rules, key_us=None))
        [answer] = await self._store.enqueue([made])
        if answer.error is not None:
            raise answer.error
        return answer

    async def reconcile_now(self, *, any_share: bool = False) -> Enqueued[object]:
        """Asks for a full listing, and makes a poll that begins it. With `any_share` it may find
        any number of objects gone.
        """
        await self._known()

        def asked(state: SourceState, at: Micros) -> SourceState:
            listing = state.listing
            if listing is not None:
                return replace(state, listing=replace(listing, any_share=any_share))
            return replace(state, asked_at=at, any_share=any_share)

        await self._stored.change(asked)
        return await self.poll_now()

    async def pause(self, reason: str, author: str = UNNAMED) -> SourceStatus:
        """Reads no more pages until `resume`. Pushed items are still taken."""
        await self._known()
        await self._stored.change(
            lambda state, at: released(replace(state, paused=stop(reason, author, at)))
        )
        return await self.status()

    async def resume(self) -> SourceStatus:
        """Ends a pause. Does nothing if there is none."""
        await self._stored.change(lambda state, at: replace(state, paused=None))
        return await self.status()

    async def reset(self) -> SourceStatus:
        """Forgets the cursor, so that the next poll reads everything again. The shadow stays, so
        what it has already makes no changes.
        """
        await self._stored.change(
            lambda state, at: released(
                replace(state, high=None, position=None, pages=0, listing=None, fault=None)
            )
        )
        return await self.status()

    async def delete(self) -> int:
        """Deletes the source with its shadow, in bounded steps; may be repeated. Makes no jobs.
        Returns the number of rows. A source that the code still defines comes back, empty, with its
        next poll.
        """

        def removing(state: SourceState, at: Micros) -> SourceState:
            return released(replace(state, removing=True))

        number = 0
        await self._stored.change(removing)
        while (found := await self._stored.find(after="", limit=SHADOW_ROWS_MAX)) is not None:
            number += await self._stored.drop(found)
        return number

    async def _known(self) -> SourceState:
        """The state; made by the code's plan if there is none yet."""
        if self._plan is None:
            return (await self._stored.get()).state
        return (await self._stored.create(self._plan())).state
