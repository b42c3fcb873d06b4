"""Answers that may come later, with the binding's names: wait, is_ready, on_ready, cancel.

An answer that the engine delays (`faults.py`) has no thread to wait for. It comes after a few turns
of the event loop in which somebody waits for it, or at once if somebody blocks on it: so the order
of events is the same for each run of a seed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

from tests.foundationdb_engine.errors import (
    OPERATION_CANCELLED,
    TIMED_OUT,
    TRANSACTION_CANCELLED,
    FDBError,
)

log = logging.getLogger(__name__)

Outcome = tuple[Any, FDBError | None]
"""What a call gave, or why it failed."""


def attempt(work: Callable[[], Any]) -> Outcome:
    """Does the work; an error of the database is an outcome too."""
    try:
        return work(), None
    except FDBError as error:
        return None, error


class Future:
    """The answer to one call of a transaction."""

    def __init__(self, owner: weakref.ref[Any] | None = None) -> None:
        self._owner = owner
        """The transaction, until somebody looks: one that is gone by then cancelled the answer."""
        self._lock = threading.Lock()
        self._ready = False
        self._result: Any = None
        self._error: FDBError | None = None
        self._callbacks: list[Callable[[Any], object]] = []
        self._work: Callable[[], Any] | None = None
        self._turns = 0
        self._started = False
        """Whether a loop turns for it, or counts the time until it gives up."""
        self._patience_s: float | None = None

    # -- the side of the engine ------------------------------------------------------------------

    def run(self, work: Callable[[], Any]) -> Self:
        """Answers at once."""
        self._result, self._error = attempt(work)
        self._ready = True
        return self

    def later(self, turns: int, work: Callable[[], Any]) -> Self:
        """Answers after as many turns of the waiting loop."""
        # The first look, which a bridge takes before it waits, is for nothing.
        self._turns, self._work = turns + 1, work
        return self

    def hold(self, patience_s: float | None) -> Self:
        """Answers when the cluster is there again, or fails with 1031 after so long."""
        self._patience_s = patience_s
        return self

    def complete(self, result: Any = None, error: FDBError | None = None) -> bool:
        """Gives the answer; False if there was one already. Callbacks run in this thread."""
        with self._lock:
            if self._ready:
                return False
            self._result, self._error, self._ready = result, error, True
            callbacks, self._callbacks, self._work = self._callbacks, [], None
        self._settled()
        for callback in callbacks:
            self._tell(callback)
        return True

    def _settled(self) -> None:
        """The answer is there, nobody was told yet."""

    # -- the side of the caller ------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether the answer is there. Asking for a delayed one is a turn too."""
        if not self._ready and self._work is not None:
            self._turn()
        return self._ready

    def on_ready(self, callback: Callable[[Any], object]) -> None:
        """Calls it with this future when the answer is there; now, if it is."""
        with self._lock:
            waiting = not self._ready
            if waiting:
                self._callbacks.append(callback)
        if not waiting:
            self._tell(callback)
        else:
            self._start()

    def block_until_ready(self) -> None:
        if self._ready:
            return
        if self._work is not None:
            self._finish()
            return
        event = threading.Event()
        self.on_ready(lambda _: event.set())
        if not event.wait(self._patience_s):
            self._give_up()

    def wait(self) -> Any:
        """The answer, or its error raised."""
        self.block_until_ready()
        return self._answer()

    def cancel(self) -> None:
        """Nobody waits any more. What was sent may be done all the same."""
        self.complete(error=FDBError(OPERATION_CANCELLED))

    def done(self) -> bool:
        return self.is_ready()

    # --------------------------------------------------------------------------------------------

    def _answer(self) -> Any:
        owner, self._owner = self._owner, None
        if owner is not None and owner() is None:
            self._error = FDBError(TRANSACTION_CANCELLED)
        if self._error is not None:
            raise FDBError(self._error.code)
        return self._result

    def _tell(self, callback: Callable[[Any], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("a callback of a future failed")

    def _start(self) -> None:
        """Somebody waits: from now on the turns of his loop count, and its time."""
        if self._started or (self._work is None and self._patience_s is None):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._finish()
            return
        self._started = True
        if self._work is not None:
            loop.call_soon(self._turn_of, loop)
        elif self._patience_s is not None:
            loop.call_later(self._patience_s, self._give_up)

    def _give_up(self) -> None:
        self.complete(error=FDBError(TIMED_OUT))

    def _turn_of(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._turn():
            loop.call_soon(self._turn_of, loop)

    def _turn(self) -> bool:
        self._turns -= 1
        if self._turns <= 0:
            self._finish()
        return self._ready

    def _finish(self) -> None:
        with self._lock:
            work, self._work = self._work, None
        if work is not None:
            self.complete(*attempt(work))


class Text(Future):
    """A future that stands for the bytes it will be: `tr[b"key"]` reads like a value.

    As in the binding it says that it is bytes, even where there are none.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return bytes

    @property
    def value(self) -> Any:
        """The bytes, or None where no value is."""
        self.block_until_ready()
        return self._answer()

    def wait(self) -> Self:
        """This object itself, as in the binding: its bytes are `.value`."""
        self.block_until_ready()
        self._answer()
        return self

    def as_foundationdb_key(self) -> Any:
        return self.value

    def as_foundationdb_value(self) -> Any:
        return self.value

    def __bytes__(self) -> bytes:
        found: bytes = self.value
        return found

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, place: Any) -> Any:
        return self.value[place]

    def __add__(self, other: Any) -> Any:
        return self.value + bytes(other)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Text) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


class Value(Text):
    """The value of a key, if it has one."""

    def present(self) -> bool:
        return self.value is not None


class Key(Text):
    """A key, or a versionstamp."""
