"""When schedules tick: clock changes as the docs print them, and texts that are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.clock import SECOND, instant, moment
from holdfast.core.cron import NAMED, Timing, check_cron, timing
from holdfast.core.errors import InvalidInput

BERLIN = "Europe/Berlin"
SPRING, AUTUMN = date(2026, 3, 29), date(2026, 10, 25)
DAY = 24 * 3600 * SECOND


def times(cron: str, day: date, zone: str = BERLIN) -> list[str]:
    """The local times of a day, each with its offset from UTC."""
    place = ZoneInfo(zone)
    start = instant(datetime.combine(day, time(), place))
    end = instant(datetime.combine(day + timedelta(days=1), time(), place))
    found: list[str] = []
    for at in timing(cron=cron, zone=zone).after(start - 1):
        if at >= end:
            return found
        found.append(moment(at).astimezone(place).strftime("%H:%M%z")[:8])
    return found


@pytest.mark.parametrize(
    ("cron", "autumn", "spring"),
    [
        ("30 2 * * *", ["02:30+02"], ["03:00+02"]),
        ("*/30 2 * * *", ["02:00+02", "02:30+02", "02:00+01", "02:30+01"], []),
        ("0 2,3 * * *", ["02:00+02", "03:00+01"], ["03:00+02"]),
        ("0 1 * * *", ["01:00+02"], ["01:00+01"]),
        ("0 3 * * *", ["03:00+01"], ["03:00+02"]),
        ("15 2 * * *", ["02:15+02"], ["03:00+02"]),
        ("@daily", ["00:00+02"], ["00:00+01"]),
    ],
)
def test_a_day_with_a_clock_change(cron: str, autumn: list[str], spring: list[str]) -> None:
    """Neither a run twice nor a run lost, for texts that name an hour."""
    assert [one[:8] for one in times(cron, AUTUMN)] == autumn
    assert [one[:8] for one in times(cron, SPRING)] == spring


def test_hourly_texts_follow_real_time_at_a_clock_change() -> None:
    """25 hours of the day in autumn, 23 in spring."""
    assert (len(times("@hourly", AUTUMN)), len(times("@hourly", SPRING))) == (25, 23)
    assert times("0 */2 * * *", SPRING)[:3] == ["00:00+01", "04:00+02", "06:00+02"]
    assert times("0 */2 * * *", AUTUMN)[1:4] == ["02:00+02", "02:00+01", "04:00+01"]


CRONS = st.sampled_from(
    [
        "30 2 * * *",
        "*/30 2 * * *",
        "0 2,3 * * *",
        "0 0 * * *",
        "15 0-3 * * *",
        "*/7 * * * *",
        "0 */2 * * *",
        "59 23 L * *",
        "0 6 * * mon-fri",
        "0 0 29 2 *",
    ]
)
ZONES = st.sampled_from(
    [
        "UTC",
        BERLIN,
        "America/New_York",
        "America/Havana",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "Africa/Casablanca",
        "America/Santiago",
        "Asia/Beirut",
    ]
)
INSTANTS = st.integers(1_600_000_000, 2_000_000_000).map(lambda at: at * SECOND)


@given(cron=CRONS, zone=ZONES, at=INSTANTS, skip=st.integers(0, 30 * 24 * 3600))
def test_the_instants_do_not_depend_on_where_one_starts(
    cron: str, zone: str, at: int, skip: int
) -> None:
    """Every process finds the same ticks: those after a later start are the rest of them."""
    one = timing(cron=cron, zone=zone)
    whole = list(islice(one.after(at), 300))
    later = at + skip * SECOND
    rest = [each for each in whole if each > later]

    assert whole == sorted(set(whole))
    assert list(islice(one.after(later), len(rest))) == rest
    assert all(one.holds(each) for each in whole[:3])
    assert not one.holds(whole[0] + 1)


@given(
    every=st.integers(1, 40_000), part=st.floats(0, 0.99), at=INSTANTS, number=st.integers(1, 60)
)
def test_intervals_count_from_1970(every: int, part: float, at: int, number: int) -> None:
    """Deploys do not move them."""
    phase = int(every * part)
    one = timing(every=every, phase=phase)
    found = list(islice(one.after(at), number))

    assert found[0] - at <= every * SECOND
    assert all(each % (every * SECOND) == phase * SECOND for each in found)
    newest, more = one.newest(found[0], found[-1], 10)
    assert (newest, more) == (found[-10:], number > 10)


@given(cron=CRONS, zone=ZONES, at=INSTANTS, number=st.integers(1, 40))
def test_the_newest_ticks_are_the_last_ones(cron: str, zone: str, at: int, number: int) -> None:
    """However far they are apart."""
    one = timing(cron=cron, zone=zone)
    found = list(islice(one.after(at), number))

    assert one.newest(at, found[-1], 10) == (found[-10:], number > 10)


def test_the_newest_of_a_long_time_are_found_without_reading_all() -> None:
    """A minute's ticks of fifty years are 26 million."""
    one = Timing(cron="* * * * *")
    end = instant(datetime(2026, 1, 1, tzinfo=UTC))

    found, more = one.newest(0, end, 1000)

    assert (len(found), more, found[-1]) == (1000, True, end)


