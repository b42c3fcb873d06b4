"""Which files were open when this process was forked? They cannot be opened here.

SQLite takes the locks of the parent for this process's own and sets none. The parent, when it
closes the file, would delete the log with what was written here.
"""

from __future__ import annotations

import os

from holdfast.errors import StoreUnavailable

_open: dict[object, tuple[int, str]] = {}
"""The stores that are open: by which process, and where. In a forked child those of the parent stay
here and are not collected: a connection must not be closed by a process that did not open it.
"""


def remember(store: object, path: str) -> None:
    """Says that the store was opened by this process."""
    _open[store] = (os.getpid(), os.path.realpath(path))


def forget(store: object) -> None:
    """Says that the store was closed by the process that opened it."""
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
