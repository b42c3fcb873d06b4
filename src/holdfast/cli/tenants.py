"""`holdfast tenants`: count the jobs of each tenant by state."""

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
from holdfast.operate import TenantTotal
from holdfast.scopes import ScopeState

States = dict[Scope, ScopeState]


@click.command("tenants")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Count the jobs of each tenant by state, and show its limits. Pauses of all tenants follow."""
    totals, states = work(_totals(settings))
    if as_json:
        print_json([_data(total, states) for total in totals])
    elif not totals:
        click.echo("no jobs")
    else:
        heads = (
            "tenant",
            "#queues",
            *(f"#{state.value}" for state in State),
            "#oldest wait",
            "limits",
        )
        print_table(heads, [_row(total, states) for total in totals], keep=("tenant",))
        print_pauses_of_all(states)


async def _totals(settings: Settings) -> tuple[list[TenantTotal], States]:
    async with opened(settings) as store:
        states = await operate.scopes(store) | await operate.scopes(store, "")
        return await operate.tenants(store), states


def _data(total: TenantTotal, states: States) -> dict[str, object]:
    rules = settings_of(states, total.tenant, ScopeKind.TENANT)
    return {
        "tenant": total.tenant,
        "queues": total.queues,
        "counts": counts_data(total.counts),
        "oldest_at": instant_text(total.oldest_at),
        "settings": None if rules is None else settings_data(rules),
    }


def _row(total: TenantTotal, states: States) -> tuple[object, ...]:
    counts = [total.counts.get(state, 0) or "." for state in State]
    rules = settings_of(states, total.tenant, ScopeKind.TENANT)
    words = "" if rules is None else settings_words(rules)
    return total.tenant, total.queues, *counts, waited(total.oldest_at), words
