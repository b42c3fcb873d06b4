"""`holdfast events`: print stored events from any cursor, and follow new ones."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import click

from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.show import event_data, instant_text, print_json, short
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.job import Event
from holdfast.events import Gap, follow
from holdfast.store import Store


@dataclass(frozen=True)
class _Wish:
    tenant: str | None
    job: str | None
    after: int | None
    follow: bool
    as_json: bool


@click.command("events")
@click.option("--tenant", help="Only events of this tenant. Default: all tenants.")
@click.option("--job", metavar="ID", help="Only events of this job.")
@click.option(
    "--after",
    type=click.IntRange(-1),
    metavar="CURSOR",
    help="Start after this cursor; -1 is the current end. Default: 0, or -1 with --follow.",
)
@click.option("--follow", "-f", is_flag=True, help="Print new events as they arrive, until Ctrl-C.")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, /, **given: object) -> None:
    """Print stored events, one per line.

    A gap line is printed where older events were pruned.
    """
    wish = _Wish(**given)  # type: ignore[arg-type]
    with contextlib.suppress(KeyboardInterrupt):
        work(_print(settings, wish))


async def _print(settings: Settings, wish: _Wish) -> None:
    async with opened(settings) as store:
        if wish.follow:
            after = -1 if wish.after is None else wish.after
            news = follow(store, wish.tenant, after, wish.job)
        else:
            news = _stored(store, wish)
        async for one in news:
            _line(one, wish.as_json)


async def _stored(store: Store, wish: _Wish) -> AsyncIterator[Event | Gap]:
    """The events that are stored now, page by page."""
    after, full = wish.after or 0, True
    while full:
        page = await store.events(wish.tenant, after, PAGE_MAX, wish.job)
        if page.lost:
            yield Gap(page.cursor)
        for event in page.events:
            yield event
        after, full = page.cursor, len(page.events) == PAGE_MAX


def _line(one: Event | Gap, as_json: bool) -> None:
    if isinstance(one, Gap):
        if as_json:
            print_json({"gap": True, "cursor": one.cursor})
        else:
            click.echo(f"-- gap: events before cursor {one.cursor} were pruned --")
        return
    if as_json:
        print_json(event_data(one))
        return
    note = "" if one.note is None else f"  {short(one.note)}"
    click.echo(
        f"{one.cursor:>8}  {instant_text(one.at)}  {one.kind.value:<9}  "
        f"{one.tenant}/{one.queue}  {one.type}  {one.job_id}  attempt {one.attempt}{note}"
    )
