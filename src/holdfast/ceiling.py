"""What the platform sets on a tenant, and what the tenant may set below it. Pure.

A tenant's own tokens may change limits, pause and order its scopes. They may not change what the
platform set: weight, caps, ceilings, and pauses of the platform. Where a ceiling stands, the limit
beside it is never empty and never above it, so that stores need to look at the limit alone:

- a limit that is not set, or is taken away, is the ceiling;
- a limit that stands at the ceiling follows it, up, down and away;
- a limit above a new ceiling is lowered to it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import InvalidInput, PlatformOnly
from holdfast.scope import Ceiling, Pause, Rate, ScopeSettings

NO_CEILING = Ceiling()
RESERVED = ("weight", "max_queued", "max_bytes", "ceiling")
"""Settings of a scope that only the platform changes."""
LIMITED = ("max_running", "rate")
"""Settings that a ceiling bounds."""


def allowed(before: ScopeSettings, after: ScopeSettings, *, platform: bool) -> ScopeSettings:
    """The settings to store when somebody wants `after` instead of `before`.

    PlatformOnly names what is the platform's alone, InvalidInput a limit that is above its ceiling.
    """
    if after == before:
        return before
    if not platform:
        for field in RESERVED:
            if getattr(after, field) != getattr(before, field):
                raise PlatformOnly(field=field, why="is set by the platform alone")
    paused = _paused(before.paused, after.paused, platform=platform)
    return msgspec.structs.replace(_below(before, after), paused=paused)


def _paused(before: Pause | None, after: Pause | None, *, platform: bool) -> Pause | None:
    """A pause is the platform's if the platform said it, whatever the value says."""
    if after == before:
        return before
    if before is not None and before.platform and not platform:
        raise PlatformOnly(field="paused", why=f"the platform paused it: {before.reason}")
    return None if after is None else msgspec.structs.replace(after, platform=platform)


def _below(before: ScopeSettings, after: ScopeSettings) -> ScopeSettings:
    old, new = before.ceiling or NO_CEILING, after.ceiling or NO_CEILING
    changes = {
        field: _limit(
            field,
            (getattr(before, field), getattr(old, field)),
            (getattr(after, field), getattr(new, field)),
        )
        for field in LIMITED
    }
    return msgspec.structs.replace(after, **changes)


def _limit(field: str, was: tuple[Any, Any], now: tuple[Any, Any]) -> Any:
    """The limit to store, of (limit, ceiling) before and after."""
    (old, old_top), (limit, top) = was, now
    moved = top != old_top
    if moved and limit == old and old is not None and old == old_top:
        return top
    if top is None:
        return limit
    if limit is None or (moved and limit == old and above(limit, top)):
        return top
    if above(limit, top):
        why = f"is {_words(limit)}, above the platform's ceiling of {_words(top)}"
        raise InvalidInput(field=field, why=why)
    return limit


def above(limit: Any, top: Any) -> bool:
    """Whether a limit lets more through than its ceiling: in the long run, or at once."""
    if isinstance(limit, Rate):
        faster = limit.count * top.per_us > top.count * limit.per_us
        return bool(faster or limit.burst > top.burst)
    return bool(limit > top)


def _words(limit: Any) -> str:
    return limit.words if isinstance(limit, Rate) else str(limit)
