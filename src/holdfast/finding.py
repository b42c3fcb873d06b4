"""What `holdfast doctor` finds, in words. Each store has an `examine(store)` of its own."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    level: Level
    what: str
    words: str
