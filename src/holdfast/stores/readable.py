"""Settings of scopes and tiers as stores decode them: one that cannot be read stops nobody else."""

from __future__ import annotations

from holdfast.core import tiers
from holdfast.core.errors import InvalidInput
from holdfast.core.scope import Ceiling, Pause, ScopeSettings, decode
from holdfast.core.tiers import Defaults

UNREADABLE = ScopeSettings(paused=Pause("its settings cannot be read: put them again", "holdfast"))
"""A scope with unreadable settings is paused, and no other is."""
UNREADABLE_TIER = Defaults(ceiling=Ceiling(max_running=0))
"""A tier that cannot be read lets nothing of its tenants start."""


def decode_settings(name: str, value: bytes) -> ScopeSettings:
    """The stored settings; those of a paused scope if they cannot be read."""
    try:
        return decode(name, value)
    except (InvalidInput, TypeError, ValueError):
        return UNREADABLE


def decode_tier(name: str, value: bytes) -> Defaults:
    """The stored values; those of a tier that lets nothing start if they cannot be read."""
    try:
        return tiers.decode(name, value)
    except (InvalidInput, TypeError, ValueError):
        return UNREADABLE_TIER
