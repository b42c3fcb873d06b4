"""The delays that every loop waits between its tries."""

from __future__ import annotations

import pytest

from holdfast.core.backoff import Delays


def test_each_delay_is_twice_the_one_before_up_to_the_limit() -> None:
    """P15: a loop that fails calls less and less often, but never stops calling."""
    delays = Delays(0.1, 0.5)

    assert [delays.next_s() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_success_starts_again_with_the_first_delay() -> None:
    """The next outage is answered as quickly as the first."""
    delays = Delays(0.1, 10.0, factor=3.0)
    delays.next_s()
    assert delays.next_s() == pytest.approx(0.3)

    delays.reset()

    assert delays.next_s() == 0.1


def test_the_limit_holds_for_the_first_delay_too() -> None:
    """A configured limit is the longest delay, whatever the first would be."""
    delays = Delays(0.5, 0.02)

    assert delays.next_s() == 0.02
    delays.reset()
    assert delays.next_s() == 0.02


def test_chance_spreads_a_delay_from_half_to_one_and_a_half_times() -> None:
    """The clients of a server that came back do not all call it at once."""
    chances = iter([0.0, 0.5, 0.75])
    delays = Delays(0.2, 0.4, chance=lambda: next(chances))

    assert [delays.next_s() for _ in range(3)] == pytest.approx([0.1, 0.4, 0.5])
