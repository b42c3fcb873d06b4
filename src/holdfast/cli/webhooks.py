"""`holdfast webhooks`: list, show, set, pause, resume, rotate, test and delete webhooks."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.show import Plain, clean, instant_text, print_json, print_table, short
from holdfast.cli.webhook_changes import COMMANDS
from holdfast.cli.webhook_shown import acting, data_of, of_tenant
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import JobRecord
from holdfast.store import Page
from holdfast.webhooks.handle import WebhookHandle, WebhookStatus
from holdfast.webhooks.stored import WebhookState, webhooks_page

# -- list and show ---------------------------------------------------------------------------------


@click.group("webhooks")
def command() -> None:
    """List, show, set, pause, resume, rotate, test and delete webhooks."""


# -- list and show ---------------------------------------------------------------------------------


@command.command("list")
@click.option("--tenant", help="Only webhooks of this tenant. Default: all tenants.")
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
def list_webhooks(
    settings: Settings, tenant: str | None, after: str | None, limit: int, as_json: bool
) -> None:
    """List webhooks."""
    found, cursor = work(_page(settings, tenant, after, limit))
    if as_json:
        print_json({"webhooks": [data_of(state) for state in found], "cursor": cursor})
    elif not found:
        click.echo("no webhooks")
    else:
        heads = ("tenant", "name", "url", "kinds", "note")
        print_table(heads, [_row(state) for state in found], keep=("tenant", "name"))
        if cursor is not None:
            click.echo(f"\nmore: the same command with --after {cursor!r}")


async def _page(
    settings: Settings, tenant: str | None, after: str | None, limit: int
) -> tuple[list[WebhookState], str | None]:
    async with opened(settings) as store:
        return await webhooks_page(store, tenant, after=after or "", limit=limit)


def _row(state: WebhookState) -> tuple[object, ...]:
    one, paused = state.definition, state.paused
    note = state.fault or ""
    if paused is not None:
        note = f"paused by {paused.author}: {paused.reason}"
    kinds = "-" if one is None else ",".join(one.kinds)
    return state.tenant, state.name, "-" if one is None else short(one.url), kinds, short(note)


@command.command("show")
@click.argument("name")
@of_tenant
@json_option
@common_options
@click.pass_obj
def show(settings: Settings, name: str, tenant: str | None, as_json: bool) -> None:
    """Show one webhook: its position, failures, deliveries and newest changes."""
    status = work(acting(settings, name, tenant, lambda handle: handle.status()))
    data = data_of(status.state) | _more(status)
    if as_json:
        print_json(data)
        return
    for field, value in data.items():
        if field != "changes" and value not in (None, "", []):
            told = ", ".join(map(str, value)) if isinstance(value, list) else value
            click.echo(f"{field + ':':12} {clean(str(told))}")
    click.echo("changes:")
    for edit in data.get("changes", ()):
        reason = f": {clean(edit['reason'])}" if edit["reason"] else ""
        click.echo(f"  {edit['at']} {clean(edit['what'])} by {clean(edit['author'])}{reason}")


def _more(status: WebhookStatus) -> Plain:
    position, health = status.position, status.health
    failing = None
    if health is not None:
        since = instant_text(health.since)
        failing = f"since {since}, {health.failures} times; the last: {health.error}"
    return {
        "cursor": None if position is None else position.cursor,
        "gaps": None if position is None else position.gaps,
        "failing": failing,
        "deliveries": {state.value: number for state, number in status.deliveries.items()},
    }


@command.command("deliveries")
@click.argument("name")
@of_tenant
@click.option("--after", type=int, metavar="CURSOR", help="Continue after this cursor.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=20, show_default=True)
@json_option
@common_options
@click.pass_obj
def deliveries(
    settings: Settings, /, *, name: str, tenant: str | None, after: int | None, **given: Any
) -> None:
    """List its stored deliveries, the newest first. They are jobs: see `holdfast job ID`."""
    limit: int = given["limit"]

    async def act(handle: WebhookHandle) -> Page:
        await handle.get()
        return await handle.deliveries(after=after, limit=limit)

    page = work(acting(settings, name, tenant, act))
    if given["as_json"]:
        rows = [_delivery(job) for job in page.jobs]
        print_json({"deliveries": rows, "cursor": page.cursor})
    elif not page.jobs:
        click.echo("no deliveries")
    else:
        rows_shown = [tuple(_delivery(job).values()) for job in page.jobs]
        print_table(("id", "state", "attempt", "made", "error"), rows_shown, keep=("id",))


def _delivery(job: JobRecord) -> Plain:
    return {
        "id": job.id,
        "state": job.state.value,
        "attempt": job.attempt,
        "made": instant_text(job.created_at),
        "error": "" if job.error is None else short(job.error),
    }


for each in COMMANDS:
    command.add_command(each)
