"""Refuses calls that would wait for their own caller.

A handler that has begun a transaction on the file of an SQLite store holds its only write lock. A
writing call of the same handler would wait for that lock, and the handler for the call.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, Token

from holdfast.core.errors import InvalidInput


class Held:
    """The write lock of a store, held by the task or thread that has called `take`."""

    def __init__(self, store: object) -> None:
        self.store: object | None = store
        self._token: Token[Held | None] | None = None

    def take(self) -> None:
        self._token = _held.set(self)

    def release(self) -> None:
        """May be called twice, and from anywhere."""
        self.store, token, self._token = None, self._token, None
        if token is not None:
            with suppress(ValueError):  # Another task ends what this one has begun.
                _held.reset(token)


_held: ContextVar[Held | None] = ContextVar("holdfast_held", default=None)


def check_not_held(store: object) -> None:
    """Refuses a writing call to a store whose write lock the caller holds."""
    held = _held.get()
    if held is not None and held.store is store:
        why = (
            "must be the connection of the open transaction: this call would wait for it. Enqueue"
            " with using=connection; make other calls before the transaction, or after it"
        )
        raise InvalidInput(field="using", why=why)
