"""What travels over the native API about scopes: counts, limits, pauses, slots. See `wire.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from holdfast.job import State
from holdfast.scope import ScopeKind, ScopeSettings
from holdfast.service.wire import Out, Strict


class TallyOut(Out):
    """How many jobs a queue, a group or the tenant has in each state."""

    name: str
    counts: Mapping[State, int]
    oldest_at: datetime | None = None
    slots: int = 0


class TalliesOut(Out):
    scopes: Sequence[TallyOut]
    cursor: str | None = None


class ScopeOut(Out):
    """Limits, weight, pause of a scope, and the version to change it from; 0 is nothing set."""

    kind: ScopeKind
    name: str
    settings: ScopeSettings
    version: int


class ScopesOut(Out):
    scopes: Sequence[ScopeOut]
    cursor: str | None = None
    """Pass it as `after` for the next page; not there at the end."""


class GroupRulesIn(Strict):
    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    ordered: bool | UnsetType | None = UNSET


class CeilingIn(Strict):
    """How high a tenant may set the limits of the scope: with the right to platform."""

    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class ScopeIn(Strict):
    """What to change; null takes a limit away, what is not named stays."""

    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    """The version it was read at: refused when somebody changed it since."""
    max_running: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    rate: str | UnsetType | None = UNSET
    burst: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    slots_count: bool | UnsetType = UNSET
    weight: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    max_queued: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    max_bytes: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    ordered: bool | UnsetType | None = UNSET
    groups: GroupRulesIn | UnsetType | None = UNSET
    ceiling: CeilingIn | UnsetType | None = UNSET


class PauseIn(Strict):
    reason: Annotated[str, Meta(min_length=1, max_length=256)]


class SlotIn(Strict):
    """How long to hold the place; holding it again moves the end."""

    seconds: Annotated[float, Meta(gt=0)]
    note: Annotated[str, Meta(max_length=1024)] = ""


class SlotOut(Out):
    id: str
    until: datetime | None = None
    note: str = ""


class SlotsOut(Out):
    slots: Sequence[SlotOut]
    cursor: str | None = None
