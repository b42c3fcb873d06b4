"""`holdfast encryption`: the keys of tenants: list, rotate, wrap anew, erase."""

from __future__ import annotations

import base64
import json
import os

import click

from holdfast.cli.common import Settings, common_options, json_option, opened, tell, work
from holdfast.cli.show import instant_text, print_json, print_table
from holdfast.cli.values import length
from holdfast.core.plural import many
from holdfast.encryption import KeyState, stored_ring
from holdfast.encryption.masters import check_key_id
from holdfast.encryption.sealed import KEY_BYTES


@click.group("encryption")
def command() -> None:
    """Manage the keys that encrypt what the jobs of tenants carry. The master keys are those of
    HOLDFAST_ENCRYPTION_KEYS, or of the app.
    """


@command.command("new-key")
@click.argument("id")
@json_option
def new_key(id: str, as_json: bool) -> None:
    """Make a master key with this id, in the form of HOLDFAST_ENCRYPTION_KEYS. It is not stored."""
    secret = base64.b64encode(os.urandom(KEY_BYTES)).decode()
    word = f"{check_key_id('id', id)}:{secret}"
    click.echo(json.dumps({"id": id, "key": word}) if as_json else word)


@command.command("list")
@json_option
@common_options
@click.pass_obj
def listed(settings: Settings, as_json: bool) -> None:
    """List the keys of each tenant, the newest first, with their master keys. No key is shown."""
    states = work(_states(settings))
    if as_json:
        print_json([_data(state) for state in states])
    elif not states:
        click.echo("no keys")
    else:
        heads = ("tenant", "#keys", "newest", "made", "master keys")
        print_table(heads, [_row(state) for state in states], keep=("tenant",))


async def _states(settings: Settings) -> list[KeyState]:
    async with opened(settings) as store:
        return [state async for state in stored_ring(store).states()]


def _data(state: KeyState) -> dict[str, object]:
    keys = [{"id": id, "at": instant_text(at), "master": master} for id, at, master in state.keys]
    return {"tenant": state.tenant, "keys": keys, "erased_at": instant_text(state.erased_at)}


def _row(state: KeyState) -> tuple[object, ...]:
    if not state.keys:
        return state.tenant, 0, "erased", instant_text(state.erased_at) or "", ""
    id, at, _ = state.keys[0]
    masters = ", ".join(dict.fromkeys(master for _, _, master in state.keys))
    return state.tenant, len(state.keys), id, instant_text(at) or "", masters


@command.command("rotate")
@click.argument("tenants", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every tenant that has keys.")
@click.option(
    "--drop-after",
    type=length,
    metavar="LENGTH",
    help="Also drop keys that were replaced so long ago, for example 90d. What is still encrypted "
    "with them can never be read again.",
)
@click.option("--revive", is_flag=True, help="Also a tenant whose keys were erased.")
@common_options
@click.pass_obj
def rotate(
    settings: Settings,
    tenants: tuple[str, ...],
    every: bool,
    drop_after: float | None,
    revive: bool,
) -> None:
    """Give tenants a new key for new values. Old values stay readable."""
    if every == bool(tenants):
        raise click.UsageError("Name tenants, or give --all.")
    work(_rotate(settings, tenants, drop_after, revive))


async def _rotate(
    settings: Settings, tenants: tuple[str, ...], drop_after: float | None, revive: bool
) -> None:
    async with opened(settings) as store:
        ring = stored_ring(store)
        named = tenants or tuple([one.tenant async for one in ring.states() if one.keys])
        for tenant in named:
            click.echo(await ring.rotate(tenant, drop_after=drop_after, revive=revive))
        tell(settings, f"{many(len(named), 'tenant')} rotated")


@command.command("rewrap")
@common_options
@click.pass_obj
def rewrap(settings: Settings) -> None:
    """Wrap the keys of all tenants with the newest master key. Then the older ones can be removed.

    Every process must have the newest master key before.
    """
    work(_rewrap(settings))


async def _rewrap(settings: Settings) -> None:
    number = 0
    async with opened(settings) as store:
        async for _ in stored_ring(store).rewrap():
            number += 1
    click.echo(f"{many(number, 'tenant')} wrapped anew")


@command.command("erase")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@click.pass_obj
def erase(settings: Settings, tenant: str, yes: bool) -> None:
    """Delete the keys of a tenant: nothing that its jobs carry can ever be read again."""
    if not yes:
        click.confirm(f"Make everything of tenant {tenant!r} unreadable for ever?", abort=True)
    erased = work(_erase(settings, tenant))
    click.echo("erased" if erased else "was erased before")


async def _erase(settings: Settings, tenant: str) -> bool:
    async with opened(settings) as store:
        return await stored_ring(store).erase(tenant)
