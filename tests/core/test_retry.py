"""Retry policies: how late each attempt is, and what is wrong with a bad policy."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import ATTEMPTS_MAX, DELAY_S_MAX, DELAYS_MAX
from holdfast.core.clock import SECOND, micros
from holdfast.core.errors import ConfigError
from holdfast.core.retry import PRESETS, Backoff, Jitter, RetryPolicy, policy


def delays(policy: RetryPolicy, count: int, chance: float = 0.0) -> list[float]:
    return [policy.delay(attempt, chance) / SECOND for attempt in range(1, count + 1)]


def plain(kind: Backoff, **options: Any) -> RetryPolicy:
    return RetryPolicy(kind=kind, jitter=Jitter.NONE, **options).checked()


def test_a_fixed_delay_stays() -> None:
    """P11: the same wait after each attempt."""
    assert delays(plain(Backoff.FIXED, base_s=7.0), 4) == [7, 7, 7, 7]


def test_a_linear_delay_grows_by_its_base() -> None:
    """P11: up to the cap."""
    assert delays(plain(Backoff.LINEAR, base_s=10.0, cap_s=35.0), 5) == [10, 20, 30, 35, 35]


def test_an_exponential_delay_grows_by_its_factor() -> None:
    """P11: up to the cap."""
    grown = plain(Backoff.EXPONENTIAL, base_s=1.0, factor=3.0, cap_s=50.0)

    assert delays(grown, 6) == [1, 3, 9, 27, 50, 50]


def test_a_list_gives_its_delays_and_repeats_the_last() -> None:
    """P11: also when there are more attempts than delays, and above the cap of other kinds."""
    listed = plain(Backoff.LIST, delays_s=(1.0, 5.0, 1000.0))

    assert delays(listed, 5) == [1, 5, 1000, 1000, 1000]


def test_full_jitter_is_anything_up_to_the_whole() -> None:
    """P11: chance decides, and comes from outside."""
    full = RetryPolicy(kind=Backoff.FIXED, base_s=8.0, jitter=Jitter.FULL)

    assert full.delay(1, 0.0) == 0
    assert full.delay(1, 0.25) == 2 * SECOND
    assert full.delay(1, 0.999999) <= 8 * SECOND


def test_equal_jitter_is_at_least_half() -> None:
    """P11: half is certain, half is random."""
    equal = RetryPolicy(kind=Backoff.FIXED, base_s=8.0, jitter=Jitter.EQUAL)

    assert equal.delay(1, 0.0) == 4 * SECOND
    assert equal.delay(1, 0.5) == 6 * SECOND
    assert equal.delay(1, 0.999999) <= 8 * SECOND


def test_a_delay_is_rounded_up() -> None:
    """P8: a job never runs early, not by a part of a microsecond."""
    short = plain(Backoff.FIXED, base_s=0.0000001)

    assert short.delay(1, 0.0) == 1


def test_a_delay_never_overflows() -> None:
    """P15: the last legal attempt of the steepest policy waits for the cap, no more."""
    steep = plain(Backoff.EXPONENTIAL, base_s=1.0, factor=1000.0, cap_s=60.0)

    assert steep.delay(ATTEMPTS_MAX, 0.0) == 60 * SECOND


@given(
    kind=st.sampled_from([Backoff.FIXED, Backoff.LINEAR, Backoff.EXPONENTIAL]),
    jitter=st.sampled_from(Jitter),
    sizes=st.tuples(st.floats(0, 1000), st.floats(0, 1000)),
    attempt=st.integers(1, ATTEMPTS_MAX),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_never_negative_nor_above_its_cap(
    kind: Backoff, jitter: Jitter, sizes: tuple[float, float], attempt: int, chance: float
) -> None:
    """P15: for every legal policy, attempt and chance."""
    base, more = sizes
    made = RetryPolicy(kind=kind, jitter=jitter, base_s=base, cap_s=base + more).checked()

    assert 0 <= made.delay(attempt, chance) <= micros(made.cap_s)


def test_the_presets_are_what_the_page_says() -> None:
    """P11: default, patient and brisk wait as documented."""
    default = PRESETS["default"]
    assert (default.kind, default.jitter) == (Backoff.EXPONENTIAL, Jitter.FULL)
    assert (default.base_s, default.cap_s) == (5.0, 300.0)
    assert delays(PRESETS["patient"], 4, 0.5) == [60, 300, 1500, 1500]
    assert delays(PRESETS["brisk"], 4, 0.5) == [0.2, 0.4, 0.8, 0.8]
    assert all(preset.checked() == preset for preset in PRESETS.values())


def test_a_policy_is_given_as_such_or_by_name() -> None:
    """P11: both forms give a checked policy."""
    own = RetryPolicy(base_s=1.0)

    assert policy(own) == own
    assert policy("patient") is PRESETS["patient"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"base_s": -1.0}, "retry.base_s"),
        ({"base_s": math.nan}, "retry.base_s"),
        ({"base_s": math.inf}, "retry.base_s"),
        ({"base_s": 10.0, "cap_s": 5.0}, "retry.cap_s"),
        ({"cap_s": math.nan}, "retry.cap_s"),
        ({"cap_s": DELAY_S_MAX * 2}, "retry.cap_s"),
        ({"factor": 0.5}, "retry.factor"),
        ({"factor": 1001.0}, "retry.factor"),
        ({"factor": math.nan}, "retry.factor"),
        ({"kind": Backoff.LIST}, "retry.delays_s"),
        ({"kind": Backoff.LIST, "delays_s": (1.0,) * (DELAYS_MAX + 1)}, "retry.delays_s"),
        ({"kind": Backoff.LIST, "delays_s": (1.0, -1.0)}, "retry.delays_s"),
        ({"kind": Backoff.LIST, "delays_s": (math.nan,)}, "retry.delays_s"),
        ({"kind": Backoff.LIST, "delays_s": (DELAY_S_MAX * 2,)}, "retry.delays_s"),
    ],
)
def test_a_bad_policy_names_its_field(options: dict[str, Any], field: str) -> None:
    """P15: ConfigError says which setting is wrong, before any job uses it."""
    with pytest.raises(ConfigError) as caught:
        policy(RetryPolicy(**options))

    assert caught.value.facts["field"] == field


@pytest.mark.parametrize("kind", Backoff)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e300])
@pytest.mark.parametrize("field", ["base_s", "factor", "cap_s", "delays_s"])
def test_every_field_is_finite_and_in_bounds_in_every_kind(
    kind: Backoff, value: float, field: str
) -> None:
    """P19: also where the kind does not read it, for each is stored, and must be read again."""
    options: dict[str, Any] = {"delays_s": (1.0,), field: value}
    if field == "delays_s":
        options[field] = (1.0, value)

    with pytest.raises(ConfigError) as caught:
        policy(RetryPolicy(kind=kind, **options))

    assert caught.value.facts["field"] == f"retry.{field}"


@pytest.mark.parametrize("kind", Backoff)
def test_delays_are_bounded_in_number_in_every_kind(kind: Backoff) -> None:
    """P15: a list that nobody reads is stored all the same."""
    with pytest.raises(ConfigError, match="delays_s"):
        policy(RetryPolicy(kind=kind, delays_s=(1.0,) * (DELAYS_MAX + 1)))


def test_an_unknown_preset_is_refused_with_a_hint() -> None:
    """P15: a misspelled name is met with the right one."""
    with pytest.raises(ConfigError) as caught:
        policy("patiant")

    assert caught.value.facts["field"] == "retry"
    assert "Did you mean 'patient'?" in str(caught.value)


def test_a_policy_is_data_that_any_language_reads() -> None:
    """P11: it survives a trip through JSON, and defaults are left out."""
    for preset in PRESETS.values():
        wire = msgspec.json.encode(preset)
        assert msgspec.json.decode(wire, type=RetryPolicy) == preset
    assert msgspec.json.encode(RetryPolicy()) == b"{}"
