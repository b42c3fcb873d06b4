"""SVG charts of a run: bars and lines, drawn with text alone, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from bench.figures import Figures, Run, middle
from bench.peers import OURS, ceiling
from bench.table import number

WIDTH = 760
LEFT = 190
"""Room for the names."""
RIGHT = 90
"""Room for the figures behind the bars."""
BAR, GAP = 18, 8
TOP = 44
PLOT = 220
COLORS = {
    "memory": "#4c8dff",
    "sqlite-full": "#e0883a",
    "sqlite-normal": "#3aa675",
    "postgres": "#b56fd6",
    "redis": "#d65f7a",
}
"""A store has the same one in every chart."""
GREY = "#8a949e"

# Most pages show an image without telling it their theme: the reader's own setting decides.
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.faint { fill: #6a737d; }
.ground { fill: #ffffff; }
.axis { stroke: #c4cad1; stroke-width: 1; fill: none; }
.ours { fill: #2f6feb; }
.other { fill: #a7b1bc; }
.limit { fill: #d9dee4; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.faint { fill: #9aa4ae; }
.ground { fill: #0d1117; }
.axis { stroke: #444c56; }
.ours { fill: #5b93ff; }
.other { fill: #6b7580; }
.limit { fill: #3a424b; }
}
</style>"""


class Bar(msgspec.Struct, frozen=True):
    name: str
    value: float
    kind: str = "other"
    """ours, other, or limit: what an engine can do without a queue."""


class Line(msgspec.Struct, frozen=True):
    name: str
    points: list[tuple[float, float]]


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """One bar for each, its figure behind it."""
    top = max((row.value for row in rows), default=0.0) or 1.0
    room = WIDTH - LEFT - RIGHT
    parts = []
    for place, row in enumerate(rows):
        y = TOP + place * (BAR + GAP)
        length = max(1.0, row.value / top * room)
        parts += [
            _text(LEFT - 8, y + 13, row.name, 'text-anchor="end"'),
            f'<rect class="{row.kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}"'
            ' rx="2"/>',
            _text(LEFT + length + 6, y + 13, number(row.value, 0 if top > 20 else 2)),
        ]
    return _svg(title, unit, TOP + len(rows) * (BAR + GAP) + 8, parts)


def lines(title: str, unit: str, rows: Sequence[Line]) -> str:
    """The first point of each to the left; the x of each point is named below, evenly spaced."""
    marks = sorted({x for row in rows for x, _ in row.points})
    top = max((y for row in rows for _, y in row.points), default=0.0) or 1.0
    left, right, bottom = 60, WIDTH - 150, TOP + PLOT
    step = (right - left) / max(1, len(marks) - 1)
    parts = [f'<path class="axis" d="M{left} {TOP}V{bottom}H{right}"/>']
    parts += [_text(left - 6, TOP + 5, number(top, 0 if top > 20 else 2), 'text-anchor="end"')]
    parts += [
        _text(left + place * step, bottom + 18, number(mark), 'text-anchor="middle"')
        for place, mark in enumerate(marks)
    ]
    labels: list[float] = []
    for row in rows:
        color = COLORS.get(row.name, GREY)
        at = [
            (left + marks.index(x) * step, bottom - y / top * PLOT) for x, y in sorted(row.points)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in at]
        labels.append(_free(at[-1][1], labels))
        parts.append(
            f'<rect x="{right + 12}" y="{labels[-1] - 5:.1f}" width="10" height="10" rx="2"'
            f' fill="{color}"/>'
        )
        parts.append(_text(right + 28, labels[-1] + 4, row.name))
    return _svg(title, unit, bottom + 34, parts)


def _free(y: float, taken: list[float]) -> float:
    """The place nearest to y, within the plot, where no other label stands."""
    places = [y + side * step for step in range(0, PLOT, 15) for side in (1, -1)]
    fit = [each for each in places if TOP <= each <= TOP + PLOT]
    return next((each for each in fit if all(abs(each - other) >= 15 for other in taken)), y)


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'.replace(" >", ">")


def _svg(title: str, unit: str, height: float, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}">'
    )
    ground = f'<rect class="ground" width="{WIDTH}" height="{height:.0f}" rx="6"/>'
    titles = [
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        f'<text class="faint" x="{WIDTH - 12}" y="24" text-anchor="end">{escape(unit)}</text>',
    ]
    return "\n".join([head, STYLE, ground, *titles, *parts, "</svg>"]) + "\n"


# -- the charts of a run ---------------------------------------------------------------------------

CEILINGS = {
    "redis": "Lua claim 100 with lease + ack 100",
    "postgres": "asyncpg claim 1000 + ack of the previous 1000",
    "sqlite": "sqlite3 WAL FULL claim 100",
}
PART = "% of the drain without it"
ENGINES = {"redis": "Redis", "postgres": "PostgreSQL", "sqlite": "SQLite"}


def charts(run: Run) -> Iterator[tuple[str, str]]:
    """(name, SVG) of each that there are figures for."""
    for engine, title in ENGINES.items():
        rows = _beside(run, engine)
        if rows:
            yield f"drain-{engine}", bars(f"Drain on {title}, one worker process", "jobs/s", rows)
    drains = [Bar(one.store, middle(one.drain) or 0.0, "ours") for one in run.stores if one.drain]
    if drains:
        yield "drain", bars("Drain on each store, one worker process", "jobs/s", drains)
    scaled = [
        Line(one.store, [(each.processes, each.per_s) for each in one.scaling])
        for one in run.stores
        if one.scaling
    ]
    if scaled:
        yield "scaling", lines("Drain by several worker processes", "jobs/s", scaled)
    deep = [
        Line(one.store, [(each.queued, each.per_s / one.depth[0].per_s) for each in one.depth])
        for one in run.stores
        if len(one.depth) > 1
    ]
    if deep:
        yield "depth", lines("Drain with more jobs queued", "of the rate with few", deep)
    for one in run.stores:
        if len(one.rules) > 1:
            yield (
                f"rules-{one.store}",
                bars(f"Drain with a rule on, {one.store}", PART, _rules(one)),
            )


def _beside(run: Run, engine: str) -> list[Bar]:
    if run.peers is None:
        return []
    rows = [
        Bar(one.name, one.best_drain, "ours" if one.name in OURS else "other")
        for one in run.peers.rows
        if one.engine == engine and one.best_drain is not None
    ]
    top = ceiling(run.peers, CEILINGS[engine])
    if rows and top is not None:
        rows.append(Bar("no queue around it", top[1], "limit"))
    return sorted(rows, key=lambda row: -row.value)


def _rules(one: Figures) -> list[Bar]:
    """None is measured beside itself too: how far it is from 100 is the noise of the run."""
    return [
        Bar("none (noise)", 100 * (1 - each.lost), "other")
        if each.rule == "none"
        else Bar(each.rule, 100 * (1 - each.lost), "ours")
        for each in one.rules
    ]


def write_charts(run: Run, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, svg in charts(run):
        path = folder / f"{name}.svg"
        path.write_text(svg)
        written.append(path)
    return written
