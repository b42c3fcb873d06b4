"""Tiers: what tenants, their queues and groups have unless their own settings say otherwise. Pure.

Layers, of which the last one that sets a value counts: what is built in, the platform's defaults,
the tier that the platform has put the tenant into, the tenant's own settings. A ceiling, of any
layer, bounds the result. Stores look a value up when they need it, so that a change of a tier is
one write, however many tenants are in it.

The defaults and each tier are one stored setting (`name_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.bounds import (
    NAME_MAX,
    QUEUED_CAP_MAX,
    RUNNING_CAP_MAX,
    TIERS_MAX,
    WEIGHT_MAX,
)
from holdfast.core.ceiling import above
from holdfast.core.check import check_name, check_whole
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.rate import Rate
from holdfast.core.scope import NO_RULES, Ceiling, GroupRules, ScopeKind, ScopeSettings, scope_of
from holdfast.core.scope import decode as decode_scope

PREFIX = "tier/"
"""Prefix of the settings of tiers. The name after it is empty for the platform's defaults."""
BUILT_IN = "built-in"
PLATFORM = "platform"
OWN = "own"


def name_of(tier: str) -> str:
    """The name of the setting of a tier; "" is for the platform's defaults."""
    return f"{PREFIX}{tier}"


def tier_of(name: str) -> str | None:
    """The tier whose setting has this name; None if it is another name."""
    if not name.startswith(PREFIX):
        return None
    tier = name.removeprefix(PREFIX)
    return check_tier(tier) if tier else tier


def check_tier(tier: str) -> str:
    return check_name("tier", tier, NAME_MAX - len(PREFIX))


class LimitRules(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The limits of each queue, or of each group, of a tenant."""

    max_running: int | None = None
    rate: Rate | None = None


class Defaults(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a layer sets for the tenants in it. None: it says nothing about that."""

    max_running: int | None = None
    rate: Rate | None = None
    weight: int | None = None
    max_queued: int | None = None
    max_bytes: int | None = None
    ceiling: Ceiling | None = None
    queue: LimitRules | None = None
    group: LimitRules | None = None

    def checked(self) -> Defaults:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        for field, most in _CAPS:
            value = getattr(self, field)
            if value is not None:
                check_whole(field, value, 1, most)
        for prefix, rules in (("", self), *((f"{name}.", getattr(self, name)) for name in _PARTS)):
            if rules is not None and rules.max_running is not None:
                check_whole(f"{prefix}max_running", rules.max_running, 1, RUNNING_CAP_MAX)
            if rules is not None and rules.rate is not None:
                rules.rate.checked(f"{prefix}rate")
        for field in _BOUNDED:
            limit, top = getattr(self, field), getattr(self.ceiling, field, None)
            if limit is not None and top is not None and above(limit, top):
                said = [one.words if isinstance(one, Rate) else one for one in (limit, top)]
                raise InvalidInput(field=field, why=f"is {said[0]}, above the ceiling of {said[1]}")
        return self


_CAPS = (("weight", WEIGHT_MAX), ("max_queued", QUEUED_CAP_MAX), ("max_bytes", QUEUED_CAP_MAX))
_PARTS = ("ceiling", "queue", "group")
_BOUNDED = ("max_running", "rate")
_OF_TENANT = ("weight", "max_queued", "max_bytes")
NO_DEFAULTS = Defaults()

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Defaults)


def encode(defaults: Defaults) -> bytes:
    """The defaults in their stored form."""
    return _encoder.encode(defaults)


def decode(name: str, value: bytes) -> Defaults:
    """Decodes a stored setting and checks it. Raises InvalidInput, which names the wrong field."""
    try:
        return _decoder.decode(value).checked()
    except msgspec.MsgspecError as error:
        raise InvalidInput(field=name, why=str(error)) from None


def unknown_tier(tier: str, tiers: Iterable[str]) -> InvalidInput:
    """The error for a tenant that is put into a tier that does not exist."""
    return InvalidInput(
        field="tier", why=f"there is no tier {tier!r}.{did_you_mean(tier, list(tiers))}"
    )


def tier_in_use(tier: str, number: int) -> InvalidInput:
    """The error for the deletion of a tier that tenants are in."""
    tenants = "1 tenant is" if number == 1 else f"{number} tenants are"
    return InvalidInput(field="tier", why=f"{tenants} in {tier!r}; put them into another one first")


def check_puts(
    puts: Iterable[tuple[str, bytes | None]],
    known: Collection[str],
    users_of: Callable[[str], int],
) -> None:
    """Raises InvalidInput if one of these new settings, each a name and a value or None, is no good
    setting of a scope or a tier; puts a tenant into a tier that does not exist after all of them;
    deletes a tier that tenants are in; or if they would make too many tiers.
    """
    after, named = set(known), list[str]()
    for name, value in puts:
        tier = tier_of(name)
        if tier is not None and value is not None:
            decode(name, value)
            after.add(tier)
        elif tier is not None:
            after.discard(tier)
        elif value is not None and scope_of(name) is not None:
            named.append(decode_scope(name, value).tier or "")
    for tier in filter(None, set(known) - after):
        if users := users_of(tier):
            raise tier_in_use(tier, users)
    for tier in filter(None, named):
        if tier not in after:
            raise unknown_tier(tier, filter(None, known))
    if len(after) > TIERS_MAX and after - set(known):
        raise InvalidInput(field="tier", why=f"there are {TIERS_MAX}, and no more may be")


