"""`holdfast limit TENANT`: set and show limits of a tenant, a queue or a group."""

from __future__ import annotations

from typing import Any

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import one_of, scope_options, settings_words, state_data
from holdfast.cli.show import counts_data, print_json
from holdfast.cli.signing import signed
from holdfast.cli.values import none_or_whole, yes_or_no
from holdfast.core.amend import Limits
from holdfast.core.job import By
from holdfast.core.plural import many
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
    ("--weight", int, "N", "Share when tenants take turns (tenants only)."),
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
def command(settings: Settings, /, *, by: By, **given: Any) -> None:
    """Set or show the limits of a tenant, or of one of its queues or groups.

    Limits take effect at once. Limits that are not named do not change; `none` removes a limit.
    Without options the command shows the limits.
    """
    where = {name: given.pop(name) for name in ("tenant", "queue", "group")}
    one_of(where["queue"], where["group"])
    show, as_json, expect = given.pop("show"), given.pop("as_json"), given.pop("expect")
    changes = _changes(given)
    if show and changes:
        raise click.UsageError("--show cannot be combined with options that set limits")
    state, tally = work(_apply(settings, where, changes, expect, by))
    if as_json:
        slots = {} if tally is None else {"counts": counts_data(tally.counts), "slots": tally.slots}
        print_json({**state_data(state), **slots})
        return
    click.echo(f"{words(state.scope)}: {settings_words(state.settings) or 'no limits'}")
    if tally is not None:
        held = "".join(f", {number} {name.value}" for name, number in tally.counts.items())
        click.echo(f"version {state.version}, {many(tally.slots, 'slot')} held{held}")


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
    settings: Settings, where: dict[str, Any], changes: Limits, expect: int | None, by: By
) -> tuple[ScopeState, Tally | None]:
    async with opened(settings) as store:
        handle = operate.scope(store, **where)
        state = await (handle.set(expect=expect, by=by, **changes) if changes else handle.get())
        return state, await handle.counts() if store.capabilities.scopes else None
