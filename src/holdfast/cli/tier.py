"""`holdfast tier`: show and set what tenants have unless their own settings say it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import rate_data, rules_words
from holdfast.cli.show import Plain, clean, print_json
from holdfast.cli.signing import signed
from holdfast.cli.values import none_or_whole
from holdfast.core.job import By
from holdfast.core.tiers import Defaults, LimitRules, unknown_tier
from holdfast.tiers import TierState

_EACH = ("queue", "group")
_LIMITS: tuple[tuple[str, Any, str, str], ...] = (
    ("max-running", none_or_whole, "N|none", "Maximum running jobs"),
    ("rate", str, "N/UNIT|none", "Maximum rate of job starts"),
    ("burst", int, "N", "Jobs that may start at once within the rate"),
)
_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    *((f"--{name}", kind, form, f"{text}, of each tenant.") for name, kind, form, text in _LIMITS),
    ("--weight", none_or_whole, "N|none", "Share of each tenant when tenants take turns."),
    ("--max-queued", none_or_whole, "N|none", "Maximum waiting jobs of each tenant."),
    ("--max-bytes", none_or_whole, "N|none", "Maximum bytes of waiting payloads of each tenant."),
    *(
        (f"--{part}-{name}", kind, form, f"{text}, of each {part}.")
        for part in _EACH
        for name, kind, form, text in _LIMITS
    ),
    *(
        (
            f"--ceiling-{name.removeprefix('max-')}",
            kind,
            form,
            f"Highest {name} that a tenant can have.",
        )
        for name, kind, form, _ in _LIMITS
    ),
    ("--expect", int, "VERSION", "Fail unless the current version is VERSION."),
)
_PLAIN = ("max_running", "rate", "burst", "weight", "max_queued", "max_bytes")


def _options(function: Any) -> Any:
    for name, kind, form, text in reversed(_OPTIONS):
        function = click.option(name, type=kind, metavar=form, help=text)(function)
    return function


@click.command("tier")
@click.argument("name", required=False)
@click.option("--defaults", is_flag=True, help="The defaults of all tenants, instead of a tier.")
@click.option("--delete", is_flag=True, help="Delete the tier. No tenant may be in it.")
@_options
@signed
@json_option
@common_options
@click.pass_obj
def command(
    settings: Settings, /, *, name: str | None, defaults: bool, by: By, **given: Any
) -> None:
    """Show or set a tier, or the defaults of all tenants.

    A tier, and after it the defaults, fill in what the own settings of a tenant leave open. A
    change takes effect at once for all tenants. Values that are not named do not change; `none`
    removes a value. Without a name the command shows the defaults and all tiers.

    Put a tenant into a tier by `holdfast limit TENANT --tier NAME`.
    """
    delete, as_json, expect = given.pop("delete"), given.pop("as_json"), given.pop("expect")
    changes = _changes(given)
    if name is not None and defaults:
        raise click.UsageError("name a tier, or --defaults, not both")
    if name is None and not defaults and (changes or delete):
        raise click.UsageError("name a tier, or --defaults")
    if name == "none":  # `limit TENANT --tier none` takes the tenant out of its tier.
        raise click.UsageError("no tier can be named 'none': the word means no tier")
    if delete and (changes or defaults):
        raise click.UsageError("--delete takes the name of a tier and no values")
    every = name is None and not defaults
    if every:
        found = work(_all(settings))
    elif delete:
        found = [work(_delete(settings, name or "", expect, by))]
    else:
        found = [work(_apply(settings, name, changes, expect, by))]
    if as_json:
        print_json({"tiers": [*map(_data, found)]} if every else _data(found[0]))
        return
    for state in found:
        title = f"tier {clean(state.tier)!r}" if state.tier else "defaults"
        said = "deleted" if delete else ", ".join(_words(state.defaults)) or "nothing"
        click.echo(f"{title}: {said}")
    if not found:
        click.echo("no tiers and no defaults")


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """The given options, in the form that `set` takes."""
    said = {
        option: None if value == "none" else value
        for option, value in given.items()
        if value is not None
    }
    changes: dict[str, Any] = {name: said[name] for name in _PLAIN if name in said}
    for part in (*_EACH, "ceiling"):
        prefix = f"{part}_"
        found = {
            "max_running" if option == "ceiling_running" else option.removeprefix(prefix): value
            for option, value in said.items()
            if option.startswith(prefix)
        }
        if found:
            changes[part] = found
    return changes


async def _all(settings: Settings) -> list[TierState]:
    async with opened(settings) as store:
        return await operate.platform(store).tiers()


async def _delete(settings: Settings, tier: str, expect: int | None, by: By) -> TierState:
    async with opened(settings) as store:
        handle = operate.platform(store).tier(tier)
        await handle.delete(expect=expect, by=by)
        return await handle.get()


async def _apply(
    settings: Settings, tier: str | None, changes: dict[str, Any], expect: int | None, by: By
) -> TierState:
    """`tier`: None for the defaults. An empty name, as of an unset variable, is refused."""
    async with opened(settings) as store:
        platform = operate.platform(store)
        handle = platform.defaults() if tier is None else platform.tier(tier)
        if changes:
            return await handle.set(expect=expect, by=by, **changes)
        found = await handle.get()
        if tier is not None and not found.version:
            raise unknown_tier(tier, [one.tier for one in await platform.tiers() if one.tier])
        return found


def _data(state: TierState) -> Plain:
    defaults = state.defaults
    parts = {"queue": defaults.queue, "group": defaults.group, "ceiling": defaults.ceiling}
    return {
        "tier": state.tier,
        "version": state.version,
        "max_running": defaults.max_running,
        **rate_data(defaults.rate),
        "weight": defaults.weight,
        "max_queued": defaults.max_queued,
        "max_bytes": defaults.max_bytes,
        **{
            part: None
            if rules is None
            else {"max_running": rules.max_running, **rate_data(rules.rate)}
            for part, rules in parts.items()
        },
    }


def _words(defaults: Defaults) -> Iterator[str]:
    whole = LimitRules(max_running=defaults.max_running, rate=defaults.rate)
    if whole != LimitRules():
        yield rules_words(whole)
    for name, value in (
        ("weight {}", defaults.weight),
        ("max {} queued", defaults.max_queued),
        ("max {} bytes", defaults.max_bytes),
    ):
        if value is not None:
            yield name.format(value)
    for part, rules in (
        ("each queue", defaults.queue),
        ("each group", defaults.group),
        ("ceiling", defaults.ceiling),
    ):
        if rules is not None:
            yield f"{part}: {rules_words(rules)}"
