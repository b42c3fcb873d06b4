"""One run of a poll: reads pages of a source and writes what they change.

Several runs may meet: a job whose lease was lost goes on for a while beside its next run. So a run
writes its name into the state of the source first, and every step of it is refused once another run
has done so. A poll of another job waits while a run goes on, so that the source is asked by one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

import uuid_utils
from msgspec.structs import replace

from holdfast.context import Context, Snooze
from holdfast.core.bounds import REASON_MAX
from holdfast.core.changes import (
    Draft,
    entries,
    fitting,
    row_size,
)
from holdfast.core.clock import Micros, micros
from holdfast.core.cursor import Moved, begin, given, moved
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX, SOURCE_RUN_PAGES
from holdfast.core.errors import HoldfastError, QueueFull, SourceNotFound
from holdfast.core.progress import (
    begun,
    held,
    listed,
    listing_begun,
    more,
    polled,
    released,
    wants_listing,
)
from holdfast.core.source import (
    Cursor,
    Fault,
    Page,
    SourcePlan,
    SourceState,
    Strategy,
)
from holdfast.sources.reader import Fetch, Reader
from holdfast.sources.stored import Found, Stored
from holdfast.sources.write import stepped, write_entries
from holdfast.store import Store

logger = logging.getLogger("holdfast.sources")

KEEP_S = 30.0
"""How long a run that died keeps others from asking the source, besides the time of a page."""
HELD_S = 5.0
"""When a poll looks again that met another one."""
Taker = Callable[[Page, Cursor | None], Awaitable[Cursor | None]]
"""Writes a page that was asked for behind a cursor."""


class Overtaken(Exception):
    """Another run polls the source now, or nobody shall."""


class Poll:
    """One run for one tenant. `plan` is what the code says now."""

    def __init__(self, store: Store, ctx: Context, reader: Reader, plan: SourcePlan) -> None:
        self._ctx = ctx
        self._reader = reader
        self._plan = plan
        self._stored = Stored(store, ctx.job.tenant, reader.name)
        self._run = str(uuid_utils.uuid7())
        self._job = ctx.job.id
        self._keep_us = micros(reader.page_timeout + KEEP_S)
        self._left = SOURCE_RUN_PAGES

    async def run(self) -> None:
        """Reads what is new, then goes on with a full listing if one is due. Raises Snooze when
        there is more than one run may read.
        """
        found = await self._stored.create(self._plan)
        state = found.state
        if state.paused is not None or state.removing:
            return
        if held(state, self._job, found.at):
            raise Snooze(HELD_S)
        if state.plan != self._plan:
            await self._stored.prepare(self._plan)
        try:
            await self._work()
        except Overtaken:
            logger.info("source %r: another run goes on with it", self._reader.name)
        except SourceNotFound:
            logger.info("source %r: it was deleted meanwhile", self._reader.name)

    async def _work(self) -> None:
        state = await self._stored.change(self._begun, plan=self._plan)
        try:
            if state.plan.strategy is not Strategy.PUSH:
                state = await self._poll(state)
            await self._list(state)
        except QueueFull as full:
            await self._note(full)
            raise Snooze(_seconds(full)) from None
        except (Overtaken, SourceNotFound):
            raise
        except Snooze:
            await self._release()
            raise
        except Exception as error:
            await self._note(error)
            raise
        await self._release()

    def _begun(self, state: SourceState, at: Micros) -> SourceState:
        """The state while this run writes it."""
        if state.paused is not None or state.removing:
            raise Overtaken
        if held(state, self._job, at):
            raise Snooze(HELD_S)
        return begun(state, self._plan, self._run, self._job, at + self._keep_us)

    def _mine(self, state: SourceState) -> SourceState:
        """The state, if this run may still write it."""
        if state.poller != self._run or state.paused is not None or state.removing:
            raise Overtaken
        return state

    def _kept(self, state: SourceState, at: Micros) -> SourceState:
        return replace(state, until=at + self._keep_us)

    async def _release(self) -> None:
        """Lets others poll. A run that dies before it keeps them waiting for a while."""
        with suppress(Overtaken, SourceNotFound):
            await self._stored.change(lambda state, at: released(self._mine(state)))

    async def _note(self, error: BaseException) -> None:
        """Tells with the source why a poll failed, and lets others poll. The error itself is more
        important.
        """
        code = error.code if isinstance(error, HoldfastError) else type(error).__name__
        why = (str(error) or code)[:REASON_MAX]

        def noted(state: SourceState, at: Micros) -> SourceState:
            self._mine(state)
            before = state.fault
            since, times = (at, 1) if before is None else (before.since, before.times + 1)
            fault = Fault(code=code, why=why, at=at, since=since, times=times)
            return released(replace(state, fault=fault))

        try:
            await self._stored.change(noted)
        except (Overtaken, HoldfastError):
            logger.warning("source %r: could not note: %s", self._reader.name, why)

    # -- new items -------------------------------------------------------------------------------

    async def _poll(self, state: SourceState) -> SourceState:
        """Reads what is new. Each page moves the cursor in the step that writes it."""
        start = state.position
        if start is None:
            start = begin(self._reader.name, state.plan, state.high)

        async def take(page: Page, cursor: Cursor | None) -> Cursor | None:
            nonlocal state
            found = entries(self._reader.name, page.items)
            further = more(state.plan, page, len(found) >= state.plan.page)
            way = self._moved(state, page, cursor, state.high, further)

            def finish(before: SourceState, at: Micros) -> SourceState:
                return self._kept(polled(before, way, len(found), at), at)

            done = await write_entries(self._stored, found, finish=finish, guard=self._mine)
            state = done.state
            return state.position

        await self._each(self._reader.fetch, state.plan, start, take)
        return state

    def _moved(
        self,
        state: SourceState,
        page: Page,
        cursor: Cursor | None,
        high: Cursor | None,
        further: bool,
    ) -> Moved:
        source, plan = self._reader.name, state.plan
        return moved(
            source, plan, page.items, cursor=cursor, high=high, token=page.next, more=further
        )

    # -- full listings ---------------------------------------------------------------------------

    async def _list(self, state: SourceState) -> None:
        """Goes on with a full listing, and begins one that is due."""
        if state.listing is None:
            state = await self._stored.change(self._listing_due)
        if state.listing is not None and state.listing.swept is None:
            state = await self._read_all(state, state.listing.position)
        while state.listing is not None and state.listing.swept is not None:
            state = await self._sweep(state.listing.swept)
            self._ctx.check()

    def _listing_due(self, state: SourceState, at: Micros) -> SourceState:
        self._mine(state)
        return listing_begun(state, at) if wants_listing(state, at) else state

    async def _read_all(self, state: SourceState, start: Cursor | None) -> SourceState:
        """Reads all pages, and notes with the rows that the listing has them."""

        async def take(page: Page, cursor: Cursor | None) -> Cursor | None:
            nonlocal state
            found = entries(self._reader.name, page.items)
            way = self._moved(state, page, cursor, None, more(state.plan, page, bool(found)))

            def finish(before: SourceState, at: Micros) -> SourceState:
                return self._kept(listed(before, way, len(found), at), at)

            done = await write_entries(
                self._stored, found, finish=finish, guard=self._mine, full=True
            )
            state = done.state
            listing = state.listing
            return None if listing is None or listing.swept is not None else listing.position

        await self._each(self._reader.listing, state.plan, start, take)
        return state

    async def _sweep(self, after: str) -> SourceState:
        """One page of the rows of the shadow: those that the listing has not found are gone."""

        def draft(found: Found) -> Draft:
            made = Draft(self._stored.tenant, self._stored.source, found.state, {})
            rows = fitting(found.rows, row_size, most)
            made.sweep(rows, found.at)
            listing = made.state.listing
            if listing is None:
                raise Overtaken
            if len(rows) == len(found.rows) < SHADOW_ROWS_MAX:
                made.state = replace(
                    made.state, listing=None, listed_at=found.at, listing_fault=None
                )
            else:
                made.state = replace(made.state, listing=replace(listing, swept=rows[-1].id))
            made.state = self._kept(made.state, found.at)
            return made

        most = SHADOW_ROWS_MAX
        while True:
            try:
                return (await stepped(self._stored, draft, self._mine, after=after)).state
            except QueueFull:
                if most == 1:
                    raise
                most //= 2

    # -- pages -----------------------------------------------------------------------------------

    async def _each(
        self, fetch: Fetch, plan: SourcePlan, cursor: Cursor | None, take: Taker
    ) -> None:
        """Gives pages to `take`, which answers where the next one begins; None after the last one.
        Raises Snooze when others shall have their turn.
        """
        name = self._reader.name
        async with aclosing(
            self._reader.pages(self._ctx, fetch, lambda: given(name, plan, cursor))
        ) as pages:
            async for page in pages:
                cursor = await take(page, cursor)
                if cursor is None:
                    return
                self._left -= 1
                if self._left <= 0:
                    raise Snooze(0)
                self._ctx.check()


def _seconds(full: QueueFull) -> float:
    wait = full.facts.get("retry_after_s", 1.0)
    return float(wait) if isinstance(wait, int | float) else 1.0
