"""`holdfast limit`: set and show limits of a tenant, a queue or a group, or of all tenants."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import (
    Where,
    scope_options,
    settings_words,
    state_data,
    value_text,
)
from holdfast.cli.show import Plain, clean, counts_data, print_json
from holdfast.cli.signing import signed
from holdfast.cli.values import none_or_whole, yes_or_no
from holdfast.core.amend import Limits
from holdfast.core.job import By
from holdfast.core.plural import many
from holdfast.core.tiers import BUILT_IN, OWN, PLATFORM, Effective
from holdfast.scopes import ScopeState, words
from holdfast.store import Tally

_PLAIN = (
    "max_running",
    "rate",
    "burst",
    "weight",
    "max_queued",
    "max_bytes",
    "ordered",
    "slots_count",
    "tier",
)
_OF_CEILING = {
    "ceiling_running": "max_running",
    "ceiling_rate": "rate",
    "ceiling_burst": "burst",
}
_OF_GROUPS = {
    "group_max_running": "max_running",
    "group_rate": "rate",
    "group_burst": "burst",
    "group_ordered": "ordered",
}


_GROUPS = "of each group of the queue (queues only)."
_CEILING = "Highest value to which the tenant's own tokens may set"
_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    ("--max-running", none_or_whole, "N|none", "Maximum running jobs."),
    ("--rate", str, "N/UNIT|none", "Maximum rate of job starts: 100/s, 60/m, 1000/h, 5/d."),
    ("--burst", int, "N", "Jobs that may start at once within the rate."),
    ("--weight", none_or_whole, "N|none", "Share when tenants take turns (tenants only)."),
    ("--tier", str, "NAME|none", "Put the tenant into this tier, or into none (tenants only)."),
    ("--max-queued", none_or_whole, "N|none", "Maximum waiting jobs (tenants only)."),
    ("--max-bytes", none_or_whole, "N|none", "Maximum bytes of waiting payloads (tenants only)."),
    ("--ordered", yes_or_no, "yes|no|none", "Run jobs one at a time, in order (groups only)."),
    ("--slots-count", yes_or_no, "yes|no", "Count held slots against max-running."),
    ("--group-max-running", none_or_whole, "N|none", f"Maximum running jobs {_GROUPS}"),
    ("--group-rate", str, "N/UNIT|none", f"Maximum rate {_GROUPS}"),
    ("--group-burst", int, "N", f"Burst {_GROUPS}"),
    ("--group-ordered", yes_or_no, "yes|no|none", f"Order {_GROUPS}"),
    ("--ceiling-running", none_or_whole, "N|none", f"{_CEILING} max-running."),
    ("--ceiling-rate", str, "N/UNIT|none", f"{_CEILING} rate."),
    ("--ceiling-burst", int, "N", f"{_CEILING} burst."),
    ("--expect", int, "VERSION", "Fail unless the current version is VERSION."),
)


def _options(function: Any) -> Any:
    function = click.option("--show", is_flag=True, help="Show the limits; change nothing.")(
        function
    )
    for name, kind, metavar, text in reversed(_OPTIONS):
        function = click.option(name, type=kind, metavar=metavar, help=text)(function)
    return function


@click.command("limit")
@scope_options
@_options
@signed
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, /, *, where: Where, by: By, **given: Any) -> None:
    """Set or show the limits of a tenant, of one of its queues or groups, or of all tenants.

    Limits take effect at once. Limits that are not named do not change; `none` removes a limit.
    Without options the command shows the limits.

    --platform limits all tenants together: the whole store, a queue (--queue) or a job type
    (--type). It takes --max-running, --rate and --burst.
    """
    show, as_json, expect = given.pop("show"), given.pop("as_json"), given.pop("expect")
    changes = _changes(given)
    if show and changes:
        raise click.UsageError("--show cannot be combined with options that set limits")
    found = work(_apply(settings, where, changes, expect, by))
    if as_json:
        print_json(_data(found))
        return
    _print(found)


class _Found(msgspec.Struct, frozen=True):
    """What is set now."""

    state: ScopeState
    tally: Tally | None
    parts: list[ScopeState] | None
    """The queues and types of the platform with settings; None if they were not asked for."""
    effective: dict[str, Effective]
    """The values that count; empty if the store has no tiers."""


def _data(found: _Found) -> Plain:
    plain = state_data(found.state)
    if found.tally is not None:
        plain |= {"counts": counts_data(found.tally.counts), "slots": found.tally.slots}
    if found.effective:
        plain |= {"effective": {field: _counts(one) for field, one in found.effective.items()}}
    if found.parts is not None:
        plain |= {"scopes": [state_data(state) for state in found.parts]}
    return plain


def _counts(one: Effective) -> Plain:
    return {"value": value_text(one.value), "layer": one.layer, "ceiling": one.ceiling}


def _layer(one: Effective) -> str:
    name = "the defaults" if one.layer == PLATFORM else one.layer
    return f"the ceiling of {name}" if one.ceiling else name


def _print(found: _Found) -> None:
    _print_settings(found.state)
    for field, one in found.effective.items():
        if one.ceiling or one.layer not in (OWN, BUILT_IN):
            click.echo(f"from {clean(_layer(one))}: {field} {value_text(one.value)}")
    if found.tally is not None:
        counts = [f"{number} {name.value}" for name, number in found.tally.counts.items()]
        if not found.state.scope.of_platform:
            counts.insert(0, f"{many(found.tally.slots, 'slot')} held")
        click.echo(", ".join([f"version {found.state.version}", *counts]))
    for state in found.parts or ():
        _print_settings(state)


def _print_settings(state: ScopeState) -> None:
    click.echo(f"{words(state.scope)}: {settings_words(state.settings) or 'no limits'}")


def _changes(given: dict[str, Any]) -> Limits:
    """The given options, in the form that `set` takes."""
    said = {name: _said(value) for name, value in given.items() if value is not None}
    changes: dict[str, Any] = {name: said[name] for name in _PLAIN if name in said}
    for part, names in (("groups", _OF_GROUPS), ("ceiling", _OF_CEILING)):
        if rules := {field: said[name] for name, field in names.items() if name in said}:
            changes[part] = rules
    limits: Limits = changes  # type: ignore[assignment]  # The names are those of the fields.
    return limits


def _said(value: Any) -> Any:
    """None for the word `none`, else the value."""
    return None if value == "none" else value


async def _apply(
    settings: Settings, where: Where, changes: Limits, expect: int | None, by: By
) -> _Found:
    async with opened(settings) as store:
        handle = where.handle(settings, store)
        if changes:
            state = await handle.set(expect=expect, by=by, **changes)
        else:
            state = await handle.get()
        tally = await handle.counts() if store.capabilities.scopes else None
        effective = await handle.effective() if store.capabilities.tiers else {}
        if changes or not where.whole_platform:
            return _Found(state, tally, None, effective)
        scopes = await operate.scopes(store, "")
        parts = [one for scope, one in scopes.items() if scope != handle.scope]
        return _Found(state, tally, parts, effective)
