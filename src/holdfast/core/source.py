"""What a source is: its plan, which its code defines, and its state, which a store keeps. Pure.

`core/shadow.py` is how a store keeps both; `core/changes.py` says what a page of a source changes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.bounds import DELAY_S_MAX, REASON_MAX
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import SECOND, Micros
from holdfast.core.codec import JSON
from holdfast.core.edge_bounds import (
    SOURCE_CURSOR_MAX,
    SOURCE_MAX,
    SOURCE_PAGE_MAX,
    SOURCE_PAGES_MAX,
)
from holdfast.core.errors import InvalidInput, SourceError, did_you_mean
from holdfast.core.spec import JobSpec

LENGTH_MAX = int(DELAY_S_MAX) * SECOND
POLL = "poll/"
"""Prefix of the job types of polls, and of their schedules."""
GROUP = "source/"
"""Prefix of the groups of changes that are applied in order."""


Cursor = str
"""A cursor in its stored form: JSON."""


class Strategy(StrEnum):
    """How a source tells what is new."""

    ASCENDING = "ascending"
    """The cursor is the highest id. Each poll reads again a window below it."""
    UPDATED = "updated"
    """The cursor is the time of the last update, and the id. Each poll reads a window again."""
    TOKEN = "token"
    """The source gives an opaque cursor with each page."""
    PUSH = "push"
    """Nothing is polled: the source pushes its changes, and full listings find the rest."""


class SourcePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the code says about a source. Stored with its state, so fields are only added."""

    change: JobSpec
    """The job of each change, without its payload."""
    field: str
    """The argument of that job that takes the change."""
    poll: JobSpec
    """The job of a poll."""
    strategy: Strategy = Strategy.ASCENDING
    overlap: float = 0
    """How far below its cursor a poll begins: ids, or seconds."""
    page: int = 100
    """How many items the source puts into a page."""
    pages: int = 1000
    """Pages of one poll."""
    listing_us: Micros | None = None
    """The time between two full listings; None: only when asked for."""
    share: float = 0.5
    """The share of the objects that one listing may find gone."""
    keep_us: Micros = 30 * 24 * 3600 * SECOND
    """How long tombstones are kept."""
    ordered: bool = False
    """The changes are applied one at a time, in their order."""

    def checked(self) -> SourcePlan:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        for job in (self.change.checked(), self.poll.checked()):
            if job.codec != JSON:
                raise InvalidInput(field="codec", why=f"must be {JSON!r}, not {job.codec!r}")
        if not isinstance(self.overlap, int | float) or not 0 <= self.overlap < 2**53:
            raise InvalidInput(field="overlap", why=f"is {self.overlap!r}, must be 0 or more")
        check_whole("page", self.page, 1, SOURCE_PAGE_MAX)
        check_whole("pages", self.pages, 1, SOURCE_PAGES_MAX)
        if self.listing_us is not None:
            check_whole("reconcile", self.listing_us, SECOND, LENGTH_MAX)
        if not isinstance(self.share, int | float) or not 0 <= self.share <= 1:
            raise InvalidInput(field="deletes", why=f"is {self.share!r}, must be 0 to 1")
        check_whole("keep", self.keep_us, 0, LENGTH_MAX)
        return self


class Stop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause, and who paused it."""

    reason: str
    author: str
    at: Micros


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the last poll, or the last full listing, did not succeed."""

    code: str
    why: str
    at: Micros
    """Of the last failure."""
    since: Micros
    """Of the first one since the last success."""
    times: int = 1


