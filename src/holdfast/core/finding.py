"""Findings of `holdfast doctor`. Each store has its own `examine(store)`."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    level: Level
    what: str
    words: str
