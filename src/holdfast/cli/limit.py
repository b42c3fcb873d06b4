"""`holdfast limit TENANT`: how much may run, how fast, and how much may wait."""

from __future__ import annotations

from typing import Any

import click

from holdfast import operate
from holdfast.amend import Limits
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import one_of, scope_options, settings_words, state_data
from holdfast.cli.show import counts_data, print_json
from holdfast.cli.signing import signed
from holdfast.cli.values import none_or_whole, yes_or_no
from holdfast.job import By
from holdfast.plural import many
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


def _options(function: Any) -> Any:
    for option in (
        click.option("--max-running", type=none_or_whole, metavar="N|none", help="Jobs at a time."),
        click.option("--rate", metavar="N/UNIT|none", help="Starts: 100/s, 60/m, 1000/h, 5/d."),
        click.option("--burst", type=int, metavar="N", help="Starts at once, of the rate."),
        click.option("--weight", type=int, metavar="N", help="Of a tenant: its part of a claim."),
        click.option("--max-queued", type=none_or_whole, metavar="N|none", help="Of a tenant."),
        click.option("--max-bytes", type=none_or_whole, metavar="N|none", help="Of a tenant."),
        click.option("--ordered", type=yes_or_no, metavar="yes|no|none", help="Of a group."),
        click.option("--slots-count", type=yes_or_no, metavar="yes|no", help="Slots take places."),
        click.option("--group-max-running", type=none_or_whole, metavar="N|none", help=_GROUPS),
        click.option("--group-rate", metavar="N/UNIT|none", help=_GROUPS),
        click.option("--group-burst", type=int, metavar="N", help=_GROUPS),
        click.option("--group-ordered", type=yes_or_no, metavar="yes|no|none", help=_GROUPS),
        click.option("--ceiling-running", type=none_or_whole, metavar="N|none", help=_CEILING),
        click.option("--ceiling-rate", metavar="N/UNIT|none", help=_CEILING),
        click.option("--ceiling-burst", type=int, metavar="N", help=_CEILING),
        click.option("--expect", type=int, metavar="VERSION", help="Refuse if it is another."),
        click.option("--show", is_flag=True, help="Only show what is set."),
    )[::-1]:
        function = option(function)
    return function


_GROUPS = "Of a queue: for each of its groups."
_CEILING = "How high the tenant's own tokens may set it."


@click.command("limit")
@scope_options
@_options
@signed
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, /, *, by: By, **given: Any) -> None:
    """Set limits of a tenant, or of a queue or a group of it; they hold at once.

    What is not named stays as it is; `none` takes a limit away. Without options it shows what is
    set.
    """
    where = {name: given.pop(name) for name in ("tenant", "queue", "group")}
    one_of(where["queue"], where["group"])
    show, as_json, expect = given.pop("show"), given.pop("as_json"), given.pop("expect")
    changes = _changes(given)
    if show and changes:
        raise click.UsageError("--show changes nothing: leave the other options out")
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
    """What was said, as `set` takes it."""
    said = {name: _said(value) for name, value in given.items() if value is not None}
    changes: dict[str, Any] = {name: said[name] for name in _PLAIN if name in said}
    for part, names in (("groups", _OF_GROUPS), ("ceiling", _OF_CEILING)):
        if rules := {field: said[name] for name, field in names.items() if name in said}:
            changes[part] = rules
    limits: Limits = changes  # type: ignore[assignment]  # The names are those of the fields.
    return limits


def _said(value: Any) -> Any:
    """None for what was said to be none."""
    return None if value == "none" else value


async def _apply(
    settings: Settings, where: dict[str, Any], changes: Limits, expect: int | None, by: By
) -> tuple[ScopeState, Tally | None]:
    async with opened(settings) as store:
        handle = operate.scope(store, **where)
        state = await (handle.set(expect=expect, by=by, **changes) if changes else handle.get())
        return state, await handle.counts() if store.capabilities.scopes else None
