"""Charts as SVG text, drawn on the server from numbers. The style sheet defines the colours."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

from holdfast.dashboard.words import ceiling

WIDTH, HEIGHT = 600, 120
"""Size in units of the drawing; the page scales it."""
Points = Sequence[float | None]


class Line(msgspec.Struct, frozen=True):
    """One series of numbers, with the CSS class that colours it."""

    name: str
    points: Points
    filled: bool = False


class Chart(msgspec.Struct, frozen=True):
    """A chart with its title and texts."""

    svg: Markup
    top: float
    """The number at its upper edge."""


def chart(words: str, lines: Sequence[Line], least: float = 1.0) -> Chart:
    """Lines over the same time. `words` describe the chart for screen readers."""
    known = [point for line in lines for point in line.points if point is not None]
    top = ceiling(max([least, *known]))
    body = [_grid(), *(part for line in lines for part in _drawn(line, top))]
    head = Markup(
        '<svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}" focusable="false">'
    ).format(WIDTH, HEIGHT, words)
    return Chart(head + Markup("".join(body)) + Markup("</svg>"), top)


def _grid() -> str:
    rows = (0.5, HEIGHT / 2, HEIGHT - 0.5)
    return "".join(f'<path class="grid" d="M0 {y:g}H{WIDTH}"/>' for y in rows)


def _drawn(line: Line, top: float) -> list[str]:
    """One path for each stretch without a gap."""
    found = []
    for stretch in _stretches(line.points, top):
        points = " ".join(f"{x:.1f} {y:.1f}" for x, y in stretch)
        if line.filled:
            first, last = stretch[0][0], stretch[-1][0]
            area = f"M{first:.1f} {HEIGHT}L{points}L{last:.1f} {HEIGHT}Z"
            found.append(f'<path class="area {line.name}" d="{area}"/>')
        found.append(f'<path class="line {line.name}" d="M{points}"/>')
    return found


def _stretches(points: Points, top: float) -> list[list[tuple[float, float]]]:
    step = WIDTH / max(1, len(points) - 1)
    found: list[list[tuple[float, float]]] = [[]]
    for number, value in enumerate(points):
        if value is None:
            found.append([])
            continue
        room = HEIGHT - 4  # Keep a line at the edge fully visible.
        found[-1].append((number * step, HEIGHT - 2 - room * min(1.0, value / top)))
    return [
        # A single point is drawn as a short dash, because a path of length 0 is invisible.
        stretch if len(stretch) > 1 else [(stretch[0][0] - step, stretch[0][1]), stretch[0]]
        for stretch in found
        if stretch
    ]


def strip(parts: Sequence[tuple[str, int]]) -> Markup:
    """Shares of a whole as one bar; the page lists them as text beside it."""
    total = sum(count for _, count in parts)
    body, at = [], 0.0
    for name, count in parts:
        if count:
            # Keep small shares visible.
            width = max(3.0, WIDTH * count / total)
            body.append(f'<rect class="{name}" x="{at:.1f}" y="0" width="{width:.1f}" height="8"/>')
            at += width
    head = (
        '<svg class="strip" viewBox="0 0 {:.1f} 8" preserveAspectRatio="none" aria-hidden="true">'
    )
    return Markup(head).format(max(at, 1.0)) + Markup("".join(body)) + Markup("</svg>")
