"""The cursor of a source: where a poll begins, how a page moves it, which page is refused. Pure.

A page must lie behind the cursor that it was asked for. So a source that repeats a page, goes
backwards or never ends is noticed by its first such page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

import msgspec

from holdfast.core.errors import SourceError
from holdfast.core.source import Cursor, Item, SourcePlan, Strategy, plain, written

ID_MAX = 2**63 - 1


class Mark(msgspec.Struct, frozen=True, order=True):
    """The cursor of the strategy "updated": an object with this time and id was seen."""

    at: Any
    """As the items have it: a number, or a datetime."""
    id: str


class Moved(msgspec.Struct, frozen=True):
    """Where a page leads."""

    next: Cursor | None
    """Where the next page begins."""
    high: Cursor | None
    """The durable cursor after the page."""
    more: bool


def given(source: str, plan: SourcePlan, cursor: Cursor | None) -> Any:
    """The cursor as the function of the code gets it; None where everything is wanted. Raises
    SourceError for one that another strategy has stored.
    """
    found = plain(cursor)
    if plan.strategy is Strategy.ASCENDING:
        if isinstance(found, int | None) and not isinstance(found, bool):
            return found or 0
    elif plan.strategy is not Strategy.UPDATED or found is None:
        return found
    elif isinstance(found, list) and len(found) == 2:
        return _mark(found)
    why = f"its cursor {cursor} is not one of the strategy {plan.strategy}; reset it"
    raise SourceError(source=source, why=why)


def begin(source: str, plan: SourcePlan, high: Cursor | None) -> Cursor:
    """Where a poll begins: as far below the durable cursor as its plan says."""
    found = given(source, plan, high)
    if plan.strategy is Strategy.ASCENDING:
        return written(source, max(0, found - int(plan.overlap)))
    if plan.strategy is Strategy.UPDATED and found is not None:
        less = plan.overlap
        at = found.at - (timedelta(seconds=less) if isinstance(found.at, datetime) else less)
        return written(source, [at, ""])
    return written(source, found)


def moved(
    source: str,
    plan: SourcePlan,
    items: Sequence[Item],
    *,
    cursor: Cursor | None,
    high: Cursor | None,
    token: Any,
    more: bool,
) -> Moved:
    """Where a page leads that was asked for behind `cursor`. Raises SourceError for a page that
    does not lie behind it.
    """
    if plan.strategy not in (Strategy.ASCENDING, Strategy.UPDATED):
        return _token(source, cursor, high, token, more)
    place = _ascending if plan.strategy is Strategy.ASCENDING else _updated
    after, last = given(source, plan, cursor), given(source, plan, high)
    places = [place(source, item) for item in items]
    try:
        back = [one for one in places if after is not None and one <= after]
        far = max(places, default=after)
        top = far if last is None or (far is not None and far > last) else last
    except TypeError as error:
        why = f"its times cannot be compared with each other: {error}"
        raise SourceError(source=source, why=why) from None
    if back:
        why = f"a page after {_told(after)} has {_told(back[0])}: it repeats or goes backwards"
        raise SourceError(source=source, why=why)
    if more and not places:
        raise SourceError(source=source, why="says that there is more, but the page is empty")
    return Moved(_stored(source, far), _stored(source, top), more)


def _token(
    source: str, cursor: Cursor | None, high: Cursor | None, token: Any, more: bool
) -> Moved:
    if token is None:
        if more:
            raise SourceError(source=source, why="says that there is more, but gives no next=")
        return Moved(cursor, high, False)
    found = written(source, token)
    if more and found == cursor:
        why = "says that there is more, but next= is the cursor of the same page"
        raise SourceError(source=source, why=why)
    return Moved(found, found, more)


def _ascending(source: str, item: Item) -> int:
    """The id as a number."""
    one = item.id
    if isinstance(one, str) and one.isascii() and one.isdigit() and len(one) < 20:
        one = int(one)
    if not isinstance(one, int) or isinstance(one, bool) or not 0 < one <= ID_MAX:
        why = f"the id {item.id!r} is not a number from 1; use another strategy"
        raise SourceError(source=source, why=why)
    return one


def _updated(source: str, item: Item) -> Mark:
    at = item.at
    if isinstance(at, datetime) and at.utcoffset() is not None:
        return Mark(at, str(item.id))
    if isinstance(at, int | float) and not isinstance(at, bool) and isfinite(at):
        return Mark(at, str(item.id))
    why = f"at= of item {item.id!r} must be a number or a datetime with a zone, is {at!r}"
    raise SourceError(source=source, why=why)


def _mark(found: Any) -> Mark:
    at, id = found
    return Mark(datetime.fromisoformat(at) if isinstance(at, str) else at, id)


def _stored(source: str, place: Any) -> Cursor | None:
    if place is None:
        return None
    return written(source, [place.at, place.id] if isinstance(place, Mark) else place)


def _told(place: Any) -> str:
    return f"{place.at} {place.id!r}" if isinstance(place, Mark) else str(place)
