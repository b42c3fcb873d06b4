"""`holdfast queues`: count the jobs of each queue by state."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.scoping import (
    print_pauses_of_all,
    settings_data,
    settings_of,
    settings_words,
)
from holdfast.cli.show import counts_data, instant_text, print_json, print_table, waited
from holdfast.core.job import State
from holdfast.core.scope import Scope, ScopeKind
from holdfast.scopes import ScopeState
from holdfast.store import Tally

States = dict[Scope, ScopeState]


@click.command("queues")
@click.option("--tenant", help="Only queues of this tenant. Default: all tenants.")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, tenant: str | None, as_json: bool) -> None:
    """Count the jobs of each queue by state, and show its limits. Pauses of all tenants follow."""
    tallies, states = work(_tallies(settings, tenant))
    if as_json:
        print_json([_data(tally, states) for tally in tallies])
    elif not tallies:
        click.echo("no jobs")
    else:
        heads = (
            "tenant",
            "queue",
            *(f"#{state.value}" for state in State),
            "#oldest wait",
            "limits",
        )
        print_table(heads, [_row(tally, states) for tally in tallies], keep=("tenant", "queue"))
        print_pauses_of_all(states)


async def _tallies(settings: Settings, tenant: str | None) -> tuple[list[Tally], States]:
    async with opened(settings) as store:
        states = await operate.scopes(store, tenant) | await operate.scopes(store, "")
        return await operate.queues(store, tenant), states


def _data(tally: Tally, states: States) -> dict[str, object]:
    rules = settings_of(states, tally.tenant, ScopeKind.QUEUE, tally.queue)
    return {
        "tenant": tally.tenant,
        "queue": tally.queue,
        "counts": counts_data(tally.counts),
        "oldest_at": instant_text(tally.oldest_at),
        "slots": tally.slots,
        "settings": None if rules is None else settings_data(rules),
    }


def _row(tally: Tally, states: States) -> tuple[object, ...]:
    counts = [tally.counts.get(state, 0) or "." for state in State]
    rules = settings_of(states, tally.tenant, ScopeKind.QUEUE, tally.queue)
    words = "" if rules is None else settings_words(rules)
    return tally.tenant, tally.queue, *counts, waited(tally.oldest_at), words
