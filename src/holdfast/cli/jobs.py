"""`holdfast jobs`: a page of jobs."""

from __future__ import annotations

import click

from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.filters import filters
from holdfast.cli.show import ago, job_data, print_json, print_table, short
from holdfast.job import JobRecord
from holdfast.limits import PAGE_MAX
from holdfast.store import Find, Page, Selection

HEADS = ("id", "tenant", "queue", "type", "state", "#attempt", "enqueued", "note")


@click.command("jobs")
@filters(states=True)
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=50, show_default=True)
@click.option("--after", type=int, metavar="CURSOR", help="Go on where the page before ended.")
@click.option("--oldest-first", is_flag=True, help="Without it the newest come first.")
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
    page = work(_page(settings, find))
    if as_json:
        print_json({"jobs": [job_data(one) for one in page.jobs], "cursor": page.cursor})
        return
    print_jobs(page)


async def _page(settings: Settings, find: Find) -> Page:
    async with opened(settings) as store:
        return await store.find(find)


def print_jobs(page: Page) -> None:
    """The table, and how to get the next page."""
    if not page.jobs:
        click.echo("no jobs")
        return
    print_table(HEADS, [_row(job) for job in page.jobs])
    if page.cursor is not None:
        click.echo(f"\nmore: the same command with --after {page.cursor}")


def _row(job: JobRecord) -> tuple[object, ...]:
    attempts = f"{job.attempt}/{job.max_attempts}"
    enqueued = ago(job.created_at)
    return job.id, job.tenant, job.queue, job.type, job.state, attempts, enqueued, _note(job)


def _note(job: JobRecord) -> str:
    error = "" if job.error is None else short(job.error)
    if job.reason is not None:
        return f"{job.reason.value}: {error}" if error else job.reason.value
    return error
