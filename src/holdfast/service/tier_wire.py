"""The shapes of the native API for tiers, the platform's defaults, and the values that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from holdfast.core.tiers import Defaults
from holdfast.fields import Strict
from holdfast.service.scope_wire import CeilingIn
from holdfast.service.shapes import Out


class EffectiveOut(Out):
    """A value that counts, and the layer that gave it: own, tier NAME, platform or built-in."""

    value: Any
    """A number, a rate, the rules for groups, or null."""
    layer: str
    ceiling: bool = False
    """Whether it is the ceiling of that layer, which bounds what the tenant set."""


class EffectivesOut(Out):
    """Each value that counts for a scope."""

    effective: Mapping[str, EffectiveOut]


class TierOut(Out):
    """What a tier sets, and its version; 0: there is none."""

    tier: str
    """Empty for the platform's defaults."""
    defaults: Defaults
    version: int


class TiersOut(Out):
    tiers: Sequence[TierOut]


class EachIn(Strict):
    """The limits of each queue, or of each group, of a tenant."""

    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class TierIn(Strict):
    """The changes. null removes a value; fields that are not named stay unchanged."""

    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Fails unless this is the current version."""
    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    max_queued: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    max_bytes: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    ceiling: CeilingIn | UnsetType | None = UNSET
    queue: EachIn | UnsetType | None = UNSET
    group: EachIn | UnsetType | None = UNSET
