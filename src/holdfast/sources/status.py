"""What a source looks like to people: its status, and the rows of its shadow."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.changes import shown
from holdfast.core.clock import Micros
from holdfast.core.errors import SourceError
from holdfast.core.shadow import ShadowRow, SourceRow
from holdfast.core.source import Fault, SourceState, Stop, Strategy, Totals, decode, plain


class ListingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A full listing in progress."""

    began_at: Micros
    pages: int
    items: int
    found: int
    """The objects of the shadow that it has found so far."""
    sweeping: bool
    """It has read all pages, and looks for objects that are gone."""


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source, as `holdfast sources show` prints it. Instants are microseconds since 1970."""

    tenant: str
    source: str
    strategy: Strategy
    cursor: Any
    """What is at or below it has been read; None: nothing yet."""
    change_type: str
    poll_type: str
    state: str
    """`ok`, `behind` (more pages wait), `listing`, `failing`, `paused`, `new`, `deleting` or
    `unreadable`.
    """
    objects: int
    tombstones: int
    bytes: int
    totals: Totals
    polled_at: Micros | None
    """When the last poll was finished."""
    listed_at: Micros | None
    """When the last full listing was finished; of a source without one, when it was made."""
    listing: ListingStatus | None
    fault: Fault | None
    """Why the last poll failed."""
    listing_fault: Fault | None
    """Why the last full listing took nothing for gone."""
    paused: Stop | None


class ShadowObject(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the shadow."""

    id: str
    version: int | str
    number: int
    """Of its last change."""
    gone: bool
    seen_at: Micros
    """When the row was last written."""
    body: Any


def status_of(tenant: str, row: SourceRow) -> SourceStatus:
    """The status of a stored source, also of one whose state cannot be read."""
    try:
        state = decode(row.source, row.state)
    except SourceError as error:
        return _unreadable(tenant, row, str(error))
    plan, listing = state.plan, state.listing
    return SourceStatus(
        tenant=tenant,
        source=row.source,
        strategy=plan.strategy,
        cursor=plain(state.high),
        change_type=plan.change.type,
        poll_type=plan.poll.type,
        state=_word(state),
        objects=state.objects,
        tombstones=state.gone,
        bytes=row.size,
        totals=state.totals,
        polled_at=state.polled_at or None,
        listed_at=state.listed_at or None,
        listing=None
        if listing is None
        else ListingStatus(
            began_at=listing.began_at,
            pages=listing.pages,
            items=listing.items,
            found=listing.found,
            sweeping=listing.swept is not None,
        ),
        fault=state.fault,
        listing_fault=state.listing_fault,
        paused=state.paused,
    )


def _word(state: SourceState) -> str:
    if state.removing:
        return "deleting"
    if state.paused is not None:
        return "paused"
    if state.fault is not None or state.listing_fault is not None:
        return "failing"
    if state.position is not None:
        return "behind"
    if state.listing is not None:
        return "listing"
    return "ok" if state.polled_at or state.number else "new"


def _unreadable(tenant: str, row: SourceRow, why: str) -> SourceStatus:
    return SourceStatus(
        tenant=tenant,
        source=row.source,
        strategy=Strategy.PUSH,
        cursor=None,
        change_type="",
        poll_type="",
        state="unreadable",
        objects=row.rows,
        tombstones=0,
        bytes=row.size,
        totals=Totals(),
        polled_at=None,
        listed_at=None,
        listing=None,
        fault=Fault(code=SourceError.code, why=why, at=0, since=0),
        listing_fault=None,
        paused=None,
    )


def object_of(row: ShadowRow) -> ShadowObject:
    """A row of the shadow for people."""
    return ShadowObject(
        id=row.id,
        version=shown(row.version),
        number=row.number,
        gone=row.gone,
        seen_at=row.at,
        body=_body(row.body),
    )


def _body(stored: bytes) -> Any:
    """The body; a text about it if somebody stored one that is not JSON."""
    try:
        return msgspec.json.decode(stored) if stored else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"<{len(stored)} bytes that cannot be read>"
