"""The shapes of the native API for sources. Instants are RFC 3339."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.core.edge_bounds import OBJECT_MAX, SHADOW_VERSION_MAX, SOURCE_PAGE_MAX
from holdfast.core.source import Strategy
from holdfast.fields import Strict
from holdfast.service.schedule_wire import PausedOut
from holdfast.service.shapes import Out


class ItemIn(Strict):
    """One object, as its source has it now. Without a version, that is a hash of its body."""

    id: Annotated[str, Meta(min_length=1, max_length=OBJECT_MAX)] | int
    version: Annotated[str, Meta(min_length=1, max_length=SHADOW_VERSION_MAX - 1)] | int | None = (
        None
    )
    body: Raw | UnsetType = UNSET
    deleted: bool = False


class PushIn(Strict):
    items: Annotated[tuple[ItemIn, ...], Meta(max_length=SOURCE_PAGE_MAX)]


class PushedOut(Out):
    """What the pushed items have changed. Those that change nothing count as items only."""

    items: int
    created: int
    updated: int
    deleted: int


class ReconcileIn(Strict):
    """Asks for a full listing. With `any_share` it may find any number of objects gone."""

    any_share: bool = False


class FaultOut(Out):
    """Why the last poll failed, or the last full listing took nothing for gone."""

    code: str
    why: str
    at: datetime
    since: datetime
    times: int


class ListingOut(Out):
    """A full listing in progress."""

    began_at: datetime
    pages: int
    items: int
    found: int
    sweeping: bool


class TotalsOut(Out, omit_defaults=False):
    """Numbers since the source was made."""

    created: int
    updated: int
    deleted: int
    pages: int
    items: int


class SourceOut(Out):
    """A source of a tenant."""

    name: str
    state: str
    """`ok`, `behind`, `listing`, `failing`, `paused`, `new`, `deleting` or `unreadable`."""
    strategy: Strategy
    change_type: str
    poll_type: str
    objects: int
    tombstones: int
    bytes: int
    totals: TotalsOut
    cursor: Any = None
    """What is at or below it has been read."""
    polled_at: datetime | None = None
    listed_at: datetime | None = None
    listing: ListingOut | None = None
    fault: FaultOut | None = None
    listing_fault: FaultOut | None = None
    paused: PausedOut | None = None


class SourcesOut(Out):
    sources: Sequence[SourceOut]
    cursor: str | None = None
    """Pass it as `after` to get the next page; missing on the last page."""


class ObjectOut(Out, omit_defaults=False):
    """An object of the shadow. `gone`: a tombstone, without a body."""

    id: str
    version: int | str
    number: int
    gone: bool
    seen_at: datetime
    body: Any


class ObjectsOut(Out):
    objects: Sequence[ObjectOut]
    cursor: str | None = None
    """Pass it as `after` to get the next page; missing on the last page."""


class RemovedOut(Out, omit_defaults=False):
    """The objects of the shadow that were deleted with their source."""

    objects: int
