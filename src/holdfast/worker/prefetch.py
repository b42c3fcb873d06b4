"""How many leases a worker holds beyond its running jobs."""

from __future__ import annotations

import time

from holdfast.config import Config
from holdfast.core.bounds import PREFETCH_MAX

AHEAD_S = 0.02
"""Jobs that end this fast are claimed together: a call of the store then serves many short jobs,
and no job waits in the worker longer than about this.
"""
WAIT_S = 1.0
"""A job that was prefetched because jobs ended fast is released when it waits longer than this:
they no longer do, and another worker may be idle.
"""


class Prefetch:
    """By default as many as `concurrency`, or as many as ended within the last `AHEAD_S` if these
    are more.
    """

    def __init__(self, config: Config) -> None:
        self._set = config.prefetch
        self._ended = 0
        self._since_s = time.monotonic()
        self._lately = 0
        """Jobs that ended in the last `AHEAD_S`, as last measured."""

    def ended(self) -> None:
        """A job has ended."""
        self._ended += 1

    def least(self, concurrency: int) -> int:
        """The number of leases at this concurrency, however long the jobs take."""
        return min(concurrency, PREFETCH_MAX) if self._set is None else self._set

    def most(self, concurrency: int) -> int:
        """The number of leases at this concurrency while jobs end as fast as they do now."""
        if self._set is not None:
            return self._set
        passed = time.monotonic() - self._since_s
        if passed >= AHEAD_S:
            self._lately = int(self._ended * AHEAD_S / passed)
            self._ended, self._since_s = 0, self._since_s + passed
        return max(self.least(concurrency), min(self._lately, PREFETCH_MAX))
