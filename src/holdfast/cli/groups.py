"""`holdfast groups TENANT`: list the groups of a tenant that have jobs or slots."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import settings_data, settings_of, settings_words
from holdfast.cli.show import counts_data, print_json, print_table
from holdfast.core.bounds import PAGE_MAX, TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.scopes import ScopeState, supported
from holdfast.store import Tally


@click.command("groups")
@click.argument("tenant")
@click.option("--after", metavar="GROUP", help="Continue after this group.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=50,
    show_default=True,
    help="Maximum entries on the page.",
)
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, tenant: str, after: str | None, limit: int, as_json: bool) -> None:
    """List the groups of a tenant, with counts and limits."""
    check_name("tenant", tenant, TENANT_MAX)
    tallies, states = work(_groups(settings, tenant, after, limit))
    more = tallies[-1].queue if len(tallies) == limit else None
    if as_json:
        print_json({"groups": [_data(one, states) for one in tallies], "after": more})
        return
    if not tallies:
        click.echo("no groups")
        return
    heads = ("group", *(f"#{state.value}" for state in State), "#slots", "limits")
    print_table(heads, [_row(one, states) for one in tallies], keep=("group",))
    if more is not None:
        click.echo(f"\nmore: the same command with --after {more!r}")


async def _groups(
    settings: Settings, tenant: str, after: str | None, limit: int
) -> tuple[list[Tally], dict[Scope, ScopeState]]:
    async with opened(settings) as store:
        supported(store)
        start = None if after is None else (tenant, after)
        found = await store.count(tenant, by=ScopeKind.GROUP, after=start, limit=limit)
        return found, await operate.scopes(store, tenant)


def _data(tally: Tally, states: dict[Scope, ScopeState]) -> dict[str, object]:
    rules = settings_of(states, tally.tenant, ScopeKind.GROUP, tally.queue)
    return {
        "tenant": tally.tenant,
        "group": tally.queue,
        "counts": counts_data(tally.counts),
        "slots": tally.slots,
        "settings": None if rules is None else settings_data(rules),
    }


def _row(tally: Tally, states: dict[Scope, ScopeState]) -> tuple[object, ...]:
    rules = settings_of(states, tally.tenant, ScopeKind.GROUP, tally.queue)
    counts = [tally.counts.get(state, 0) or "." for state in State]
    words = "" if rules is None else settings_words(rules)
    return tally.queue, *counts, tally.slots or ".", words
