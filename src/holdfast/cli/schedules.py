"""`holdfast schedules`: list, show, pause, resume, run, backfill and delete schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from holdfast import operate
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
from holdfast.cli.signing import signed, user
from holdfast.cli.values import moment
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import By
from holdfast.core.plural import many
from holdfast.core.schedule import name_of
from holdfast.definitions import ScheduleState, instants, schedules_page
from holdfast.schedules import Backfill, ScheduleHandle
from holdfast.store_clock import StoreClock

NEXT = 5
_tenant = tenant_option("The tenant of the schedule.")


@click.group("schedules")
def command() -> None:
    """List, show, pause, resume, run, backfill and delete schedules."""


# -- list and show ---------------------------------------------------------------------------------


@command.command("list")
@click.option("--tenant", help="Only schedules of this tenant. Default: all tenants.")
@click.option("--after", metavar="CURSOR", help="Continue after this cursor, of the page before.")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=50,
    show_default=True,
    help="Maximum entries on the page.",
)
@json_option
@common_options
@click.pass_obj
def list_schedules(
    settings: Settings, tenant: str | None, after: str | None, limit: int, as_json: bool
) -> None:
    """List schedules with their next tick."""
    found, cursor, now = work(_page(settings, tenant, after, limit))
    if as_json:
        rows = [_data(state, now, 1) for state in found]
        print_json({"schedules": rows, "cursor": cursor})
    elif not found:
        click.echo("no schedules")
    else:
        heads = ("tenant", "name", "when", "next", "job", "note")
        print_table(heads, [_row(state, now) for state in found], keep=("tenant", "name"))
        if cursor is not None:
            click.echo(f"\nmore: the same command with --after {cursor!r}")


async def _page(
    settings: Settings, tenant: str | None, after: str | None, limit: int
) -> tuple[list[ScheduleState], str | None, Micros]:
    async with opened(settings) as store:
        found, cursor = await schedules_page(store, tenant, after=after or "", limit=limit)
        return found, cursor, await StoreClock(store).look()


def _row(state: ScheduleState, now: Micros) -> tuple[object, ...]:
    one, paused = state.definition, state.paused
    coming = instants(state, now, 1)
    note = "" if paused is None else f"paused by {paused.author}: {paused.reason}"
    return (
        state.tenant,
        state.name,
        "-" if one is None else one.timing.words,
        "-" if not coming or paused is not None else coming[0].isoformat(),
        "-" if one is None else one.job.type,
        short(note),
    )


@command.command("show")
@click.argument("name")
@_tenant
@json_option
@common_options
@click.pass_obj
def show(settings: Settings, name: str, tenant: str | None, as_json: bool) -> None:
    """Show one schedule with its next five ticks and its newest changes."""
    state, now = work(_one(settings, name, tenant))
    data = _data(state, now, NEXT)
    if as_json:
        print_json(data)
        return
    for field, value in data.items():
        if field not in ("next", "edits") and value not in (None, ""):
            click.echo(f"{field + ':':12} {clean(value)}")
    click.echo("next:")
    for at in data["next"]:
        click.echo(f"  {at}")
    click.echo("changes:")
    for edit in data["edits"]:
        reason = f": {clean(edit['reason'])}" if edit["reason"] else ""
        click.echo(f"  {edit['at']} {clean(edit['what'])} by {clean(edit['author'])}{reason}")


async def _one(settings: Settings, name: str, tenant: str | None) -> tuple[ScheduleState, Micros]:
    async with opened(settings) as store:
        handle = operate.schedule(store, chosen_tenant(settings, tenant), name)
        return await handle.get(), await StoreClock(store).look()


def _data(state: ScheduleState, now: Micros, number: int) -> Plain:
    """A schedule as plain data for JSON."""
    one, paused = state.definition, state.paused
    head: Plain = {
        "tenant": state.tenant,
        "name": state.name,
        "version": state.version,
        "cursor": name_of(state.tenant, state.name),
        "fault": state.fault,
        "paused": None if paused is None else f"by {paused.author}: {paused.reason}",
        "next": [at.isoformat() for at in instants(state, now, number)],
    }
    if one is None:
        return {**head, "edits": []}
    return {
        **head,
        "when": one.timing.words,
        "cron": one.timing.cron,
        "zone": None if one.timing.cron is None else one.timing.zone,
        "every": _seconds(one.timing.every_us),
        "phase": _seconds(one.timing.phase_us or None),
        "overlap": one.overlap.value,
        "missed": one.missed.value,
        "within": _seconds(one.within_us),
        "jitter": _seconds(one.jitter_us or None),
        "type": one.job.type,
        "queue": one.job.queue,
        "payload": _payload(one.job.codec, one.job.body),
        "from_code": one.code is not None,
        "edits": [
            {"at": instant_text(e.at), "author": e.author, "what": e.what, "reason": e.reason}
            for e in one.edits
        ],
    }


def _seconds(length: Micros | None) -> float | None:
    return None if length is None else length / 1e6


def _payload(codec: str, body: bytes) -> Any:
    if codec != "json":
        return f"<{len(body)} bytes of {codec}>"
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return "<unreadable>"


# -- changes ---------------------------------------------------------------------------------------


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
    """Stop a schedule from making jobs until it is resumed."""

    async def act(handle: ScheduleHandle) -> ScheduleState:
        return await handle.pause(reason, author or user())

    _told(work(_do(settings, name, tenant, act)), "paused", as_json)


@command.command("resume")
@click.argument("name")
@_tenant
@signed
@json_option
@common_options
@click.pass_obj
def resume(settings: Settings, name: str, tenant: str | None, by: By, as_json: bool) -> None:
    """End a pause."""

    async def act(handle: ScheduleHandle) -> ScheduleState:
        return await handle.resume(by.author, by.reason)

    _told(work(_do(settings, name, tenant, act)), "resumed", as_json)


@command.command("delete")
@click.argument("name")
@_tenant
@signed
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@common_options
@click.pass_obj
def delete(
    settings: Settings, /, *, name: str, tenant: str | None, by: By, yes: bool, as_json: bool
) -> None:
    """Delete a schedule. Jobs that it made stay.

    A schedule that the code defines comes back when a worker starts: pause it instead.
    """
    if not yes:
        if not somebody_there():
            raise click.UsageError(f"schedule {name!r} would be deleted: confirm with --yes")
        click.confirm(f"Delete schedule {name!r}?", abort=True, err=True)

    async def act(handle: ScheduleHandle) -> ScheduleState:
        state = await handle.get()
        await handle.delete(by=by)
        return state

    _told(work(_do(settings, name, tenant, act)), "deleted", as_json)


@command.command("run-now")
@click.argument("name")
@_tenant
@signed
@json_option
@common_options
@click.pass_obj
def run_now(settings: Settings, name: str, tenant: str | None, by: By, as_json: bool) -> None:
    """Make a job at once, besides the ticks and also during a pause."""

    async def act(handle: ScheduleHandle) -> str:
        return (await handle.run_now(by=by)).id

    id = work(_do(settings, name, tenant, act))
    if as_json:
        print_json({"id": id})
    else:
        click.echo(id)


@command.command("backfill")
@click.argument("name")
@click.argument("first", type=moment)
@click.argument("last", type=moment)
@_tenant
@signed
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print what would be made; change nothing.")
@json_option
@common_options
@click.pass_obj
def backfill(
    settings: Settings,
    /,
    *,
    name: str,
    first: datetime,
    last: datetime,
    tenant: str | None,
    by: By,
    **given: Any,
) -> None:
    """Make the jobs of past ticks, from FIRST up to, but without, LAST.

    Shows first what it will make, and asks. A tick that has a job gets no second one.
    """

    def act(apply: bool) -> Any:
        async def run(handle: ScheduleHandle) -> Backfill:
            return await handle.backfill(first, last, apply=apply, by=by)

        return work(_do(settings, name, tenant, run))

    yes, dry_run, as_json = given["yes"], given["dry_run"], given["as_json"]
    found: Backfill = act(False)
    if not as_json and found.ticks:
        span = f"from {found.ticks[0].isoformat()} to {found.ticks[-1].isoformat()}"
        held = f", {found.existing} have one already" if found.existing else ""
        click.echo(f"{many(len(found.ticks), 'tick')} {span}: {many(found.created, 'job')}{held}")
    if found.created and not dry_run:
        if not yes:
            if not somebody_there():
                made = many(found.created, "job")
                raise click.UsageError(f"{made} would be made: confirm with --yes")
            click.confirm(f"Make {many(found.created, 'job')}?", abort=True, err=True)
        found = act(True)
    if as_json:
        ticks = [at.isoformat() for at in found.ticks]
        print_json(
            {
                "ticks": ticks,
                "created": found.created,
                "existing": found.existing,
                "applied": found.applied,
            }
        )
    elif found.applied:
        click.echo(f"{many(found.created, 'job')} made")
    elif not found.created:
        click.echo("nothing to make")


async def _do(settings: Settings, name: str, tenant: str | None, act: Any) -> Any:
    async with opened(settings) as store:
        return await act(operate.schedule(store, chosen_tenant(settings, tenant), name))


def _told(state: ScheduleState, done: str, as_json: bool) -> None:
    if as_json:
        paused = state.paused
        print_json(
            {
                "tenant": state.tenant,
                "name": state.name,
                "version": state.version,
                "paused": None if paused is None else paused.reason,
            }
        )
    else:
        click.echo(f"{done} schedule {state.name!r} of {state.tenant!r}")
