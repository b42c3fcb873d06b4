"""`holdfast demo`: two tenants, two worker processes, one of them killed, and a final report."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import msgspec

from holdfast import operate
from holdfast.app import App
from holdfast.cli.common import EXIT_ERROR, Settings, chosen_app, common_options, work
from holdfast.cli.demo_stage import Stage, staged, workers
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import StoreError
from holdfast.core.job import Event, JobRecord, State
from holdfast.core.plural import many
from holdfast.store import Find, Ref, Selection, Store

if TYPE_CHECKING:
    from holdfast.cli.demo_plan import Call
    from holdfast.cli.demo_verdict import Verdict

PATIENCE_S = 90.0
LOOK_S = 0.1


@click.command("demo")
@click.option(
    "--jobs",
    type=click.IntRange(20, 100_000),
    default=300,
    show_default=True,
    help="Number of jobs.",
)
@click.option("--keep", is_flag=True, help="Keep the demo's jobs and files.")
@common_options
@click.pass_context
def command(ctx: click.Context, jobs: int, keep: bool) -> None:
    """Run a demo: kill a worker, then show that no job is lost or completed twice.

    Uses a new SQLite file, or the store given by --store, with tenants of its own.
    """
    from holdfast.cli.demo_view import print_verdict
    from holdfast.cli.show import console

    settings: Settings = ctx.obj
    screen = console()  # Now, so that a missing package is reported before the demo starts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # As SIGINT: cleans up.
    with staged(settings, keep) as stage:
        with workers(stage):
            verdict, cast = work(_play(stage, jobs, settings.quiet))
        print_verdict(screen, verdict, cast)
        if not verdict.good:
            click.echo(
                "".join(["\nlast lines of the workers' log:\n", *stage.last_words()]), err=True
            )
        if keep:
            click.echo(f"kept: {stage.url} (tenants {', '.join(stage.tenants)}), {stage.log}")
    if not verdict.good:
        ctx.exit(EXIT_ERROR)


@dataclass
class Cast:
    """What the demo did, for comparison with what the store reports."""

    ids: set[Ref]
    duplicates: int = 0
    dead: int = 0
    canceled: int = 0
    killed: int | None = None
    """The process id."""
    held: int = 0
    """The number of leases that the killed process held."""


async def _play(stage: Stage, jobs: int, quiet: bool) -> tuple[Verdict, Cast]:
    from holdfast.cli.demo_verdict import judge

    async with chosen_app(stage.settings) as app:
        start = (await app.store.events(None, -1, 1)).cursor
        cast = await _enqueue(app, stage, jobs)
        await _watch(app.store, stage, cast, quiet)
        records = [job async for job in _records(app.store, stage)]
        events = [event async for event in _events(app.store, stage, start)]
    return judge(cast.ids, records, events), cast


async def _enqueue(app: App, stage: Stage, jobs: int) -> Cast:
    from holdfast.cli.demo_plan import calls

    cast = Cast(ids=set())
    planned = list(calls(jobs, stage.tenants))
    for tenant in stage.tenants:
        await _send(app, tenant, [call for call in planned if call.tenant == tenant], cast)
    return cast


async def _send(app: App, tenant: str, planned: list[Call], cast: Cast) -> None:
    from holdfast.cli.demo_plan import Fate

    client = app.tenant(tenant)
    ids: list[str] = []
    await client.enqueue_many(
        (call.job for call in planned),
        on_batch=lambda answers: ids.extend(answer.id for answer in answers),
    )
    for call, id in zip(planned, ids, strict=True):
        cast.ids.add(Ref(tenant, id))
        cast.duplicates += call.duplicate
        cast.dead += call.fate is Fate.DEAD
        if call.fate is Fate.CANCELED:
            cast.canceled += await client.cancel(id)


async def _watch(store: Store, stage: Stage, cast: Cast, quiet: bool) -> None:
    """Shows the counts until all jobs are finished or the time is over. Kills one process."""
    from holdfast.cli.demo_view import Counts, view

    end = time.monotonic() + PATIENCE_S + len(cast.ids) / 20
    ripe = cast.canceled + len(cast.ids) // 5
    with view(quiet) as show:
        while time.monotonic() < end:
            counts = Counts([await store.count(tenant) for tenant in stage.tenants])
            show.counts(counts)
            if cast.killed is None and counts.finished >= ripe:
                await _kill(store, stage, cast)
                if cast.killed is not None:
                    held = many(cast.held, "lease")
                    show.say(f"killed worker process {cast.killed} (kill -9), which held {held}")
            if counts.finished >= len(cast.ids):
                return
            await asyncio.sleep(LOOK_S)


async def _kill(store: Store, stage: Stage, cast: Cast) -> None:
    """Kills the demo's worker process that holds the most leases, if any holds one."""
    present = await operate.workers(store)
    pids = {hold.owner: msgspec.json.decode(hold.note)["pid"] for hold in present}
    for worker, _ in (await _holders(store, stage)).most_common():
        if worker.startswith(stage.crew) and worker in pids:
            os.kill(pids[worker], signal.SIGKILL)
            cast.killed = pids[worker]
            await asyncio.sleep(LOOK_S)  # All that it sent is stored by now.
            cast.held = (await _holders(store, stage))[worker]
            return


async def _holders(store: Store, stage: Stage) -> Counter[str]:
    """How many leases each worker holds."""
    held: Counter[str] = Counter()
    for tenant in stage.tenants:
        select = Selection(tenant=tenant, states=(State.PROCESSING,))
        page = await store.find(Find(select=select, limit=PAGE_MAX))
        held.update(job.worker for job in page.jobs if job.worker is not None)
    return held


# -- the account -----------------------------------------------------------------------------------


async def _records(store: Store, stage: Stage) -> AsyncIterator[JobRecord]:
    for tenant in stage.tenants:
        after: int | None = None
        while True:
            find = Find(select=Selection(tenant=tenant), after=after, limit=PAGE_MAX)
            page = await store.find(find)
            for job in page.jobs:
                yield job
            after = page.cursor
            if after is None:
                break


async def _events(store: Store, stage: Stage, start: int) -> AsyncIterator[Event]:
    for tenant in stage.tenants:
        after, full = start, True
        while full:
            page = await store.events(tenant, after, PAGE_MAX)
            if page.lost:
                why = "events were pruned while the demo ran, so the result cannot be verified"
                raise StoreError(store=stage.url, why=why)
            for event in page.events:
                yield event
            after, full = page.cursor, len(page.events) == PAGE_MAX
