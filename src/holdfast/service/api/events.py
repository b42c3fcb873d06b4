"""Events, page by page and as a stream."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta
from starlette.responses import Response

from holdfast.core.bounds import ID_MAX, PAGE_MAX
from holdfast.core.check import check_name
from holdfast.fields import Strict
from holdfast.service.api.jobs import cursor
from holdfast.service.call import Call
from holdfast.service.render import event_out
from holdfast.service.stream import stream
from holdfast.service.wire import EventsOut

LAST_ID_HEADER = b"last-event-id"
CURSOR_MAX = 2**63 - 1


class Reading(Strict):
    """The cursor to start after; -1 is the current end."""

    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: Annotated[int, Meta(ge=-1, le=CURSOR_MAX)] = 0
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    job: str | None = None


async def page(call: Call) -> EventsOut:
    """The events after a cursor, in stored order."""
    query: Reading = call.query
    found = await call.service.store.events(call.tenant, query.after, query.limit, _job(query.job))
    events = [event_out(event) for event in found.events if call.caller.may_queue(event.queue)]
    return EventsOut(events=events, cursor=found.cursor, lost=found.lost)


class Following(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: Annotated[int, Meta(ge=-1, le=CURSOR_MAX)] = -1
    job: str | None = None


async def follow(call: Call) -> Response:
    """Server-sent events: each event as it is stored, starting after `Last-Event-ID` or `after`."""
    query: Following = call.query
    after, last = query.after, call.header(LAST_ID_HEADER)
    if last:
        after = cursor(last, "Last-Event-ID")
    return stream(call, after, _job(query.job))


def _job(id: str | None) -> str | None:
    return None if id is None else check_name("job", id, ID_MAX)
