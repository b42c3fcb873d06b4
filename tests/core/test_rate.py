"""The pure rules of rates: their texts, and the bucket that counts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import RUNNING_CAP_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.rate import Bucket, Rate, rate

START = 1_767_225_600_000_000
MINUTE = 60 * SECOND

rates = st.builds(
    lambda count, unit, burst: rate(f"{count}/{unit}", burst),
    st.integers(1, 5000),
    st.sampled_from("smhd"),
    st.none() | st.integers(1, 50),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100/s", Rate(100, SECOND, 100)),
        (" 60 / m ", Rate(60, MINUTE, 60)),
        ("1000/h", Rate(1000, 60 * MINUTE, 1000)),
        ("5/d", Rate(5, 24 * 60 * MINUTE, 5)),
    ],
)
def test_a_rate_is_read_from_text(text: str, expected: Rate) -> None:
    """P13: a number and a unit; the burst is the count."""
    assert rate(text) == expected
    assert rate(text, burst=7).burst == 7


@pytest.mark.parametrize(
    "text", ["100", 100, 1.5, None, "", "/s", "10/", "10/x", "10/sec", "1.5/s", "-1/s", "10 s", "٣"]
)
def test_a_rate_without_a_unit_is_refused(text: object) -> None:
    """P15: the error names the field and shows what is right."""
    with pytest.raises(InvalidInput, match="100/s") as caught:
        rate(text)
    assert caught.value.facts["field"] == "rate"


@pytest.mark.parametrize(
    ("text", "burst", "field"),
    [
        ("0/s", None, "rate"),
        (f"{RUNNING_CAP_MAX + 1}/s", None, "rate"),
        ("1/s", 0, "burst"),
        ("1/s", -1, "burst"),
        ("1/s", RUNNING_CAP_MAX + 1, "burst"),
    ],
)
def test_a_rate_out_of_bounds_is_refused(text: str, burst: int | None, field: str) -> None:
    """P15: nothing and too much alike."""
    with pytest.raises(InvalidInput) as caught:
        rate(text, burst)
    assert caught.value.facts["field"] == field


@given(rates, st.lists(st.tuples(st.integers(0, 3 * MINUTE), st.integers(1, 5)), max_size=60))
def test_a_bucket_never_gives_more_than_its_rate(one: Rate, steps: list[tuple[int, int]]) -> None:
    """P13: in no window, however long, more than the burst and what came in since."""
    bucket, now = Bucket(), START
    starts: list[int] = []
    for passed, wanted in steps:
        now += passed
        tokens = bucket.tokens(one, now)
        assert tokens <= one.burst
        given_out = max(0, min(wanted, tokens))
        if given_out:
            bucket = bucket.take(one, given_out, now)
        starts += [now] * given_out
        for first in range(len(starts)):
            window = starts[-1] - starts[first]
            assert len(starts) - first <= one.burst + window * one.count // one.per_us


@given(rates, st.integers(0, 10 * MINUTE))
def test_a_full_bucket_gives_its_burst_one_by_one(one: Rate, later: int) -> None:
    """P13: no token is lost to rounding, and the last one empties it."""
    bucket, now = Bucket(), START + later
    for left in range(one.burst, 0, -1):
        assert bucket.tokens(one, now) == left
        bucket = bucket.take(one, 1, now)
    assert bucket.tokens(one, now) == 0


@given(rates, st.integers(1, 60), st.integers(0, MINUTE))
def test_the_next_token_comes_at_the_very_instant(one: Rate, takes: int, passed: int) -> None:
    """P8: not a microsecond early, not one late; a bucket that has one has it now."""
    bucket, now = Bucket(), START
    for _ in range(min(takes, one.burst)):
        bucket = bucket.take(one, 1, now)
    now += passed
    at = bucket.next_at(one, now)
    assert bucket.tokens(one, at) > 0
    assert at == now or bucket.tokens(one, at - 1) <= 0


def test_a_rate_is_kept_over_a_year() -> None:
    """P13: the price of a token is rounded up by less than a microsecond, and never adds up."""
    one, bucket, now = rate("7/m", burst=1), Bucket(), START
    count = 50_000
    for _ in range(count):
        now = bucket.next_at(one, now)
        bucket = bucket.take(one, 1, now)
    passed = now - START
    assert count <= 1 + passed * one.count // one.per_us
    assert passed - (count - 1) * one.per_us / one.count <= count


@given(rates, rates, st.integers(1, 100))
def test_a_new_rate_counts_from_now(old: Rate, new: Rate, takes: int) -> None:
    """P13: a bucket is never emptier than empty, and never fuller for the change."""
    bucket = Bucket()
    for _ in range(min(takes, old.burst)):
        bucket = bucket.take(old, 1, START)
    bounded = bucket.bounded(new, START)
    assert 0 <= bounded.tokens(new, START) <= new.burst
    assert bounded.next_at(new, START) <= START + new.price_us
    assert bounded.full_at <= bucket.full_at
