"""Dead letters (jobs that failed for good): list, replay and purge, in bounded steps."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.core.job import State
from holdfast.service.api.jobs import Filter, cursor, listed
from holdfast.service.call import Call
from holdfast.service.wire import DoneOut, JobsOut
from holdfast.store import Act, Change, Selection

STEP_MAX = 1000


class Steps(Filter):
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=STEP_MAX)] = 200


def _failed(call: Call, query: Filter) -> Selection:
    return msgspec.structs.replace(query.selection(call), states=(State.FAILED,))


async def find(call: Call) -> JobsOut:
    """A page of jobs that failed for good, newest first, without payloads."""
    return await listed(call, _failed(call, call.query))


async def replay(call: Call) -> DoneOut:
    """Replays one step of the selected dead letters, each once. Call again with the cursor until
    there is none.
    """
    return await _step(call, Act.REPLAY)


async def purge(call: Call) -> DoneOut:
    """Deletes one step of the selected dead letters. Call again with the cursor until there is
    none.
    """
    return await _step(call, Act.DELETE)


async def _step(call: Call, act: Act) -> DoneOut:
    query: Steps = call.query
    changed = await call.service.store.change(
        Change(
            select=_failed(call, query),
            act=act,
            after=0 if query.cursor is None else cursor(query.cursor),
            limit=query.limit,
            by=call.by,
        )
    )
    more = None if changed.cursor is None else str(changed.cursor)
    return DoneOut(done=len(changed.done), cursor=more)
