"""`holdfast dead`: list, show, replay and purge dead letters (jobs that failed for good)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
import msgspec

from holdfast import operate
from holdfast.cli.common import Settings, Told, common_options, json_option, opened, tell, work
from holdfast.cli.filters import dated, filters, narrows
from holdfast.cli.job import print_timeline
from holdfast.cli.jobs import print_jobs
from holdfast.cli.show import job_data, print_json, progress
from holdfast.cli.signing import signed
from holdfast.core.bounds import BATCH_MAX, ENTRY_NAME_MAX, PAGE_MAX, within
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput, JobNotFound
from holdfast.core.job import By, State
from holdfast.core.plural import many
from holdfast.operate import Timeline
from holdfast.store import Act, Find, Page, Selection, Store


@click.group("dead")
def command() -> None:
    """List, show, replay and purge dead letters."""


def _dead(select: Selection, ids: tuple[str, ...] = ()) -> Selection:
    return msgspec.structs.replace(select, states=(State.FAILED,), ids=ids)


# -- list and show ---------------------------------------------------------------------------------


@command.command("list")
@filters(states=False)
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
@json_option
@common_options
@click.pass_obj
def list_dead(
    settings: Settings, select: Selection, limit: int, after: int | None, as_json: bool
) -> None:
    """List dead letters, newest first."""
    page = work(_page(settings, Find(select=_dead(select), after=after, limit=limit)))
    if as_json:
        print_json({"jobs": [job_data(one) for one in page.jobs], "cursor": page.cursor})
    elif not page.jobs:
        click.echo("no dead letters")
    else:
        print_jobs(page)


async def _page(settings: Settings, find: Find) -> Page:
    async with opened(settings) as store:
        select = await dated(store, find.select)
        return await store.find(msgspec.structs.replace(find, select=select))


@command.command("show")
@click.argument("id")
@click.option("--tenant", help="The tenant of the job. Default: search all tenants.")
@json_option
@common_options
@click.pass_obj
def show(settings: Settings, id: str, tenant: str | None, as_json: bool) -> None:
    """Show one dead letter with its error and timeline."""
    found = work(_timeline(settings, id, tenant))
    if found.job.state is not State.FAILED:
        tell(settings, f"this job is not a dead letter; its state is {found.job.state.value}")
    print_timeline(found, as_json)


async def _timeline(settings: Settings, id: str, tenant: str | None) -> Timeline:
    async with opened(settings) as store:
        return await operate.timeline(store, id, tenant)


# -- replay and purge ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Deed:
    """One bulk operation (replay or purge), with the words used to report it."""

    act: Act
    steps: Callable[[Store, Selection, By], AsyncIterator[int]]
    done: str
    asks: bool


_REPLAY = _Deed(Act.REPLAY, operate.replay, "replayed", asks=False)
_PURGE = _Deed(Act.DELETE, operate.purge, "purged", asks=True)


@dataclass(frozen=True)
class _Wish:
    ids: tuple[str, ...]
    select: Selection
    everything: bool
    dry_run: bool
    as_json: bool
    by: By
    yes: bool = True
    from_step: str | None = None


def _deed_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.argument("ids", nargs=-1, metavar="[ID]..."),
        filters(states=False),
        click.option("--all", "everything", is_flag=True, help="Select all dead letters."),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Print how many dead letters are selected; change nothing.",
        ),
        signed,
        json_option,
        common_options,
    )[::-1]:
        function = option(function)
    return function


@command.command("replay")
@_deed_options
@click.option(
    "--from-step",
    metavar="NAME",
    help="Keep what was remembered before this step. Jobs without the step are not replayed.",
)
@click.pass_obj
def replay(settings: Settings, /, **given: Any) -> None:
    """Run dead letters again, each as a new job.

    The new job names the dead letter as its origin. A dead letter is replayed at most once.
    Select dead letters by ID, by filters, or with --all.
    """
    wish = _Wish(**given)
    deed = _REPLAY
    if wish.from_step is not None:
        check_name("from_step", wish.from_step, ENTRY_NAME_MAX)
        deed = replace(deed, steps=partial(operate.replay, from_step=wish.from_step))
    _do(settings, deed, wish)


@command.command("purge")
@_deed_options
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def purge(settings: Settings, /, **given: Any) -> None:
    """Delete dead letters permanently.

    Select dead letters by ID, by filters, or with --all.
    """
    _do(settings, _PURGE, _Wish(**given))


def _do(settings: Settings, deed: _Deed, wish: _Wish) -> None:
    if not (wish.ids or wish.everything or narrows(wish.select)):
        raise click.UsageError("no dead letters selected: give IDs, filters, or --all")
    within("ids", len(wish.ids), BATCH_MAX)
    total, missing = work(_preview(settings, deed, wish))
    if missing:
        raise Told(JobNotFound(id=", ".join(missing)))
    if wish.dry_run:
        _told(f"{many(total, 'dead letter')} would be {deed.done}", wish, deed, total)
        return
    if deed.asks and not wish.yes and total:
        _ask(total)
    done = work(_perform(settings, deed, wish, total))
    if wish.from_step is not None and done < total:
        without = f"{many(total - done, 'dead letter')} not replayed: no step {wish.from_step!r}"
        if not done:
            raise Told(InvalidInput(field="from_step", why=without))
        tell(settings, without)
    _told(f"{many(done, 'dead letter')} {deed.done}", wish, deed, done)


def _ask(total: int) -> None:
    if not somebody_there():
        raise click.UsageError(f"{many(total, 'dead letter')} would be deleted: confirm with --yes")
    click.confirm(f"Delete {many(total, 'dead letter')} permanently?", abort=True, err=True)


def somebody_there() -> bool:
    """Whether stdin is a terminal, so that somebody can answer a question."""
    return sys.stdin.isatty()


async def _preview(settings: Settings, deed: _Deed, wish: _Wish) -> tuple[int, list[str]]:
    """The number of selected dead letters, and the given ids that are not dead letters."""
    async with opened(settings) as store:
        select = await dated(store, _dead(wish.select, wish.ids))
        missing: list[str] = []
        if wish.ids:
            page = await store.find(Find(select=select, limit=PAGE_MAX))
            found = {job.id for job in page.jobs}
            missing = [id for id in wish.ids if id not in found]
        return await operate.preview(store, select, deed.act), missing


async def _perform(settings: Settings, deed: _Deed, wish: _Wish, total: int) -> int:
    done = 0
    async with opened(settings) as store:
        select = await dated(store, _dead(wish.select, wish.ids))
        with progress(deed.done, total, quiet=settings.quiet) as so_far:
            async for done in deed.steps(store, select, wish.by):
                so_far(done)
    return done


def _told(words: str, wish: _Wish, deed: _Deed, number: int) -> None:
    if wish.as_json:
        print_json({deed.done: number, "dry_run": wish.dry_run})
    else:
        click.echo(words)
