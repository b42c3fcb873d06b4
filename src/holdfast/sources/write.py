"""Writes what a page of a source changes, in steps that the store applies as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.core.changes import Draft, Entry, fitting
from holdfast.core.clock import Micros
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.errors import QueueFull, SourceNotFound, StaleSource
from holdfast.core.source import SourceState
from holdfast.sources.stored import Found, Stored, tries

Finish = Callable[[SourceState, Micros], SourceState]
"""The state after the last step of a page."""
Guard = Callable[[SourceState], object]
"""Raises if the source is no longer the caller's to write."""


class Written(msgspec.Struct, frozen=True):
    """What a page has changed."""

    state: SourceState
    created: int = 0
    updated: int = 0
    deleted: int = 0

    def after(self, earlier: Written) -> Written:
        """Both together."""
        return Written(
            self.state,
            self.created + earlier.created,
            self.updated + earlier.updated,
            self.deleted + earlier.deleted,
        )


def nothing(state: SourceState, at: Micros) -> SourceState:
    """Leaves the state as it is."""
    return state


def anybody(state: SourceState) -> None:
    """Lets everybody write."""


def _there(stored: Stored, state: SourceState) -> None:
    if state.removing:
        raise SourceNotFound(source=stored.source, hint=" It is being deleted.")


async def write_entries(
    stored: Stored,
    found: Sequence[Entry],
    *,
    finish: Finish = nothing,
    guard: Guard = anybody,
    full: bool = False,
) -> Written:
    """Compares the items with the shadow and writes what has changed. The state moves with the last
    step by `finish`, so if the process dies before it, the page is read again, and its first items
    are then no changes. Raises QueueFull when the tenant has no room for even one more job.
    """
    start, most = 0, SHADOW_ROWS_MAX
    written: Written | None = None
    while True:
        part = fitting(found[start:], lambda one: one.size, most)
        last = start + len(part) >= len(found)
        try:
            done = await _step(stored, part, finish if last else nothing, guard, full=full)
        except QueueFull:
            if len(part) <= 1:
                raise
            most = len(part) // 2  # What has room is made now, the rest when there is more.
            continue
        written = done if written is None else done.after(written)
        if last:
            return written
        start += len(part)


async def _step(
    stored: Stored, part: Sequence[Entry], finish: Finish, guard: Guard, *, full: bool
) -> Written:
    ids = list(dict.fromkeys(one.id for one in part))

    def draft(found: Found) -> Draft:
        made = _draft(stored, found)
        made.absorb(part, full=full)
        made.state = finish(made.state, found.at)
        return made

    return await stepped(stored, draft, guard, ids=ids)


async def stepped(
    stored: Stored,
    draft: Callable[[Found], Draft],
    guard: Guard,
    *,
    ids: Sequence[str] = (),
    after: str | None = None,
) -> Written:
    """Reads, drafts and writes one step, again if the source was changed in between."""
    async for _ in tries(stored.source):
        found = await stored.get(ids, after=after, limit=0 if after is None else SHADOW_ROWS_MAX)
        _there(stored, found.state)
        guard(found.state)
        made = draft(found)
        if made.bare() and made.state == found.state:
            return Written(made.state)
        try:
            await stored.write(found, made)
        except StaleSource:
            continue
        was, now = found.state.totals, made.state.totals
        return Written(
            made.state,
            now.created - was.created,
            now.updated - was.updated,
            now.deleted - was.deleted,
        )
    raise AssertionError("the last try raises")


def _draft(stored: Stored, found: Found) -> Draft:
    rows = {row.id: row for row in found.rows}
    return Draft(stored.tenant, stored.source, found.state, rows)