@pytest.mark.parametrize("name", NAMED)
def test_names_are_cron_texts(name: str) -> None:
    """`@daily` and its kin, in any case."""
    check_cron(name.upper(), "UTC")

    assert timing(cron=name.upper()).holds(instant(datetime(2023, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("0 0 31 2 *", "never comes: no such month has that day"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6 *", "never comes"),
        ("0 0 6 * * *", "six fields.*every="),
        ("* * * *", "4 fields"),
        ("@reboot", "no '@reboot'.*@daily"),
        ("@every 5m", "use every="),
        ("60 * * * *", "wrong minute"),
        ("*/0 * * * *", "wrong minute"),
        ("* 24 * * *", "wrong hour"),
        ("* * 32 * *", "wrong day-of-month"),
        ("* * * 13 *", "wrong month"),
        ("* * * * 8", "wrong day-of-week"),
        ("* * * * mon-sun", "wrong day-of-week"),
        ("a b c d e", "wrong minute"),
        ("L/2 * * * *", "minute"),
        ("* * * * 1#2/3", "day-of-week"),
        ("1" * 300, "characters"),
        ("", "empty"),
        (5, "must be text"),
        ("99999999999999999999 * * * *", "wrong minute"),
        ("0 0 * * 1,٣", "wrong day-of-week"),
    ],
)
def test_a_text_that_is_no_cron_text_says_why(cron: str, why: str) -> None:
    """And names the field."""
    with pytest.raises(InvalidInput, match=why) as raised:
        timing(cron=cron)
    assert raised.value.field == "cron"


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "../../etc/passwd", "Europe", "", "x" * 200, "berlin"]
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """By its name."""
    with pytest.raises(InvalidInput) as raised:
        timing(cron="0 0 * * *", zone=zone)
    assert raised.value.field == "zone"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"every": 300, "phase": 300}, "phase"),
        ({"every": 300, "phase": -1}, "phase"),
        ({"every": 0}, "every"),
        ({"every": 0.5}, "every"),
        ({"every": float("nan")}, "every"),
        ({"every": "300"}, "every"),
        ({"every": 300, "zone": "UTC"}, "zone"),
        ({"cron": "0 0 * * *", "every": 300}, "every"),
        ({"cron": "0 0 * * *", "phase": 1}, "phase"),
        ({}, "cron"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], field: str) -> None:
    """So that the caller need not guess."""
    with pytest.raises(InvalidInput) as raised:
        timing(**arguments)  # type: ignore[arg-type]
    assert raised.value.field == field


@given(text=st.text("0123456789*/,-L#W abcMONdaily@", max_size=30))
def test_any_text_gives_instants_or_a_clear_error(text: str) -> None:
    """Never another exception."""
    try:
        found = list(islice(timing(cron=text).after(1_767_225_600_000_000), 2))
    except InvalidInput:
        found = []

    assert found == sorted(found)
