"""Refuses files that were open when this process was forked.

SQLite takes the locks of the parent for the child's own and sets none. When the parent closes the
file, it would delete the write-ahead log with the commits of the child.
"""

from __future__ import annotations

import os

from holdfast.core.errors import StoreUnavailable

_open: dict[object, tuple[int, str]] = {}
"""Store -> (process that opened it, path). In a forked child the stores of the parent stay here and
are not collected: only the process that opened a connection may close it.
"""


def remember(store: object, path: str) -> None:
    """Registers a store that this process opened."""
    _open[store] = (os.getpid(), os.path.realpath(path))


def forget(store: object) -> None:
    """Removes a store that this process closed."""
    _open.pop(store, None)


def check_fork(path: str) -> None:
    """Refuses a file that was open when this process was forked."""
    place = os.path.realpath(path)
    if any(owner != os.getpid() and at == place for owner, at in _open.values()):
        why = (
            "it was open when this process was forked; close it before the fork"
            " (app.sync.close()), or open it only in the child"
        )
        raise StoreUnavailable(store=path, why=why)
