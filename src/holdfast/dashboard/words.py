"""Text for instants, durations, numbers and names on a page. Pure."""

from __future__ import annotations

import math
from urllib.parse import quote

from markupsafe import Markup, escape

from holdfast.core.clock import Micros, moment, seconds
from holdfast.core.scope import ScopeSettings
from holdfast.scopes import rate_text

LINE_MAX = 160
BASE = "/ui"
_STEPS = (1, 1.6, 2, 3, 4, 6, 8, 10)
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def span(length_s: float) -> str:
    """A duration in a readable unit: `0.4 s`, `12 s`, `3 min`, `2 d`."""
    for size, unit in _UNITS:
        if length_s >= size * 2:
            return f"{length_s / size:.0f} {unit}"
    return f"{length_s:.0f} s" if length_s >= 10 else f"{length_s:.1f} s"


def full(at: Micros) -> str:
    """The complete instant."""
    return moment(at).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"


def when(at: Micros | None, now: Micros) -> Markup:
    """`12 s ago` or `in 3 min`, with the complete instant as a tooltip; the page updates it."""
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
    """The time since an instant or until it: `12 s`; the page updates it."""
    if at is None:
        return Markup('<span class="none">none</span>')
    html = '<time datetime="{}" title="{}" data-at="{}" data-plain>{}</time>'
    text = span(abs(seconds(now - at)))
    return Markup(html).format(moment(at).isoformat(), full(at), at // 1000, text)


def number(value: float) -> str:
    """A number with thin spaces between thousands, and one decimal if it is small."""
    if value != int(value) and abs(value) < 100:
        return f"{value:.1f}"
    return f"{round(value):,}".replace(",", "\u2009")


def many(value: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number(value)} {noun}" if value == 1 else f"{number(value)} {noun}s"


def lasted(length_us: Micros) -> str:
    """The duration of a run in suitable precision: `4 ms`, `1.25 s`, `3 min`."""
    length_s = seconds(length_us)
    if length_s < 1:
        return f"{length_s * 1000:.0f} ms"
    return f"{length_s:.2f} s" if length_s < 10 else span(length_s)


def ceiling(value: float) -> float:
    """The next round number at or above, whose half is round too."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in _STEPS if value <= step * size * 1.000001)


def short(text: str | None, most: int = LINE_MAX) -> str:
    """The last line (of a traceback: the one with the error), cut."""
    lines = (text or "").strip().splitlines() or [""]
    return lines[-1] if len(lines[-1]) <= most else f"{lines[-1][: most - 1]}…"


def link(*parts: str) -> str:
    """A path of the dashboard. Each part is one segment, whatever it contains.

    A browser resolves `.` and `..` even if they are encoded, so they get a leading tilde.
    """
    return "/".join([BASE, *(quote(_safe(part), safe="") for part in parts)])


def _safe(part: str) -> str:
    return f"~{part}" if part in (".", "..") or part.startswith("~") else part


def unlink(part: str) -> str:
    """The name in a segment made by `link`. A NUL stands for an encoded slash."""
    return part.replace("\x00", "/").removeprefix("~")


def limits(settings: ScopeSettings) -> list[str]:
    """Limits and rates as text, without the pause."""
    found = []
    if settings.max_running is not None:
        found.append(f"at most {number(settings.max_running)} running")
    if settings.rate is not None:
        found.append(rate_text(settings.rate))
    if settings.groups is not None:
        if settings.groups.max_running is not None:
            found.append(f"at most {number(settings.groups.max_running)} per group")
        if settings.groups.rate is not None:
            found.append(f"{rate_text(settings.groups.rate)} per group")
        if settings.groups.ordered:
            found.append("groups in order")
    if settings.max_queued is not None:
        found.append(f"at most {number(settings.max_queued)} waiting")
    if settings.ceiling is not None:
        top = settings.ceiling
        words = [f"{number(top.max_running)} running"] if top.max_running else []
        words += [rate_text(top.rate)] if top.rate else []
        found.append(f"ceiling {' and '.join(words)}")
    if settings.weight is not None:
        found.append(f"weight {settings.weight}")
    if settings.tier is not None:
        found.append(f"tier {settings.tier}")
    return found


def chip(state: str) -> Markup:
    """A state with its colour."""
    return Markup('<span class="chip {0}">{0}</span>').format(escape(state))
