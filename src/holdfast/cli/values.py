"""Parsers for option values: durations, instants, lists of names.

They are plain functions for click's `type=`. A value that they refuse is a usage error.
"""

from __future__ import annotations

import re
from datetime import datetime

import click

from holdfast.core.clock import Micros, instant, micros

_LENGTH = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d|w)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def length(text: str) -> float:
    """A duration in seconds, or with a unit: 30, 200ms, 1.5m, 2h, 1d."""
    found = _seconds(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration; write 30, 200ms, 5m, 2h or 1d")
    return found


def moment(text: str) -> datetime:
    """An instant with a time zone, for example 2026-01-31T12:00:00Z."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not an instant; write 2026-01-31T12:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone; add Z or +02:00")
    return at


def past(text: str) -> Micros:
    """An instant with a time zone, or a duration before now: 15m, 2h. A duration is returned as a
    negative number, which `filters.dated` turns into an instant of the store's clock.
    """
    ago = _seconds(text)
    return instant(moment(text)) if ago is None else min(-1, -micros(ago))


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas; `*` means all and is returned as None."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise click.BadParameter(f"{text!r} has an empty name; write a,b or '*'")
    return () if found == ("*",) else found


def none_or_whole(text: str) -> int | str:
    """A whole number, or the word `none`."""
    if text.strip().lower() == "none":
        return "none"
    try:
        return int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a whole number nor 'none'") from None


def yes_or_no(text: str) -> bool | str:
    """`yes`, `no`, or `none` for neither."""
    words: dict[str, bool | str] = {"yes": True, "no": False, "none": "none"}
    if text.strip().lower() not in words:
        raise click.BadParameter(f"{text!r} is not yes, no or none")
    return words[text.strip().lower()]


def _seconds(text: str) -> float | None:
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = found.groups()
    return float(number) * _UNITS[unit or "s"]
