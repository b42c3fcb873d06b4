"""Runs coroutines that await nothing, for calls on connections that belong to their thread."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.core.errors import InvalidInput

T = TypeVar("T")


def run_here(work: Coroutine[Any, Any, T], field: str, instead: str) -> T:
    """The answer of a coroutine, run in this thread and without a loop. If it awaits something, its
    connection is an async one: InvalidInput says what to do `instead`.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        work.close()
    raise InvalidInput(field=field, why=f"is an async connection: {instead}")
