"""Wakes sleepers after the commit of a caller's own transaction, which tells nobody of it.

While the caller's transaction is open it holds the write lock, so the next commit that any
connection sees is the caller's, or comes after its end. `PRAGMA data_version` shows commits of
others. A thread looks at it, only while there is such a transaction. These are hints.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast.core.backoff import Delays
from holdfast.core.bounds import HINT_KEEP_S, HINTS_PENDING_MAX
from holdfast.store import Ref
from holdfast.stores.notifier import Line
from holdfast.stores.sqlite.connection import open_reader
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.transaction import Transaction

LOOK_S = 0.001
LOOK_S_MAX = 0.05
"""Time between two looks: at first, and for a transaction that stays open."""


Notify = Callable[[set[Line] | None, list[Ref]], None]


class _Pending(NamedTuple):
    lines: set[Line] | None
    ended: list[Ref]
    version: int
    until_s: float


class CommitHints:
    """Notifies sleepers once for each transaction, soon after its end."""

    def __init__(self, options: Options, notify: Notify) -> None:
        self._options = options
        self._notify = notify
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []
        self._connection: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None
        self._more = threading.Event()
        self._closed = False

    def await_commit(self, transaction: Transaction) -> None:
        """Called while the transaction is open. Keeps nothing of it but whom to wake."""
        lines = None if transaction.wake_all else transaction.ready_lines
        if lines is not None and not lines and not transaction.ended_jobs:
            return
        with self._lock:
            if self._closed or len(self._pending) >= HINTS_PENDING_MAX:
                return
            try:
                version = self._version()
            except sqlite3.Error:
                return  # Sleepers look by themselves after a while.
            until_s = time.monotonic() + HINT_KEEP_S
            self._pending.append(_Pending(lines, transaction.ended_jobs, version, until_s))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-commits", daemon=True
                )
                self._thread.start()
        self._more.set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
        self._more.set()
        if thread is not None:
            thread.join()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _version(self) -> int:
        if self._connection is None:
            self._connection = open_reader(self._options)
        found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return found

    def _run(self) -> None:
        pause = threading.Event()
        delays = Delays(LOOK_S, LOOK_S_MAX, factor=1.5)
        while not self._closed:
            if not self._pending:
                self._more.wait()
                self._more.clear()
                delays.reset()
                continue
            ended = self._ended()
            for one in ended:
                self._notify(one.lines, one.ended)
            if ended:
                delays.reset()
            pause.wait(delays.next_s())

    def _ended(self) -> list[_Pending]:
        """Takes out those whose transactions have ended, and those that took too long."""
        with self._lock:
            try:
                version: int | None = self._version()
            except sqlite3.Error:
                version = None
            now_s = time.monotonic()
            ended = [
                one
                for one in self._pending
                if (version is not None and one.version != version) or one.until_s <= now_s
            ]
            self._pending = [one for one in self._pending if one not in ended]
        return ended
