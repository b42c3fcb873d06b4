"""`holdfast migrate`: upgrade the schema of a store to the newest version."""

from __future__ import annotations

import click

from holdfast.cli.common import Settings, chosen_store, common_options, json_option, work
from holdfast.cli.show import print_json


@click.command("migrate")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Upgrade the schema of the store to the newest version. Safe to repeat."""
    version = work(chosen_store(settings).migrate())
    if as_json:
        print_json({"version": version})
    else:
        click.echo(f"the schema is at version {version}")
