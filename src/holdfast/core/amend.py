"""The arguments of a scope's `set`, and the settings that result from them. Pure."""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar

import msgspec

from holdfast.core.ceiling import NO_CEILING
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.rate import Rate, rate
from holdfast.core.scope import NO_RULES, NO_SETTINGS, Ceiling, GroupRules, ScopeSettings
from holdfast.core.tiers import Defaults, LimitRules


class GroupLimits(TypedDict, total=False):
    """The limits that a queue can set for its groups. None removes one."""

    max_running: int | None
    rate: str | Rate | None
    burst: int
    ordered: bool | None


class CeilingLimits(TypedDict, total=False):
    """The ceilings of a scope: how high its tenant may set its limits. None removes one."""

    max_running: int | None
    rate: str | Rate | None
    burst: int


class EachLimits(TypedDict, total=False):
    """The limits that a tier sets for each queue, or each group, of a tenant. None removes one."""

    max_running: int | None
    rate: str | Rate | None
    burst: int


class DefaultLimits(TypedDict, total=False):
    """What `set` of a tier can change. None removes a value; others stay unchanged."""

    max_running: int | None
    rate: str | Rate | None
    burst: int
    weight: int | None
    max_queued: int | None
    max_bytes: int | None
    ceiling: CeilingLimits | Ceiling | None
    """How high the tenants of the tier may set `max_running` and `rate`."""
    queue: EachLimits | LimitRules | None
    """For each queue of a tenant."""
    group: EachLimits | LimitRules | None
    """For each group of a tenant."""


class Limits(TypedDict, total=False):
    """What `set` can change. None removes a limit; fields that are not named stay unchanged."""

    max_running: int | None
    """Maximum running jobs (leases held by workers)."""
    rate: str | Rate | None
    """Maximum rate of job starts: `100/s`, `60/m`, `1000/h`, `5/d`."""
    burst: int
    """How many jobs may start at once within the rate. Default: the number of the rate."""
    slots_count: bool
    """Count held slots against `max_running`."""
    weight: int | None
    """Tenants only: its share when tenants take turns."""
    max_queued: int | None
    """Tenants only: maximum jobs that have not ended."""
    max_bytes: int | None
    """Tenants only: maximum bytes of their payloads."""
    ordered: bool | None
    """Groups only: run jobs one at a time, in the order of their first enqueue."""
    groups: GroupLimits | GroupRules | None
    """Queues only: defaults for the groups of the queue."""
    ceiling: CeilingLimits | Ceiling | None
    """Set by the platform: how high the tenant may set `max_running` and `rate`."""
    tier: str | None
    """Set by the platform, for tenants only: the tier that fills in what these leave open."""


def amended(before: ScopeSettings, changes: dict[str, Any]) -> ScopeSettings:
    """The settings with the named fields changed. Raises InvalidInput for a wrong name or value."""
    _known("", changes, Limits)
    changes = dict(changes)
    if "groups" in changes:
        changes["groups"] = _part("groups", before.groups or NO_RULES, changes["groups"])
    if "ceiling" in changes:
        changes["ceiling"] = _part("ceiling", before.ceiling or NO_CEILING, changes["ceiling"])
    _rated("", before.rate, changes)
    for field, kind in (("slots_count", bool), ("ordered", bool)):
        value = changes.get(field)
        if value is not None and not isinstance(value, kind):
            raise InvalidInput(field=field, why=f"must be true or false, not {value!r}")
    if "slots_count" in changes and changes["slots_count"] is None:
        changes["slots_count"] = NO_SETTINGS.slots_count
    return msgspec.structs.replace(before, **changes)


def amended_defaults(before: Defaults, changes: dict[str, Any]) -> Defaults:
    """The defaults with the named fields changed. Raises InvalidInput for a wrong name or value."""
    _known("", changes, DefaultLimits)
    changes = dict(changes)
    for part, nothing in (("ceiling", NO_CEILING), ("queue", NO_LIMITS), ("group", NO_LIMITS)):
        if part in changes:
            changes[part] = _part(part, getattr(before, part) or nothing, changes[part])
    _rated("", before.rate, changes)
    return msgspec.structs.replace(before, **changes).checked()


P = TypeVar("P", GroupRules, Ceiling, LimitRules)
NO_LIMITS = LimitRules()
_PARTS: dict[str, tuple[type, Any]] = {
    "groups": (GroupLimits, NO_RULES),
    "ceiling": (CeilingLimits, NO_CEILING),
    "queue": (EachLimits, NO_LIMITS),
    "group": (EachLimits, NO_LIMITS),
}


def _part(name: str, before: P, said: Any) -> P | None:
    """A part of the settings with the named fields changed; None if nothing remains set."""
    if said is None or isinstance(said, type(before)):
        return said
    if not isinstance(said, dict):
        kind = type(before).__name__
        raise InvalidInput(field=name, why=f"must be {kind} or a dict, not {said!r}")
    names, nothing = _PARTS[name]
    _known(f"{name}.", said, names)
    changes = dict(said)
    _rated(f"{name}.", before.rate, changes)
    rules = msgspec.structs.replace(before, **changes)
    return None if rules == nothing else rules


def _known(prefix: str, changes: Any, kind: Any) -> None:
    for name in changes:
        if name not in kind.__annotations__:
            hint = did_you_mean(name, kind.__annotations__)
            raise InvalidInput(field=f"{prefix}{name}", why=f"there is no such setting.{hint}")


def _rated(prefix: str, before: Rate | None, changes: dict[str, Any]) -> None:
    """Combines `rate` and `burst` into one Rate."""
    said = changes.get("rate", before)
    burst = changes.pop("burst", None)
    if burst is not None and said is None:
        raise InvalidInput(field=f"{prefix}burst", why="needs a rate; give a rate too")
    if isinstance(said, Rate):
        text = said.checked(f"{prefix}rate").words.partition(" ")[0]
        changes["rate"] = rate(text, said.burst if burst is None else burst)
    elif said is not None:
        changes["rate"] = rate(said, burst, prefix)
