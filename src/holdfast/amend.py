"""What `set` may be told of a scope's limits, and the settings that come of it. Pure."""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar

import msgspec

from holdfast.ceiling import NO_CEILING
from holdfast.errors import InvalidInput, did_you_mean
from holdfast.scope import NO_RULES, NO_SETTINGS, Ceiling, GroupRules, Rate, ScopeSettings, rate


class GroupLimits(TypedDict, total=False):
    """What a queue may say for its groups. None takes a rule away."""

    max_running: int | None
    rate: str | Rate | None
    burst: int
    ordered: bool | None


class CeilingLimits(TypedDict, total=False):
    """How high a tenant may set the limits of a scope. None takes a ceiling away."""

    max_running: int | None
    rate: str | Rate | None
    burst: int


class Limits(TypedDict, total=False):
    """What `set` may change. None takes a limit away; what is not named stays."""

    max_running: int | None
    """Jobs that are held by workers at a time."""
    rate: str | Rate | None
    """How many may start in how long: `100/s`, `60/m`, `1000/h`, `5/d`."""
    burst: int
    """How many of them may start at once; as many as the rate's number unless given."""
    slots_count: bool
    """Slots that outsiders hold take places under `max_running`."""
    weight: int
    """Of a tenant: its part of a claim over many."""
    max_queued: int | None
    """Of a tenant: jobs that have not ended."""
    max_bytes: int | None
    """Of a tenant: their payloads."""
    ordered: bool | None
    """Of a group: one at a time, in the order of their first enqueue."""
    groups: GroupLimits | GroupRules | None
    """Of a queue: what its groups have unless they say otherwise."""
    ceiling: CeilingLimits | Ceiling | None
    """By the platform: how high the tenant may set `max_running` and `rate`."""


def amended(before: ScopeSettings, changes: dict[str, Any]) -> ScopeSettings:
    """The settings with what was named changed; InvalidInput for a name or value that is none."""
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
    for field in ("slots_count", "weight"):
        if field in changes and changes[field] is None:
            changes[field] = getattr(NO_SETTINGS, field)
    return msgspec.structs.replace(before, **changes)


P = TypeVar("P", GroupRules, Ceiling)
_PARTS: dict[str, tuple[type, Any]] = {
    "groups": (GroupLimits, NO_RULES),
    "ceiling": (CeilingLimits, NO_CEILING),
}


def _part(name: str, before: P, said: Any) -> P | None:
    """A part of the settings with what was named of it changed; None when nothing is left."""
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
    """Makes one Rate of what was said of `rate` and `burst`."""
    said = changes.get("rate", before)
    burst = changes.pop("burst", None)
    if burst is not None and said is None:
        raise InvalidInput(field=f"{prefix}burst", why="is how a rate bursts; give a rate too")
    if isinstance(said, Rate):
        text = said.checked(f"{prefix}rate").words.partition(" ")[0]
        changes["rate"] = rate(text, said.burst if burst is None else burst)
    elif said is not None:
        changes["rate"] = rate(said, burst)
