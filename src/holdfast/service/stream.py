"""Event streams: server-sent events with keep-alive comments and a bounded number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent

from holdfast.core.bounds import PAGE_MAX
from holdfast.service.call import Call
from holdfast.service.render import event_out
from holdfast.store import Watch

BEAT_S = 15
"""Time between comments, which keep proxies from closing an idle stream."""
SEND_S = 30
"""A reader that accepts nothing for this long is disconnected; it can resume with its last id."""
NAP_S = 1.0

_encode = msgspec.json.Encoder().encode


def stream(call: Call, after: int, job_id: str | None) -> EventSourceResponse:
    """The response. Refused if there are too many readers, in total or of this caller."""
    service = call.service
    service.hold(call.request, service.streams, call.caller)
    service.deadlines.free()
    return EventSourceResponse(
        _facts(call, after, job_id), ping=BEAT_S, send_timeout=SEND_S, sep="\n"
    )


async def _facts(call: Call, after: int, job_id: str | None) -> AsyncIterator[Any]:
    """Sends page by page: events that a slow reader has not read stay in the store."""
    service, caller = call.service, call.caller
    if after == -1:
        after = (await service.store.events(call.tenant, -1, 1, job_id)).cursor
        # Sent at once, so that a reader knows its cursor before the first event.
        yield ServerSentEvent(comment="following", id=str(after))
    standing = call.standing()
    while not (service.closing or caller.over) and await standing.holds():
        page = await service.store.events(call.tenant, after, PAGE_MAX, job_id)
        if page.lost:
            # Before the page: a reader that is disconnected here can resume before it.
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
