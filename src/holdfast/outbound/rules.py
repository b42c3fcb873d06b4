"""The rules of calls to other services: pure, with time and randomness passed in."""

from __future__ import annotations

import math
from datetime import UTC
from email.utils import parsedate_to_datetime

from holdfast.core.edge_bounds import OUTBOUND_AFTER_S_MAX

FIRST_S = 0.2
JITTER = 0.9
"""Of one step at most. Below 1, so that each delay is longer than the one before."""
LEAST_S = 0.05
"""A try with less time than this is not begun."""
DATE_CHARS_MAX = 64

BUSY = 429
"""The service refused the call without doing it."""
AWAY = frozenset({502, 503, 504})
"""The service, or one behind it, is not there. The call may have been done."""
RETRIED = AWAY | {BUSY}
PASSING = frozenset({401, 403, 408, 409, 423, 425, BUSY})
"""Refusals that a later attempt of the job may not meet: of credentials, locks and time."""


def delay_s(number: int, chance: float) -> float:
    """The pause after the given try (1, 2, ...): 0.2, 0.4, 0.8 s, each with a random addition that
    is smaller than the step to the next, so that delays always grow. `chance` is in [0, 1).
    """
    return math.ldexp(FIRST_S, number - 1) * (1 + JITTER * chance)


def after_s(text: str | None, now: float) -> float:
    """The seconds that a Retry-After asks for, at most OUTBOUND_AFTER_S_MAX; 0 if there is none or
    it cannot be read. It is a number of seconds or a date; `now` is in seconds since 1970.
    """
    if text is None or len(text) > DATE_CHARS_MAX:
        return 0.0
    try:
        length = float(text)
    except ValueError:
        length = _until(text) - now
    if math.isnan(length):
        return 0.0
    return min(max(0.0, length), OUTBOUND_AFTER_S_MAX)


def _until(text: str) -> float:
    try:
        at = parsedate_to_datetime(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def is_final(status: int) -> bool:
    """Whether another attempt of the job would get the same refusal."""
    return 300 <= status < 500 and status not in PASSING
