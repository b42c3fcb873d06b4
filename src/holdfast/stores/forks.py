"""Forks: a forked child keeps what its parent opened, unused, until it ends.

Parent and child share the sockets, and the selector of each event loop. A client library that
collects a connection takes its socket out of that selector, so the parent would wait in vain for
the next answer.
"""

from __future__ import annotations

import os
from weakref import WeakSet

_opened: WeakSet[object] = WeakSet()
_of_parents: list[object] = []


def keep(holder: object) -> None:
    """Registers a holder of connections: it is not collected in processes forked from this one."""
    _opened.add(holder)


def _after_fork() -> None:
    _of_parents.extend(_opened)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
