"""Tables, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

Row = Sequence[str]


class Table(msgspec.Struct, frozen=True):
    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def lines(heads: Row, rows: Sequence[Row], indent: str = "") -> Iterator[str]:
    """The first column to the left, figures to the right."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        first, *rest = row
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield indent + "  ".join((first.ljust(widths[0]), *cells)).rstrip()


def markdown(heads: Row, rows: Sequence[Row]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|---" + "|---:" * (len(heads) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def number(value: float | None, digits: int = 0) -> str:
    """With thousands apart; nothing where nothing was measured."""
    return "" if value is None else f"{value:,.{digits}f}"
