"""Which idempotency keys this process has seen lately, so that new ones need no look-up.

Challenge: most keys are new, and to find that out costs look-ups that find nothing.

Pattern: two Bloom filters, the current one and the one before. A key that is in neither was not
enqueued here for a while, so the server inserts it without a look-up. The key may be taken all the
same, by another process or long ago: then the insert conflicts, and the server looks it up. So a
filter that is wrong costs time, never a second job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from holdfast.core.errors import MissingExtra
from holdfast.core.job import NewJob

if TYPE_CHECKING:
    from rbloom import Bloom

KEYS_MAX = 1_000_000
"""Of one filter, which takes 1.2 MB; a full one is replaced before its time."""
FALSE_RATE = 0.01
ROTATE_S = 30 * 60.0

Key = tuple[str, str, str, str]


class Seen:
    """Any thread may ask and add. Asking takes no lock: the filters are swapped as a pair, and one
    question or addition is a single call that holds the interpreter.
    """

    def __init__(
        self, keys_max: int = KEYS_MAX, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            from rbloom import Bloom
        except ModuleNotFoundError as error:
            raise MissingExtra(
                field="store", what="bloom=on", package=error.name, extra="bloom"
            ) from None
        self._keys_max = keys_max
        self._monotonic = monotonic
        self._new: Callable[[], Bloom] = lambda: Bloom(keys_max, FALSE_RATE)
        self._lock = threading.Lock()
        self._pair: tuple[Bloom, Bloom | None] = (self._new(), None)
        self._number = 0
        self._since = monotonic()

    def none_of(self, jobs: Iterable[NewJob]) -> bool:
        """There are keys, and certainly none of them was seen here. False is a maybe."""
        keys = [_key(job) for job in jobs if job.key is not None]
        current, before = self._pair
        return bool(keys) and not any(
            key in current or (before is not None and key in before) for key in keys
        )

    def add(self, jobs: Iterable[NewJob]) -> None:
        """Remembers the keys of jobs that are in the store by now."""
        keys = [_key(job) for job in jobs if job.key is not None]
        if not keys:
            return
        with self._lock:
            for key in keys:
                self._rotate()
                if key not in self._pair[0]:
                    self._pair[0].add(key)
                    self._number += 1

    def _rotate(self) -> None:
        now = self._monotonic()
        age_s = now - self._since
        if age_s < ROTATE_S and self._number < self._keys_max:
            return
        # After two times without a change both are too old.
        self._pair = (self._new(), self._pair[0] if age_s < 2 * ROTATE_S else None)
        self._number, self._since = 0, now


def _key(job: NewJob) -> Key:
    """What makes a key one of its own; plain texts, whose hash calls nothing of ours."""
    return job.tenant, job.queue, job.envelope.type, job.key or ""
