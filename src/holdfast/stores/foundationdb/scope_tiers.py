"""Tiers as a store caches them: with the settings of the platform's scopes, under one stamp."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.scope import ScopeKind, ScopeSettings
from holdfast.core.tiers import (
    NO_DEFAULTS,
    PREFIX,
    Defaults,
    chosen_for_groups,
    effective,
    kinds_limited,
    layers_of,
    tier_of,
)
from holdfast.stores.foundationdb.layout import Keys, Space, text, texts
from holdfast.stores.foundationdb.overlay import Overlay
from holdfast.stores.foundationdb.rows import pack, setting_of
from holdfast.stores.readable import decode_tier

KEPT_MAX = 10_000
"""Different settings that are kept with the values of tiers filled in."""
OF_TIER, OF_TENANT = b"\0", b"\1"
"""The parts of TIER_RATES."""


class RatesChange(NamedTuple):
    """When the rates that tenants have from tiers were changed; a later one has a higher number."""

    number: int
    at: Micros


NEVER = RatesChange(0, 0)


class Look(msgspec.Struct, frozen=True, array_like=True):
    """A mark in TIER_LOOKS: of what kinds claims look at what rests in a tier, and how far they
    have come.
    """

    lines: bool
    groups: bool
    tenant: str = ""
    """The last one that they have looked at."""
    again: bool = False
    """Whether this is a later round, over the tenants of TIER_LEFT."""


class Tiers:
    """The values of all tiers, "" for the platform's defaults, at one version."""

    def __init__(
        self,
        values: dict[str, Defaults],
        rates: dict[str, RatesChange],
        looks: dict[str, Look],
    ) -> None:
        self.values = values
        self.rates = rates
        self.looks = looks
        """Their places may be behind those that are stored."""
        self.limits_all = bool(kinds_limited(NO_DEFAULTS, values.get("", NO_DEFAULTS)))
        """Whether the defaults limit tenants without settings."""
        self._counting: dict[tuple[ScopeSettings, ScopeKind, str], ScopeSettings] = {}

    def fill_in(self, own: ScopeSettings, kind: ScopeKind, tier: str) -> ScopeSettings:
        """The settings that count for a scope of a tenant in a tier."""
        if not self.values or kind is ScopeKind.GROUP:
            return own
        key = own, kind, tier
        found = self._counting.get(key)
        if found is None:
            if len(self._counting) >= KEPT_MAX:
                self._counting.clear()
            found = self._counting[key] = effective(own, kind, layers_of(tier or None, self.values))
        return found

    def group_values(self, tier: str) -> list[object]:
        """What the groups of tenants in a tier have from it, and from the defaults."""
        found = chosen_for_groups(None, layers_of(tier or None, self.values))
        return [each.value for each in found.values()]

    def change_for(self, tier: str) -> RatesChange:
        """The last change of rates that tenants in a tier have from it, or from the defaults."""
        return max(self.rates.get(tier, NEVER), self.rates.get("", NEVER))


NO_TIERS = Tiers({}, {}, {})

_look = msgspec.msgpack.Decoder(Look)
_change = msgspec.msgpack.Decoder(RatesChange)


async def read_tiers(step: Overlay, keys: Keys) -> Tiers:
    """The tiers as they are stored, with what this step has written."""
    settings, rates = keys.all(Space.SETTINGS, text(PREFIX)[:-1]), keys.all(Space.TIER_RATES)
    rates += OF_TIER
    looks = keys.all(Space.TIER_LOOKS)
    for prefix in (settings, rates, looks):
        step.ask_under(prefix, 0)
    values = dict[str, Defaults]()
    for key, value in await step.under(settings):
        stored = setting_of(keys, key, value)
        if stored.value is not None:
            values[tier_of(stored.name) or ""] = decode_tier(stored.name, stored.value)
    changes = {_name(key, rates): _change.decode(value) for key, value in await step.under(rates)}
    marks = {_name(key, looks): look_of(value) for key, value in await step.under(looks)}
    return Tiers(values, changes, marks) if values or changes or marks else NO_TIERS


async def read_moved(step: Overlay, keys: Keys, tenant: str) -> RatesChange:
    """When a tenant was put into its tier."""
    found = await step.get(keys.all(Space.TIER_RATES, OF_TENANT, text(tenant)))
    return NEVER if found is None else _change.decode(found)


def put_rates(step: Overlay, key: bytes, number: int, at: Micros) -> None:
    """Records a change of rates under its key."""
    step.put(key, pack(RatesChange(number, at)))


def look_of(value: bytes) -> Look:
    return _look.decode(value)


def _name(key: bytes, prefix: bytes) -> str:
    [name] = texts(key[len(prefix) :], 1)
    return name
