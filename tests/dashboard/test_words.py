"""How things are said and drawn: times, numbers, names in addresses, lines."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import shown
from holdfast.core.clock import SECOND
from holdfast.core.job import Event, EventKind
from holdfast.dashboard import words
from holdfast.dashboard.charts import HEIGHT, Line, chart, strip
from holdfast.dashboard.views import Progress, progress, timeline


@pytest.mark.parametrize(
    ("length_s", "text"),
    [(0.0, "0.0 s"), (0.42, "0.4 s"), (12.4, "12 s"), (119, "119 s"), (180, "3 min"),
     (7200, "2 h"), (200_000, "2 d")],
)  # fmt: skip
def test_a_length_is_said_as_a_person_would(length_s: float, text: str) -> None:
    """In one unit."""
    assert words.span(length_s) == text


def test_a_time_says_how_long_ago_and_keeps_the_instant() -> None:
    """The whole instant is in the title."""
    now = 1_700_000_000 * SECOND

    past, future = words.when(now - 12 * SECOND, now), words.when(now + 300 * SECOND, now)

    assert ">12 s ago</time>" in past
    assert 'title="2023-11-14 22:13:08.000 UTC"' in past
    assert ">in 5 min</time>" in future
    assert "none" in words.when(None, now)


@given(st.floats(1e-3, 1e12))
def test_the_top_of_a_chart_is_a_round_number_above(value: float) -> None:
    """And not far above."""
    top = words.ceiling(value)

    assert value <= top * 1.00001
    assert top <= value * 2.00001


@given(st.lists(st.text(min_size=1).filter(str.isprintable), min_size=1, max_size=3))
def test_a_name_comes_back_from_its_segment(names: list[str]) -> None:
    """Whatever is in it; no segment is a step up or down."""
    path = words.link(*names)

    segments = path.removeprefix("/ui/").split("/")
    assert not {".", ".."} & {unquote(segment) for segment in segments}
    back = [words.unlink(unquote(segment).replace("/", "\x00")) for segment in segments]
    assert back == names


def test_a_payload_is_shown_whole_or_cut() -> None:
    """As JSON, as text, or as the bytes that it is."""
    assert shown.pretty({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    assert shown.pretty("text") == '"text"'
    assert shown.pretty(b"text") == "text"
    assert shown.pretty(b"\xff\x00").startswith("2 bytes")
    assert shown.pretty("x" * 100_000).endswith("more characters")


def test_a_line_is_broken_where_nothing_is_known() -> None:
    """One path for each stretch; all within the drawing."""
    drawn = chart("words <&>", [Line("done", [None, 1.0, 2.0, None, 3.0], filled=True)])

    assert drawn.svg.count('class="line done"') == 2
    assert "words &lt;&amp;&gt;" in drawn.svg
    heights = [float(y) for y in re.findall(r"[ML ]\d+\.\d (\d+\.\d)", drawn.svg)]
    assert heights
    assert all(0 <= y <= HEIGHT for y in heights)


def test_a_small_share_stays_visible() -> None:
    """One among a million is drawn too; none is not."""
    drawn = strip([("failed", 1), ("completed", 1_000_000), ("waiting", 0)])

    assert 'class="failed" x="0.0" y="0" width="3.0"' in drawn
    assert "waiting" not in drawn


def test_heartbeats_in_a_row_are_one_line() -> None:
    """With the instant of the last."""
    kinds = [EventKind.LEASED, EventKind.EXTENDED, EventKind.EXTENDED, EventKind.COMPLETED]
    events = [Event(n, n, kind, "a", "id", "q", "t", 1, 1) for n, kind in enumerate(kinds)]

    entries = timeline(events)

    assert [(one.kind, one.times, one.at, one.after_us) for one in entries] == [
        ("leased", 1, 0, None), ("extended", 2, 2, 2), ("completed", 1, 3, 1),
    ]  # fmt: skip
    assert [words.lasted(us) for us in (4000, 1_250_000, 200_000_000)] == [
        "4 ms",
        "1.25 s",
        "3 min",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, None),
        ('{"done":1.0,"total":2.0,"note":"x"}', Progress(1.0, 2.0, "x")),
        ("half", Progress(note="half")),
        ('{"other": 1}', Progress(note='{"other": 1}')),
    ],
)
def test_progress_is_read_as_the_handler_told_it(text: str | None, told: Progress | None) -> None:
    """Other clients may keep any text."""
    assert progress(text) == told
