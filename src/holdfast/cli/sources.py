"""`holdfast sources`: list, show, poll, reconcile, pause, resume, reset and delete sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click
import msgspec

from holdfast.cli.common import (
    Settings,
    chosen_tenant,
    common_options,
    json_option,
    opened,
    tenant_option,
    work,
)
from holdfast.cli.dead import somebody_there
from holdfast.cli.show import Plain, clean, instant_text, print_json, print_table, short
from holdfast.cli.signing import user
from holdfast.core.edge_bounds import SHADOW_ROWS_MAX
from holdfast.core.source import Fault
from holdfast.sources.calls import sources_page
from holdfast.sources.handle import ObjectPage, SourceHandle
from holdfast.sources.status import SourceStatus
from holdfast.store import Enqueued

_tenant = tenant_option("The tenant of the source.")
_limit = click.option(
    "--limit",
    type=click.IntRange(1, SHADOW_ROWS_MAX),
    default=50,
    show_default=True,
    help="Maximum entries on the page.",
)
_after = click.option(
    "--after", metavar="NAME", default="", help="Continue after this one, the last of the page."
)


@click.group("sources")
def command() -> None:
    """List, show, poll, reconcile, pause, resume, reset and delete sources."""


# -- look ------------------------------------------------------------------------------------------


@command.command("list")
@_tenant
@_after
@_limit
@json_option
@common_options
@click.pass_obj
def list_sources(
    settings: Settings, tenant: str | None, after: str, limit: int, as_json: bool
) -> None:
    """List the sources of a tenant."""
    found = work(_page(settings, tenant, after, limit))
    if as_json:
        cursor = found[-1].source if len(found) == limit else None
        print_json({"sources": [_data(one) for one in found], "cursor": cursor})
    elif not found:
        click.echo("no sources")
    else:
        heads = ("source", "state", "objects", "polled", "cursor", "job", "note")
        print_table(heads, [_row(one) for one in found], keep=("source",))
        if len(found) == limit:
            click.echo(f"\nmore: the same command with --after {found[-1].source!r}")


async def _page(
    settings: Settings, tenant: str | None, after: str, limit: int
) -> list[SourceStatus]:
    async with opened(settings) as store:
        name = chosen_tenant(settings, tenant)
        return await sources_page(store, name, after=after, limit=limit)


def _row(one: SourceStatus) -> tuple[object, ...]:
    return (
        one.source,
        one.state,
        one.objects,
        "-" if one.polled_at is None else instant_text(one.polled_at),
        short(_text(one.cursor)),
        one.change_type,
        short(_note(one)),
    )


def _note(one: SourceStatus) -> str:
    if one.paused is not None:
        return f"paused by {one.paused.author}: {one.paused.reason}"
    fault = one.fault or one.listing_fault
    return "" if fault is None else fault.why


def _text(value: Any) -> str:
    return "-" if value is None else msgspec.json.encode(value).decode()


@command.command("show")
@click.argument("name")
@_tenant
@json_option
@common_options
@click.pass_obj
def show(settings: Settings, name: str, tenant: str | None, as_json: bool) -> None:
    """Show one source: cursor, counts, what is in progress and what went wrong."""
    _shown(work(_do(settings, name, tenant, lambda handle: handle.status())), as_json)


@command.command("objects")
@click.argument("name")
@_tenant
@_after
@_limit
@json_option
@common_options
@click.pass_obj
def objects(
    settings: Settings,
    /,
    *,
    name: str,
    tenant: str | None,
    after: str,
    limit: int,
    as_json: bool,
) -> None:
    """List the shadow of a source, by id, tombstones included."""

    def act(handle: SourceHandle) -> Awaitable[ObjectPage]:
        return handle.objects(after=after, limit=limit)

    page: ObjectPage = work(_do(settings, name, tenant, act))
    if as_json:
        rows = [
            {**msgspec.structs.asdict(one), "seen_at": instant_text(one.seen_at)}
            for one in page.objects
        ]
        print_json({"objects": rows, "cursor": page.after})
    elif not page.objects:
        click.echo("no objects")
    else:
        heads = ("id", "version", "change", "seen", "body")
        rows_shown = [
            (
                one.id,
                short(str(one.version)),
                one.number,
                instant_text(one.seen_at),
                "gone" if one.gone else short(_text(one.body)),
            )
            for one in page.objects
        ]
        print_table(heads, rows_shown, keep=("id",))
        if page.after is not None:
            click.echo(f"\nmore: the same command with --after {page.after!r}")


# -- act -------------------------------------------------------------------------------------------


@command.command("poll")
@click.argument("name")
@_tenant
@json_option
@common_options
@click.pass_obj
def poll(settings: Settings, name: str, tenant: str | None, as_json: bool) -> None:
    """Make a poll at once."""
    _made(work(_do(settings, name, tenant, lambda handle: handle.poll_now())), as_json)


@command.command("reconcile")
@click.argument("name")
@_tenant
@click.option("--any-share", is_flag=True, help="It may find any number of objects gone.")
@json_option
@common_options
@click.pass_obj
def reconcile(
    settings: Settings, name: str, tenant: str | None, any_share: bool, as_json: bool
) -> None:
    """Ask for a full listing, and make a poll that begins it."""

    def act(handle: SourceHandle) -> Awaitable[Enqueued[object]]:
        return handle.reconcile_now(any_share=any_share)

    _made(work(_do(settings, name, tenant, act)), as_json)


@command.command("pause")
@click.argument("name")
@click.argument("reason")
@_tenant
@click.option("--author", help="Author of the pause. Default: the current user.")
@json_option
@common_options
@click.pass_obj
def pause(
    settings: Settings,
    /,
    *,
    name: str,
    reason: str,
    tenant: str | None,
    author: str | None,
    as_json: bool,
) -> None:
    """Read no more pages of a source until it is resumed."""

    def act(handle: SourceHandle) -> Awaitable[SourceStatus]:
        return handle.pause(reason, author or user())

    _told(work(_do(settings, name, tenant, act)), "paused", as_json)


@command.command("resume")
@click.argument("name")
@_tenant
@json_option
@common_options
@click.pass_obj
def resume(settings: Settings, name: str, tenant: str | None, as_json: bool) -> None:
    """End a pause."""
    _told(work(_do(settings, name, tenant, lambda handle: handle.resume())), "resumed", as_json)


@command.command("reset")
@click.argument("name")
@_tenant
@json_option
@common_options
@click.pass_obj
def reset(settings: Settings, name: str, tenant: str | None, as_json: bool) -> None:
    """Forget the cursor: the next poll reads everything again. The shadow stays."""
    _told(work(_do(settings, name, tenant, lambda handle: handle.reset())), "reset", as_json)


@command.command("delete")
@click.argument("name")
@_tenant
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@common_options
@click.pass_obj
def delete(settings: Settings, name: str, tenant: str | None, yes: bool, as_json: bool) -> None:
    """Delete a source with its shadow. Makes no jobs.

    A source that the code defines comes back, empty, with its next poll: pause it instead.
    """
    if not yes:
        if not somebody_there():
            raise click.UsageError(f"source {name!r} would be deleted: confirm with --yes")
        click.confirm(f"Delete source {name!r}?", abort=True, err=True)
    number: int = work(_do(settings, name, tenant, lambda handle: handle.delete()))
    if as_json:
        print_json({"source": name, "objects": number})
    else:
        click.echo(f"deleted source {name!r} with {number} objects")


async def _do(
    settings: Settings,
    name: str,
    tenant: str | None,
    act: Callable[[SourceHandle], Awaitable[Any]],
) -> Any:
    async with opened(settings) as store:
        return await act(SourceHandle(store, chosen_tenant(settings, tenant), name))


# -- print -----------------------------------------------------------------------------------------


def _data(one: SourceStatus) -> Plain:
    """A source as plain data for JSON."""
    found: Plain = msgspec.to_builtins(one)
    for field in ("polled_at", "listed_at"):
        found[field] = None if found[field] is None else instant_text(found[field])
    for field in ("fault", "listing_fault"):
        found[field] = _fault(getattr(one, field))
    if one.paused is not None:
        found["paused"] = f"by {one.paused.author}: {one.paused.reason}"
    if one.listing is not None:
        found["listing"]["began_at"] = instant_text(one.listing.began_at)
    return found


def _fault(fault: Fault | None) -> str | None:
    if fault is None:
        return None
    return f"{fault.why} [{fault.code}], {fault.times} times since {instant_text(fault.since)}"


def _shown(one: SourceStatus, as_json: bool) -> None:
    data = _data(one)
    if as_json:
        print_json(data)
        return
    for field, value in data.items():
        if value in (None, ""):
            continue
        told = value
        if isinstance(value, dict):
            told = ", ".join(f"{name} {number}" for name, number in value.items())
        click.echo(f"{field + ':':15} {clean(told)}")


def _made(made: Enqueued[object], as_json: bool) -> None:
    if as_json:
        print_json({"id": made.id, "created": made.created})
    else:
        click.echo(made.id)


def _told(one: SourceStatus, done: str, as_json: bool) -> None:
    if as_json:
        print_json(_data(one))
    else:
        click.echo(f"{done} source {one.source!r} of {one.tenant!r}")
