"""Text for instants, durations, numbers and names on a page. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

from holdfast.core.clock import Micros, moment, seconds
from holdfast.core.mapped import told
from holdfast.core.rate import Rate
from holdfast.core.scope import NO_RULES, ScopeKind, ScopeSettings
from holdfast.core.tiers import PLATFORM, Effective, Layer, chosen, chosen_for_groups
from holdfast.scopes import rate_text

LINE_MAX = 160
BASE = "/ui"
_STEPS = (1, 1.6, 2, 3, 4, 6, 8, 10)
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_TEXTS = {
    "max_running": "at most {} running",
    "rate": "{}",
    "weight": "weight {}",
    "max_queued": "at most {} waiting",
    "max_bytes": "at most {} bytes",
}
_GROUP_TEXTS = {"max_running": "at most {} per group", "rate": "{} per group"}


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
    lines = told(text or "").strip().splitlines() or [""]
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


class Limit(msgspec.Struct, frozen=True):
    """A limit that counts, and the layer that gave it; empty where there are no layers: without
    tiers and defaults all limits are the scope's own.
    """

    text: str
    layer: str = ""


def limits(
    own: ScopeSettings, kind: ScopeKind = ScopeKind.QUEUE, layers: Sequence[Layer] = ()
) -> list[Limit]:
    """The limits that count for a scope, given its own settings and the layers below them."""
    layered = bool(layers)
    found = _limits(chosen(own, kind, layers), _TEXTS, layered)
    if kind is ScopeKind.QUEUE:
        found += _limits(chosen_for_groups(own.groups, layers), _GROUP_TEXTS, layered)
        if (own.groups or NO_RULES).ordered:
            found.append(Limit("groups in order"))
    if own.ceiling is not None:
        top = own.ceiling
        words = [f"{number(top.max_running)} running"] if top.max_running else []
        words += [rate_text(top.rate)] if top.rate else []
        found.append(Limit(f"ceiling {' and '.join(words)}"))
    return found


def _limits(found: Mapping[str, Effective], texts: Mapping[str, str], layered: bool) -> list[Limit]:
    said = ((text, found[field]) for field, text in texts.items() if field in found)
    return [
        Limit(_filled(text, one.value), _layer(one) if layered else "")
        for text, one in said
        if one.value is not None
    ]


def _layer(one: Effective) -> str:
    name = "defaults" if one.layer == PLATFORM else one.layer
    return f"ceiling of {name}" if one.ceiling else name


def values(rules: object) -> list[str]:
    """What one layer sets, as text."""
    said = ((text, getattr(rules, field, None)) for field, text in _TEXTS.items())
    return [_filled(text, value) for text, value in said if value is not None]


def _filled(text: str, value: Any) -> str:
    return text.format(rate_text(value) if isinstance(value, Rate) else number(value))


def chip(state: str) -> Markup:
    """A state with its colour."""
    return Markup('<span class="chip {0}">{0}</span>').format(escape(state))
