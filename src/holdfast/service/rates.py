"""Rate limits of tokens: one token bucket for each, in this process."""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from holdfast.service.problems import TooManyRequests

CALLERS_MAX = 10_000
"""Maximum number of buckets. The least recently used one, which is full by then, is dropped."""


class Rates:
    """`spend` takes one token from a caller's bucket, or refuses the call."""

    def __init__(self, per_s: float | None, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def spend(self, key: str) -> None:
        if self._per_s is None:
            return
        now, price = time.monotonic(), 1 / self._per_s
        full_at = max(now, self._full_at.pop(key, now)) + price
        wait_s = full_at - now - self._burst * price
        if wait_s > 1e-9:
            self._full_at[key] = full_at - price
            why = f"more than {self._per_s:g} calls per second"
            raise TooManyRequests(why=why, retry_after_s=max(1, math.ceil(wait_s)))
        self._full_at[key] = full_at
        if len(self._full_at) > CALLERS_MAX:
            self._full_at.popitem(last=False)

    def charge(self, key: str, calls: int) -> None:
        """Takes tokens without refusing the call, for one that does the work of several."""
        if self._per_s is None or calls < 1:
            return
        now = time.monotonic()
        self._full_at[key] = max(now, self._full_at.pop(key, now)) + calls / self._per_s
