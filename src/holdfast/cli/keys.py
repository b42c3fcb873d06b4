"""`holdfast keys`: make keys for `holdfast serve`. A key is shown once; only its hash is kept."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli.common import json_option
from holdfast.core.bounds import QUEUE_MAX, TENANT_MAX, TYPE_MAX, WORKER_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import ConfigError, InvalidInput
from holdfast.service.auth.keys import EVERY_TENANT, NOT_A_TENANTS, hash_of, new_key
from holdfast.service.rights import Right


@click.group("keys")
def command() -> None:
    """Make keys for `holdfast serve --keys`."""


@command.command("new")
@click.argument("name")
@click.option(
    "--tenant",
    required=True,
    help=f"The tenant that the key acts for; {EVERY_TENANT} means every tenant.",
)
@click.option(
    "--right",
    "rights",
    multiple=True,
    required=True,
    type=click.Choice([right.value for right in Right]),
    help="A right of the key. Repeatable.",
)
@click.option(
    "--queue", "queues", multiple=True, help="Restrict the key to this queue. Repeatable."
)
@click.option(
    "--type", "types", multiple=True, help="Restrict the key to this job type. Repeatable."
)
@json_option
def new(name: str, as_json: bool, **given: Any) -> None:
    """Make a key, and print it with its entry for the key file.

    Nothing is stored. Add the entry to the list `keys` of the file given to `serve --keys`.
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
    click.echo("Key (it is not shown again):", err=True)
    click.echo(key)
    click.echo("Entry for the key file:", err=True)
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
