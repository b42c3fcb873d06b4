"""Sources: list, show, read the shadow, poll, push, reconcile, pause, resume, reset and delete.

What a source makes may be of any queue and type, so its routes are for tokens of all of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta

from holdfast.core.clock import Micros, moment
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.source import Fault, Item
from holdfast.fields import Strict
from holdfast.service.api.permissions import over_queues
from holdfast.service.aside import aside
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.schedule_wire import PausedOut
from holdfast.service.scope_wire import PauseIn
from holdfast.service.source_wire import (
    FaultOut,
    ItemIn,
    ListingOut,
    ObjectOut,
    ObjectsOut,
    PushedOut,
    PushIn,
    ReconcileIn,
    RemovedOut,
    SourceOut,
    SourcesOut,
    TotalsOut,
)
from holdfast.service.wire import EnqueuedOut
from holdfast.sources.calls import sources_page
from holdfast.sources.handle import SourceHandle
from holdfast.sources.status import SourceStatus


class Listing(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: str | None = None
    """The cursor of the previous page."""
    limit: Annotated[int, Meta(ge=1, le=SHADOW_ROWS_MAX)] = 100


async def every(call: Call) -> SourcesOut:
    """The sources of the tenant, by name."""
    over_queues(call)
    query: Listing = call.query
    store, limit = call.service.store, query.limit
    found = await sources_page(store, call.tenant, after=query.after or "", limit=limit)
    cursor = found[-1].source if len(found) == limit else None
    return SourcesOut(sources=[_out(one) for one in found], cursor=cursor)


async def get(call: Call) -> SourceOut:
    """A source: its cursor, its counts, what is in progress and what went wrong."""
    return _out(await _handle(call).status())


async def objects(call: Call) -> ObjectsOut:
    """A page of the shadow of a source, by id, tombstones included."""
    query: Listing = call.query
    page = await _handle(call).objects(after=query.after or "", limit=query.limit)
    found = [
        ObjectOut(
            id=one.id,
            version=one.version,
            number=one.number,
            gone=one.gone,
            seen_at=moment(one.seen_at),
            body=one.body,
        )
        for one in page.objects
    ]
    return ObjectsOut(objects=found, cursor=page.after)


async def poll(call: Call) -> Status:
    """Makes a poll at once. While one waits, answers with that one."""
    made = await _handle(call).poll_now()
    told = EnqueuedOut(id=made.id, created=made.created, type_known=True)
    return Status(201 if made.created else 200, told)


async def reconcile(call: Call) -> Status:
    """Asks for a full listing, and makes a poll that begins it."""
    body: ReconcileIn = call.body or ReconcileIn()
    made = await _handle(call).reconcile_now(any_share=body.any_share)
    told = EnqueuedOut(id=made.id, created=made.created, type_known=True)
    return Status(201 if made.created else 200, told)


async def push(call: Call) -> PushedOut:
    """Takes items that the source sends, as a webhook. May be repeated: what the shadow has already
    changes nothing.
    """
    body: PushIn = call.body
    size = sum(0 if one.body is UNSET else len(bytes(one.body)) for one in body.items)
    items = await aside(size, lambda: [_item(one) for one in body.items])
    done = await _handle(call).push(items)
    return PushedOut(
        items=done.items, created=done.created, updated=done.updated, deleted=done.deleted
    )


async def pause(call: Call) -> SourceOut:
    """Reads no more pages until it is resumed. Pushed items are still taken."""
    body: PauseIn = call.body
    return _out(await _handle(call).pause(body.reason, call.by.author))


async def resume(call: Call) -> SourceOut:
    """Ends a pause. Does nothing if there is none."""
    return _out(await _handle(call).resume())


async def reset(call: Call) -> SourceOut:
    """Forgets the cursor: the next poll reads everything again. The shadow stays."""
    return _out(await _handle(call).reset())


async def delete(call: Call) -> RemovedOut:
    """Deletes a source with its shadow. Makes no jobs."""
    return RemovedOut(objects=await _handle(call).delete())


def _handle(call: Call) -> SourceHandle:
    over_queues(call)
    return SourceHandle(call.service.store, call.tenant, call.part("name"))


def _item(one: ItemIn) -> Item:
    try:
        body = None if one.body is UNSET else msgspec.json.decode(one.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(field="body", why=f"of item {one.id!r} is not JSON: {error}") from None
    return Item(one.id, one.version, body, deleted=one.deleted)


def _out(status: SourceStatus) -> SourceOut:
    listing, paused, totals = status.listing, status.paused, status.totals
    return SourceOut(
        name=status.source,
        state=status.state,
        strategy=status.strategy,
        cursor=status.cursor,
        change_type=status.change_type,
        poll_type=status.poll_type,
        objects=status.objects,
        tombstones=status.tombstones,
        bytes=status.bytes,
        totals=TotalsOut(
            created=totals.created,
            updated=totals.updated,
            deleted=totals.deleted,
            pages=totals.pages,
            items=totals.items,
        ),
        polled_at=_at(status.polled_at),
        listed_at=_at(status.listed_at),
        listing=None
        if listing is None
        else ListingOut(
            began_at=moment(listing.began_at),
            pages=listing.pages,
            items=listing.items,
            found=listing.found,
            sweeping=listing.sweeping,
        ),
        fault=_fault(status.fault),
        listing_fault=_fault(status.listing_fault),
        paused=None
        if paused is None
        else PausedOut(reason=paused.reason, author=paused.author, at=moment(paused.at)),
    )


def _at(at: Micros | None) -> datetime | None:
    return None if at is None else moment(at)


def _fault(fault: Fault | None) -> FaultOut | None:
    if fault is None:
        return None
    return FaultOut(
        code=fault.code,
        why=fault.why,
        at=moment(fault.at),
        since=moment(fault.since),
        times=fault.times,
    )
