"""Ceilings: what the platform sets for a tenant, and what the tenant may set below it. Pure.

A tenant's own tokens may change limits, pause and order its scopes. They may not change what the
platform set: weight, caps, ceilings, and pauses of the platform. If a ceiling is set, its limit is
always set too and never above the ceiling, so that stores need to check only the limit:

- a limit that is not set, or is removed, gets the value of the ceiling;
- a limit equal to the ceiling changes with it, and is removed with it;
- a limit above a new ceiling is lowered to it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.errors import InvalidInput, PlatformOnly
from holdfast.core.rate import Rate
from holdfast.core.scope import Ceiling, Pause, ScopeSettings

NO_CEILING = Ceiling()
RESERVED = ("weight", "max_queued", "max_bytes", "ceiling", "tier")
"""Settings of a scope that only the platform may change."""
LIMITED = ("max_running", "rate")
"""Settings that a ceiling bounds."""


def allowed(before: ScopeSettings, after: ScopeSettings, *, platform: bool) -> ScopeSettings:
    """The settings to store when a caller wants to change `before` to `after`.

    Raises PlatformOnly for a setting that only the platform may change, and InvalidInput for a
    limit above its ceiling.
    """
    if after == before:
        return before
    if not platform:
        for field in RESERVED:
            if getattr(after, field) != getattr(before, field):
                raise PlatformOnly(field=field, why="can be set only by the platform")
    paused = _paused(before.paused, after.paused, platform=platform)
    return msgspec.structs.replace(_below(before, after), paused=paused)


def _paused(before: Pause | None, after: Pause | None, *, platform: bool) -> Pause | None:
    """The pause, marked as the platform's only if the caller is the platform."""
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
    """The limit to store, given (limit, ceiling) before and after."""
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
    """Whether a limit allows more than its ceiling, in rate or in burst."""
    if isinstance(limit, Rate):
        faster = limit.count * top.per_us > top.count * limit.per_us
        return bool(faster or limit.burst > top.burst)
    return bool(limit > top)


def _words(limit: Any) -> str:
    return limit.words if isinstance(limit, Rate) else str(limit)
