"""`holdfast tenants`: every customer that has jobs."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.show import counts_data, instant_text, print_json, print_table, waited
from holdfast.job import State
from holdfast.operate import TenantTotal


@click.command("tenants")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Count the jobs of each tenant by state."""
    totals = work(_totals(settings))
    if as_json:
        print_json([_data(total) for total in totals])
    elif not totals:
        click.echo("no jobs")
    else:
        heads = ("tenant", "#queues", *(f"#{state.value}" for state in State), "#oldest wait")
        print_table(heads, [_row(total) for total in totals], keep=("tenant",))


async def _totals(settings: Settings) -> list[TenantTotal]:
    async with opened(settings) as store:
        return await operate.tenants(store)


def _data(total: TenantTotal) -> dict[str, object]:
    return {
        "tenant": total.tenant,
        "queues": total.queues,
        "counts": counts_data(total.counts),
        "oldest_at": instant_text(total.oldest_at),
    }


def _row(total: TenantTotal) -> tuple[object, ...]:
    counts = [total.counts.get(state, 0) or "." for state in State]
    return total.tenant, total.queues, *counts, waited(total.oldest_at)
