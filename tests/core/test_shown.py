"""Showing what users sent: no more work and no more text than a reader can use."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import shown

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN | st.binary(), st.integers(10, 500))
def test_no_more_is_written_than_asked_for(value: Any, most: int) -> None:
    """P15: but for a line that says so."""
    assert len(shown.pretty(value, most)) <= most + 60


@given(st.text(), st.integers(1, 50))
def test_text_of_bytes_is_cut_between_characters(text: str, most: int) -> None:
    """A character that the cut halves does not make bytes of the text."""
    data = text.encode("utf-8", "ignore")

    found = shown.pretty(data, most)

    assert found.startswith(data.decode()[:most])


def test_what_cannot_be_written_is_told_by_its_kind() -> None:
    """Never by itself, which may be as large as it likes."""
    deep: list[Any] = []
    for _ in range(sys.getrecursionlimit() * 2):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)

    assert shown.pretty(loop) == "<list that cannot be shown>"
    assert len(shown.pretty(deep)) < 2 * shown.TEXT_MAX


@pytest.mark.parametrize("data", [b"\xff" * 100_000, b"\x00\xff", b"ok\xff"])
def test_bytes_that_are_no_text_are_told_by_their_number(data: bytes) -> None:
    """And by the first of them."""
    assert shown.pretty(data, 100).startswith(f"{len(data)} bytes\n")
