"""`holdfast queues`: how many jobs each queue has in each state."""

from __future__ import annotations

import click

from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.show import counts_data, instant_text, print_json, print_table, waited
from holdfast.job import State
from holdfast.store import Tally


@click.command("queues")
@click.option("--tenant", help="Only this tenant's; all tenants without it.")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, tenant: str | None, as_json: bool) -> None:
    """Count the jobs of each queue by state."""
    tallies = work(_tallies(settings, tenant))
    if as_json:
        print_json([_data(tally) for tally in tallies])
    elif not tallies:
        click.echo("no jobs")
    else:
        heads = ("tenant", "queue", *(f"#{state.value}" for state in State), "#oldest wait")
        print_table(heads, [_row(tally) for tally in tallies], keep=("tenant", "queue"))


async def _tallies(settings: Settings, tenant: str | None) -> list[Tally]:
    async with opened(settings) as store:
        return await store.count(tenant)


def _data(tally: Tally) -> dict[str, object]:
    return {
        "tenant": tally.tenant,
        "queue": tally.queue,
        "counts": counts_data(tally.counts),
        "oldest_at": instant_text(tally.oldest_at),
    }


def _row(tally: Tally) -> tuple[object, ...]:
    counts = [tally.counts.get(state, 0) or "." for state in State]
    return tally.tenant, tally.queue, *counts, waited(tally.oldest_at)
