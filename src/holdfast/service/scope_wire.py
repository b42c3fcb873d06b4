"""The shapes of the native API for scopes: counts, limits, pauses, slots. See `wire.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from holdfast.core.job import State
from holdfast.core.scope import ScopeKind, ScopeSettings
from holdfast.fields import Strict
from holdfast.service.shapes import Out


class TallyOut(Out):
    """The number of jobs of a queue, a group or the tenant in each state."""

    name: str
    counts: Mapping[State, int]
    oldest_at: datetime | None = None
    slots: int = 0


class TalliesOut(Out):
    scopes: Sequence[TallyOut]
    cursor: str | None = None


class ScopeOut(Out):
    """Limits, weight and pause of a scope, and their version; 0: nothing is set."""

    kind: ScopeKind
    name: str
    settings: ScopeSettings
    version: int


class ScopesOut(Out):
    scopes: Sequence[ScopeOut]
    cursor: str | None = None
    """Pass it as `after` to get the next page; missing on the last page."""


class PlatformOut(ScopeOut):
    """Limit, rate and pause over all tenants, and the jobs that run under them."""

    counts: Mapping[State, int]
    """The running jobs of all tenants; empty if nothing is set."""


class GroupRulesIn(Strict):
    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    ordered: bool | UnsetType | None = UNSET


class CeilingIn(Strict):
    """How high a tenant may set the limits of the scope; needs the right platform."""

    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class ScopeIn(Strict):
    """The changes. null removes a limit; fields that are not named stay unchanged."""

    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Fails unless this is the current version."""
    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    slots_count: bool | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    max_queued: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    max_bytes: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    ordered: bool | UnsetType | None = UNSET
    groups: GroupRulesIn | UnsetType | None = UNSET
    ceiling: CeilingIn | UnsetType | None = UNSET
    tier: str | UnsetType | None = UNSET


class PlatformIn(Strict):
    """The changes. null removes a limit; fields that are not named stay unchanged."""

    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """Fails unless this is the current version."""
    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class PauseIn(Strict):
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


class SlotIn(Strict):
    """How long to hold the slot. Holding it again renews it."""

    seconds: Annotated[float, Meta(gt=0)]
    note: Annotated[str, Meta(max_length=1024)] = ""


class SlotOut(Out):
    id: str
    until: datetime | None = None
    note: str = ""


class SlotsOut(Out):
    slots: Sequence[SlotOut]
    cursor: str | None = None
