"""`holdfast keys`: makes keys for `holdfast serve`. A key is shown once; its hash is kept."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.check import check_name
from holdfast.cli.common import json_option
from holdfast.errors import ConfigError, InvalidInput
from holdfast.limits import QUEUE_MAX, TENANT_MAX, TYPE_MAX, WORKER_MAX
from holdfast.service.auth.keys import EVERY_TENANT, NOT_A_TENANTS, hash_of, new_key
from holdfast.service.rights import Right


@click.group("keys")
def command() -> None:
    """Keys for `holdfast serve --keys`."""


@command.command("new")
@click.argument("name")
@click.option("--tenant", required=True, help=f"Whom it acts for; {EVERY_TENANT} is any tenant.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    required=True,
    type=click.Choice([right.value for right in Right]),
    help="What it may do; may be said again.",
)
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be said again.")
@click.option("--type", "types", multiple=True, help="Only this job type; may be said again.")
@json_option
def new(name: str, as_json: bool, **given: Any) -> None:
    """Make a key and print it, with the entry that makes a service know it.

    Nothing is stored: put the entry into the list `keys` of the file that --keys names.
    """
    key = new_key()
    entry = {"name": name, "hash": hash_of(key), "tenant": given["tenant"]}
    entry["rights"] = list(dict.fromkeys(given["rights"]))
    for field in ("queues", "types"):
        if given[field]:
            entry[field] = list(dict.fromkeys(given[field]))
    _check(entry)
    if Right.PLATFORM in entry["rights"] and entry["tenant"] != EVERY_TENANT:
        raise ConfigError(field="right", why=f"{Right.PLATFORM.value}: {NOT_A_TENANTS}")
    if as_json:
        click.echo(json.dumps({"key": key, "entry": entry}, ensure_ascii=False))
        return
    click.echo("The key, which is not shown again:", err=True)
    click.echo(key)
    click.echo("Its entry in the file of keys:", err=True)
    click.echo(json.dumps(entry, ensure_ascii=False))


def _check(entry: dict[str, Any]) -> None:
    try:
        check_name("name", entry["name"], WORKER_MAX)
        check_name("tenant", entry["tenant"], TENANT_MAX)
        for field, most in (("queues", QUEUE_MAX), ("types", TYPE_MAX)):
            for name in entry.get(field, ()):
                check_name(field, name, most)
    except InvalidInput as error:
        raise ConfigError(field=error.field, why=error.why) from None
