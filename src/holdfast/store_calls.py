"""What is told of each call that reached a store: verb, items, seconds and error."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from holdfast.core.shadow import Shadow
from holdfast.store import Changed, EventPage, Page, Pruned

T = TypeVar("T")


class StoreCall(msgspec.Struct, frozen=True, gc=False):
    """One call that reached the store, after its end."""

    verb: str
    items: int
    """The size of the batch of the call, or the number of results of a call that reads."""
    seconds: float
    error: type[BaseException] | None = None
    """The error that it raised. Refused items have their own answers and are not errors here."""


Observer = Callable[[StoreCall], None]
"""Called after each call, in the task of the caller. It must be fast and must not raise."""


async def measured(
    observe: Observer, verb: str, items: int | None, call: Coroutine[Any, Any, T]
) -> T:
    """The answer of the call, after the observer was told."""
    started = time.perf_counter()
    try:
        answer = await call
    except BaseException as error:
        observe(StoreCall(verb, items or 0, time.perf_counter() - started, type(error)))
        raise
    seconds = time.perf_counter() - started
    observe(StoreCall(verb, _found(answer) if items is None else items, seconds))
    return answer


def _found(answer: object) -> int:
    match answer:
        case Page(jobs=found) | EventPage(events=found) | Changed(done=found):
            return len(found)
        case Pruned(jobs=jobs, events=events):
            return jobs + events
        case Shadow(sources=sources, rows=rows):
            return len(rows) or len(sources)
        case list():
            return len(answer)
    return 1
