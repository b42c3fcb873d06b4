"""The pure rules of calls to other services: delays, Retry-After and what is final."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.edge_bounds import OUTBOUND_AFTER_S_MAX
from holdfast.outbound import rules

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
chances = st.floats(0, 1, exclude_max=True)


@given(st.lists(chances, min_size=2, max_size=20))
def test_delays_grow_for_any_randomness(chance: list[float]) -> None:
    """X21, S4.22: each pause is longer than the one before it, whatever the jitter."""
    delays = [rules.delay_s(number, one) for number, one in enumerate(chance, 1)]

    assert all(before < after for before, after in pairwise(delays))


@given(st.integers(1, 20), chances)
def test_the_jitter_is_added_and_smaller_than_a_step(number: int, chance: float) -> None:
    """S4.34, X21: 200, 400, 800 ms are the least pauses."""
    step_s = 0.2 * 2 ** (number - 1)

    assert step_s <= rules.delay_s(number, chance) < 2 * step_s


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, 0),
        ("", 0),
        ("120", 120),
        ("0.5", 0.5),
        ("-3", 0),
        ("nan", 0),
        ("inf", OUTBOUND_AFTER_S_MAX),
        ("9" * 40, OUTBOUND_AFTER_S_MAX),
        ("9" * 5000, 0),
        ("soon", 0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 0),
        ("Thu, 01 Jan 9999 00:00:30 GMT", OUTBOUND_AFTER_S_MAX),
        ("Thu, 99 Jan 2026 00:00:30 GMT", 0),
    ],
)
def test_a_retry_after_is_seconds_or_a_date_and_bounded(text: str | None, wanted: float) -> None:
    """What cannot be read asks for nothing; an answer cannot delay a job for years."""
    assert rules.after_s(text, NOW) == wanted


@given(st.text(max_size=80))
def test_no_retry_after_breaks_the_reader(text: str) -> None:
    """The text comes from outside."""
    assert 0 <= rules.after_s(text, NOW) <= OUTBOUND_AFTER_S_MAX


@given(st.integers(1, 80_000))
def test_a_date_is_as_good_as_its_seconds(length: int) -> None:
    """Services send both forms."""
    text = format_datetime(datetime.fromtimestamp(NOW + length, tz=UTC), usegmt=True)

    assert rules.after_s(text, NOW) == length


def test_a_refusal_is_final_unless_time_or_credentials_can_change_it() -> None:
    """Another attempt of the job would waste work on the final ones."""
    assert [each for each in (301, 400, 404, 410, 422, 451) if not rules.is_final(each)] == []
    assert [each for each in (200, 401, 403, 408, 409, 429, 500, 503) if rules.is_final(each)] == []
