"""`holdfast load`: show the backlog and the number of workers it needs."""

from __future__ import annotations

from typing import Any

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.show import instant_text, print_json, span
from holdfast.cli.values import names
from holdfast.core.plural import many
from holdfast.load import WAITING_PER_SLOT, WANTED_MAX, Load
from holdfast.store_clock import StoreClock


@click.command("load")
@click.option("--tenants", type=names, metavar="A,B", help="Only these tenants.")
@click.option("--queues", type=names, metavar="A,B", help="Only these queues.")
@click.option(
    "--waiting-per-slot",
    type=click.IntRange(1),
    default=WAITING_PER_SLOT,
    show_default=True,
    help="Acceptable number of waiting jobs per worker slot.",
)
@click.option(
    "--at-least",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Minimum number of workers.",
)
@click.option(
    "--at-most",
    type=click.IntRange(1),
    default=WANTED_MAX,
    show_default=True,
    help="Maximum number of workers.",
)
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, /, *, as_json: bool, **asked: Any) -> None:
    """Show the runnable backlog, the oldest wait, busy slots and the workers needed."""
    found = work(_load(settings, asked))
    if as_json:
        print_json(_data(found))
        return
    click.echo(f"runnable     {found.runnable} of {many(found.waiting, 'ready job')}")
    click.echo(f"oldest wait  {span(found.oldest_wait_s)}")
    workers = many(found.workers, "worker")
    click.echo(f"slots        {found.running} of {found.slots} busy, {workers}")
    click.echo(f"wanted       {many(found.wanted, 'worker')}")


async def _load(settings: Settings, asked: dict[str, Any]) -> Load:
    # Names given as none ('*') stand for all of them.
    asked = {name: value if value != () else None for name, value in asked.items()}
    async with opened(settings) as store:
        return await operate.load(store, now=await StoreClock(store).look(), **asked)


def _data(found: Load) -> dict[str, object]:
    return {
        "runnable": found.runnable,
        "waiting": found.waiting,
        "oldest_at": instant_text(found.oldest_at),
        "oldest_wait_s": found.oldest_wait_s,
        "workers": found.workers,
        "running": found.running,
        "slots": found.slots,
        "busy": found.busy,
        "wanted": found.wanted,
    }
