"""Event streams: server-sent events with heartbeats. Readers are bounded, and so are arrears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent

from holdfast.limits import PAGE_MAX
from holdfast.service.call import Call
from holdfast.service.render import event_out
from holdfast.store import Watch

BEAT_S = 15
"""Between comments that keep proxies from closing a quiet stream."""
SEND_S = 30
"""A reader that takes nothing for this long is cut off; it may come again with its last id."""
NAP_S = 1.0

_encode = msgspec.json.Encoder().encode


def stream(call: Call, after: int, job_id: str | None) -> EventSourceResponse:
    """The response; refused when there are too many readers already, or too many of this caller."""
    service = call.service
    service.hold(call.request, service.streams, call.caller)
    service.deadlines.free()
    return EventSourceResponse(
        _facts(call, after, job_id), ping=BEAT_S, send_timeout=SEND_S, sep="\n"
    )


async def _facts(call: Call, after: int, job_id: str | None) -> AsyncIterator[Any]:
    """A page at a time: what a slow reader has not taken waits in the store, not here."""
    service, caller = call.service, call.caller
    if after == -1:
        after = (await service.store.events(call.tenant, -1, 1, job_id)).cursor
        # At once, so that a reader knows where it stands before anything has happened.
        yield ServerSentEvent(comment="following", id=str(after))
    standing = call.standing()
    while not (service.closing or caller.over) and await standing.holds():
        page = await service.store.events(call.tenant, after, PAGE_MAX, job_id)
        if page.lost:
            # Before the page: who is cut off here comes again for it.
            start = page.events[0].cursor - 1 if page.events else page.cursor
            yield ServerSentEvent(event="gap", id=str(start), data="{}")
        for event in page.events:
            if caller.may_queue(event.queue):
                data = _encode(event_out(event)).decode()
                yield ServerSentEvent(event=event.kind, id=str(event.cursor), data=data)
        after = page.cursor
        if len(page.events) < PAGE_MAX:
            await service.store.wait(Watch(news=True), NAP_S)
        else:
            await asyncio.sleep(0)
