"""Tools for tests of programs that use Holdfast."""

from __future__ import annotations

from holdfast.testing.asserts import assert_enqueued, assert_not_enqueued, assert_state
from holdfast.testing.clock import ManualClock
from holdfast.testing.drain import Drained, drain
from holdfast.testing.faults import Faults

__all__ = [
    "assert_enqueued",
    "assert_not_enqueued",
    "assert_state",
    "drain",
    "Drained",
    "Faults",
    "ManualClock",
]
