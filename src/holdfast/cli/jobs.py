"""`holdfast jobs`: list jobs, page by page."""

from __future__ import annotations

from contextlib import suppress

import click
import msgspec

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.filters import dated, filters
from holdfast.cli.scoping import pause_data, pause_words, scope_data
from holdfast.cli.show import ago, clean, job_data, print_json, print_table, short, width
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import StoreError
from holdfast.core.job import TERMINAL, JobRecord, State
from holdfast.core.scope import Pause, Scope, ScopeKind, platform_scopes
from holdfast.store import Find, Page, Selection

Pauses = dict[Scope, Pause]

TABLE_MIN = 120
"""Below this many columns a table is not readable."""
HEADS = ("id", "tenant", "queue", "type", "state", "#attempt", "enqueued", "note")


@click.command("jobs")
@filters(states=True)
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE_MAX),
    default=50,
    show_default=True,
    help="Maximum entries on the page.",
)
@click.option(
    "--after",
    type=int,
    metavar="CURSOR",
    help="Continue after this cursor, which the previous page printed.",
)
@click.option(
    "--oldest-first", is_flag=True, help="List the oldest jobs first. Default: newest first."
)
@json_option
@common_options
@click.pass_obj
def command(
    settings: Settings,
    /,
    *,
    select: Selection,
    limit: int,
    after: int | None,
    oldest_first: bool,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    find = Find(select=select, after=after, limit=limit, newest_first=not oldest_first)
    page, pauses = work(_page(settings, find))
    if as_json:
        jobs = [job_data(one) for one in page.jobs]
        said = [{**scope_data(scope), **(pause_data(one) or {})} for scope, one in pauses.items()]
        print_json({"jobs": jobs, "cursor": page.cursor, "pauses": said})
        return
    print_jobs(page, pauses)


async def _page(settings: Settings, find: Find) -> tuple[Page, Pauses]:
    """The page, and the pauses that apply to some of its jobs."""
    async with opened(settings) as store:
        select = await dated(store, find.select)
        page = await store.find(msgspec.structs.replace(find, select=select))
        states = await operate.scopes(store, find.select.tenant)
        if find.select.tenant is not None:
            with suppress(StoreError):  # A token may be refused what limits all tenants together.
                states |= await operate.scopes(store, "")
    paused = {scope: one.settings.paused for scope, one in states.items()}
    held = {scope for job in page.jobs if _waits(job) for scope in _scopes(job)}
    return page, {
        scope: pause for scope, pause in paused.items() if pause is not None and scope in held
    }


def _waits(job: JobRecord) -> bool:
    return job.state not in TERMINAL and job.state is not State.PROCESSING


def _scopes(job: JobRecord) -> list[Scope]:
    found = [*platform_scopes(job.queue, job.type)]
    found += [Scope(job.tenant), Scope(job.tenant, ScopeKind.QUEUE, job.queue)]
    if job.group is not None:
        found.append(Scope(job.tenant, ScopeKind.GROUP, job.group))
    return found


def print_jobs(page: Page, pauses: Pauses | None = None) -> None:
    """Prints the table and the command for the next page."""
    if not page.jobs:
        click.echo("no jobs")
        return
    rows = [_row(job, pauses or {}) for job in page.jobs]
    if width() >= TABLE_MIN:
        print_table(HEADS, rows)
    else:
        for row in rows:
            _print_narrow(row)
    if page.cursor is not None:
        click.echo(f"\nmore: the same command with --after {page.cursor}")


def _print_narrow(row: tuple[object, ...]) -> None:
    """Prints two or three lines per job, for a terminal too narrow for the table."""
    id, tenant, queue, type, state, attempts, enqueued, note = (clean(cell) for cell in row)
    click.echo(f"{id}  {state} {attempts}, {enqueued}")
    click.echo(f"    {short(f'{type}  {tenant} / {queue}', width() - 4)}")
    if note:
        click.echo(f"    {short(note, width() - 4)}")


def _row(job: JobRecord, pauses: Pauses) -> tuple[object, ...]:
    attempts = f"{job.attempt}/{job.max_attempts}"
    enqueued = ago(job.created_at)
    note = _note(job)
    if _waits(job) and (pause := next((pauses[s] for s in _scopes(job) if s in pauses), None)):
        note = pause_words(pause)
    return job.id, job.tenant, job.queue, job.type, job.state, attempts, enqueued, note


def _note(job: JobRecord) -> str:
    error = "" if job.error is None else short(job.error)
    if job.reason is not None:
        return f"{job.reason.value}: {error}" if error else job.reason.value
    return error