class Listing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A full listing that has begun and is not finished."""

    began_at: Micros
    position: Cursor | None = None
    """Where the next page begins; None: at the start."""
    pages: int = 0
    items: int = 0
    found: int = 0
    """The objects of the shadow that it has listed, or that came meanwhile."""
    swept: str | None = None
    """None: it still reads pages. Otherwise up to which id rows were compared with it."""
    any_share: bool = False
    """It may find any number of objects gone."""


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Numbers since the source was made."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    pages: int = 0
    items: int = 0


class SourceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a source. Fields are only added."""

    born: Micros
    """When it was made."""
    mark: str = ""
    """Random: part of the ids of its jobs, so that a later source of its name makes other ones."""
    plan: SourcePlan
    high: Cursor | None = None
    """The durable cursor: what is at or below it has been seen; None: nothing was polled yet."""
    position: Cursor | None = None
    """Where the poll in progress goes on; None: no poll is in progress."""
    pages: int = 0
    """Pages of the poll in progress."""
    poller: str = ""
    """The run that may write what it polls: the last one that began. Steps of earlier ones are
    refused.
    """
    job: str = ""
    """The id of the job of this run."""
    until: Micros = 0
    """Runs of other jobs wait until then: the run renews it with each page."""
    number: int = 0
    """Of the last change."""
    generation: int = 1
    """Of the last full listing that has begun."""
    listing: Listing | None = None
    listed_at: Micros = 0
    """When the last full listing was finished; before the first one, when the source was made."""
    asked_at: Micros = 0
    """When somebody asked for a full listing that has not begun; 0: nobody has."""
    any_share: bool = False
    """The listing that was asked for may find any number of objects gone."""
    objects: int = 0
    """Objects that are there."""
    gone: int = 0
    """Tombstones."""
    totals: Totals = Totals()
    polled_at: Micros = 0
    """When the last poll was finished."""
    fault: Fault | None = None
    listing_fault: Fault | None = None
    """Why nothing was taken for gone after the last full listing."""
    paused: Stop | None = None
    removing: bool = False
    """It is being deleted."""


class ChangeKind(StrEnum):
    """What happened to an object."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class SourceChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one object: the argument of the job that applies it."""

    source: str
    kind: ChangeKind
    id: str
    number: int
    """Grows with each change of the source. An effect with a higher number of the same object makes
    this one obsolete: jobs of two changes may run at the same time, unless they are ordered.
    """
    version: int | str
    before: int | str | None = None
    """The version that it had; None for a new object."""
    body: Any = None
    """The object as the source gave it; of one that is gone, as it was last seen."""


class Item(msgspec.Struct, frozen=True):
    """One object of a page."""

    id: int | str
    version: int | str | None = None
    """A number that grows, or a text that changes with the object; None: a hash of its body."""
    body: Any = None
    """What the shadow keeps and the change brings; anything that JSON can express."""
    at: Any = None
    """When it was updated: a number or a datetime with a zone. For the strategy "updated"."""
    deleted: bool = False
    """The source says that the object is gone."""


class Page(msgspec.Struct, frozen=True):
    """One page of a source."""

    items: Any
    """A list of `Item`."""
    next: Any = None
    """Where the next page begins, for the strategy "token": anything that JSON can express."""
    more: bool | None = None
    """Whether there are more pages. None: a poll ends with a page that is not full, a full listing
    with an empty one.
    """


# -- names and forms -------------------------------------------------------------------------------


def check_source(name: object) -> str:
    """The name if a source may have it."""
    found = check_name("source", name, SOURCE_MAX)
    if any(char.isspace() or char == "/" for char in found):
        raise InvalidInput(field="source", why=f"{found!r} may contain no spaces and no /")
    return found


def stop(reason: str, author: str, at: Micros) -> Stop:
    """A pause. Raises InvalidInput for a wrong reason or author."""
    check_name("reason", reason, REASON_MAX)
    check_name("author", author, REASON_MAX)
    return Stop(reason=reason, author=author, at=at)


def written(source: str, cursor: Any) -> Cursor:
    """A cursor as it is stored. Raises SourceError for one that cannot be."""
    try:
        text = msgspec.json.encode(cursor).decode()
    except (TypeError, ValueError, RecursionError) as error:
        why = f"a cursor cannot be written as JSON: {error}"
        raise SourceError(source=source, why=why) from None
    if len(text.encode()) > SOURCE_CURSOR_MAX:
        why = f"a cursor has {len(text.encode())} bytes, at most {SOURCE_CURSOR_MAX}"
        raise SourceError(source=source, why=why)
    return text


def plain(cursor: Cursor | None) -> Any:
    """A stored cursor as a value."""
    return None if cursor is None else msgspec.json.decode(cursor)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SourceState)


def encode(state: SourceState) -> bytes:
    """The state in its stored form."""
    return _encoder.encode(state)


def decode(source: str, state: bytes) -> SourceState:
    """A stored state. Raises SourceError if it cannot be read."""
    try:
        found = _decoder.decode(state)
        found.plan.checked()  # Who may write a source may have written anything.
        return found
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput) as error:
        why = f"its stored state cannot be read: {error}"
        raise SourceError(source=source, why=why) from None


def strategy_of(word: str) -> Strategy:
    """The strategy of this name."""
    try:
        return Strategy(word)
    except ValueError:
        hint = did_you_mean(str(word), Strategy)
        why = f"is {word!r}, must be {', '.join(Strategy)}.{hint}"
        raise InvalidInput(field="strategy", why=why) from None