# -- the values that count -------------------------------------------------------------------------


class Layer(msgspec.Struct, frozen=True):
    """The defaults of one layer, and its name for people."""

    name: str
    defaults: Defaults


class Effective(msgspec.Struct, frozen=True):
    """A value that counts, and the layer that gave it."""

    value: Any
    layer: str
    ceiling: bool = False
    """Whether it is the layer's ceiling, not its value."""


def layers_of(tier: str | None, tiers: Mapping[str, Defaults]) -> list[Layer]:
    """The layers of a tenant in this tier, the strongest first, as far as they exist."""
    names = ((f"tier {tier}", tier), (PLATFORM, ""))
    return [Layer(name, tiers[key]) for name, key in names if key is not None and key in tiers]


def effective(own: ScopeSettings, kind: ScopeKind, layers: Sequence[Layer]) -> ScopeSettings:
    """The settings that count for a tenant, or for a queue of it. The strongest layer first."""
    if not layers or kind not in (ScopeKind.TENANT, ScopeKind.QUEUE):
        return own
    found = chosen(own, kind, layers)
    return msgspec.structs.replace(own, **{field: each.value for field, each in found.items()})


def chosen(own: ScopeSettings, kind: ScopeKind, layers: Sequence[Layer]) -> dict[str, Effective]:
    """Each value that counts for a tenant or a queue, with its layer."""
    if kind is ScopeKind.QUEUE:
        rules = [(layer.name, layer.defaults.queue) for layer in layers]
        found = {field: _first(field, own, rules) for field in _BOUNDED}
        found["groups"] = _group_rules(own, layers)
        return found
    whole = [(layer.name, layer.defaults) for layer in layers]
    found = {field: _first(field, own, whole) for field in (*_BOUNDED, *_OF_TENANT)}
    for field in _BOUNDED:
        tops = [(layer.name, layer.defaults.ceiling) for layer in layers]
        top = _first(field, own.ceiling, tops)
        if top.value is not None and (
            found[field].value is None or above(found[field].value, top.value)
        ):
            found[field] = Effective(top.value, top.layer, ceiling=True)
    return found


def chosen_for_groups(own: GroupRules | None, layers: Sequence[Layer]) -> dict[str, Effective]:
    """Each value that counts for the groups of a queue, with its layer."""
    parts = [(layer.name, layer.defaults.group) for layer in layers]
    return {field: _first(field, own, parts) for field in _BOUNDED}


def _first(field: str, own: Any, parts: Sequence[tuple[str, Any]]) -> Effective:
    """The value of the strongest layer that sets the field."""
    for name, part in ((OWN, own), *parts):
        value = getattr(part, field, None)
        if value is not None:
            return Effective(value, name)
    return Effective(None, BUILT_IN)


def _group_rules(own: ScopeSettings, layers: Sequence[Layer]) -> Effective:
    """What a queue sets for its groups, each limit from the strongest layer that has it."""
    found = chosen_for_groups(own.groups, layers)
    rules = msgspec.structs.replace(
        own.groups or NO_RULES, **{field: each.value for field, each in found.items()}
    )
    if own.groups is not None or rules == NO_RULES:
        return Effective(own.groups and rules, BUILT_IN if own.groups is None else OWN)
    return Effective(rules, next(each.layer for each in found.values() if each.value is not None))


# -- what a change concerns ------------------------------------------------------------------------

_LIMITS_OF = {
    ScopeKind.TENANT: (None, "ceiling"),
    ScopeKind.QUEUE: ("queue",),
    ScopeKind.GROUP: ("group",),
}
"""Which parts of the defaults limit the scopes of each kind; None: the defaults themselves."""


def concerned(
    tier: str, before: Defaults, tiers: Mapping[str, Defaults]
) -> dict[str, list[ScopeKind]]:
    """The tiers in which tenants may have other limits after a change of a tier ("": the platform's
    defaults, which concern tenants without a tier, and those whose tier leaves them open), and for
    which kinds of scopes. `tiers` are those after the change.
    """
    after = tiers.get(tier, NO_DEFAULTS)
    layers = {tier: NO_DEFAULTS} if tier else {**tiers, "": NO_DEFAULTS}
    found = {name: kinds_limited(before, after, above) for name, above in layers.items()}
    return {name: kinds for name, kinds in found.items() if kinds}


def kinds_limited(
    before: Defaults, after: Defaults, above: Defaults = NO_DEFAULTS
) -> list[ScopeKind]:
    """The kinds of scopes whose limits may change with a layer, for tenants with a stronger layer
    `above` it.
    """
    return [
        kind
        for kind, parts in _LIMITS_OF.items()
        if any(_differ(*(_part(each, part) for each in (before, after, above))) for part in parts)
    ]


def rates(defaults: Defaults) -> list[Rate | None]:
    """All rates of a layer."""
    parts = (_part(defaults, part) for part in (None, *_PARTS))
    return [getattr(part, "rate", None) for part in parts]


def _part(defaults: Defaults, name: str | None) -> Any:
    return defaults if name is None else getattr(defaults, name)


def _differ(before: Any, after: Any, above: Any) -> bool:
    """Whether a limit differs that a stronger layer leaves open."""
    return any(
        getattr(before, field, None) != getattr(after, field, None)
        and getattr(above, field, None) is None
        for field in _BOUNDED
    )
