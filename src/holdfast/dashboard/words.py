"""How instants, lengths, numbers and names are said on a page. Pure."""

from __future__ import annotations

import math
from urllib.parse import quote

from markupsafe import Markup, escape

from holdfast.clock import Micros, moment, seconds
from holdfast.scope import ScopeSettings
from holdfast.scopes import rate_text

LINE_MAX = 160
BASE = "/ui"
_STEPS = (1, 1.6, 2, 3, 4, 6, 8, 10)
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def span(length_s: float) -> str:
    """A length in the unit a person would choose: `0.4 s`, `12 s`, `3 min`, `2 d`."""
    for size, unit in _UNITS:
        if length_s >= size * 2:
            return f"{length_s / size:.0f} {unit}"
    return f"{length_s:.0f} s" if length_s >= 10 else f"{length_s:.1f} s"


def full(at: Micros) -> str:
    """The whole instant."""
    return moment(at).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def when(at: Micros | None, now: Micros) -> Markup:
    """`12 s ago` or `in 3 min`, with the whole instant at hand; the page keeps it true."""
    if at is None:
        return Markup('<span class="none">none</span>')
    distance = seconds(now - at)
    if abs(distance) < 1:
        text = "now"
    else:
        text = f"{span(distance)} ago" if distance > 0 else f"in {span(-distance)}"
    html = '<time datetime="{}" title="{}" data-at="{}">{}</time>'
    return Markup(html).format(moment(at).isoformat(), full(at), at // 1000, text)


def lasting(at: Micros | None, now: Micros) -> Markup:
    """How long since an instant, or until it: `12 s`; the page keeps it true."""
    if at is None:
        return Markup('<span class="none">none</span>')
    html = '<time datetime="{}" title="{}" data-at="{}" data-plain>{}</time>'
    text = span(abs(seconds(now - at)))
    return Markup(html).format(moment(at).isoformat(), full(at), at // 1000, text)


def number(value: float) -> str:
    """With thin spaces between thousands; one digit after the point where it is small."""
    if value != int(value) and abs(value) < 100:
        return f"{value:.1f}"
    return f"{round(value):,}".replace(",", "\u2009")


def many(value: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number(value)} {noun}" if value == 1 else f"{number(value)} {noun}s"


def lasted(length_us: Micros) -> str:
    """A length as exactly as one wants to know it of a run: `4 ms`, `1.25 s`, `3 min`."""
    length_s = seconds(length_us)
    if length_s < 1:
        return f"{length_s * 1000:.0f} ms"
    return f"{length_s:.2f} s" if length_s < 10 else span(length_s)


def ceiling(value: float) -> float:
    """The round number at or above: one that has a plain half."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in _STEPS if value <= step * size * 1.000001)


def short(text: str | None, most: int = LINE_MAX) -> str:
    """The last line, cut: of an error, the line that names it."""
    lines = (text or "").strip().splitlines() or [""]
    return lines[-1] if len(lines[-1]) <= most else f"{lines[-1][: most - 1]}…"


def link(*parts: str) -> str:
    """A path of the dashboard; each part is one segment, whatever is in it.

    A browser takes `.` and `..` for steps even when they are encoded, so a tilde goes before them.
    """
    return "/".join([BASE, *(quote(_safe(part), safe="") for part in parts)])


def _safe(part: str) -> str:
    return f"~{part}" if part in (".", "..") or part.startswith("~") else part


def unlink(part: str) -> str:
    """The name that `link` made a segment of; a NUL stands for a slash that was encoded."""
    return part.replace("\x00", "/").removeprefix("~")


def limits(settings: ScopeSettings) -> list[str]:
    """Limits and rates in words; a pause is told elsewhere."""
    found = []
    if settings.max_running is not None:
        found.append(f"{number(settings.max_running)} at a time")
    if settings.rate is not None:
        found.append(rate_text(settings.rate))
    if settings.groups is not None:
        if settings.groups.max_running is not None:
            found.append(f"{number(settings.groups.max_running)} of a group")
        if settings.groups.rate is not None:
            found.append(f"{rate_text(settings.groups.rate)} of a group")
        if settings.groups.ordered:
            found.append("groups in order")
    if settings.max_queued is not None:
        found.append(f"{number(settings.max_queued)} may wait")
    if settings.ceiling is not None:
        top = settings.ceiling
        words = [f"{number(top.max_running)} at a time"] if top.max_running else []
        words += [rate_text(top.rate)] if top.rate else []
        found.append(f"ceiling {' and '.join(words)}")
    if settings.weight != 1:
        found.append(f"weight {settings.weight}")
    return found


def chip(state: str) -> Markup:
    """A state: its colour and its word."""
    return Markup('<span class="chip {0}">{0}</span>').format(escape(state))
