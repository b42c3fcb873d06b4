"""`holdfast job ID`: show one job, or change it while it waits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, tell, work
from holdfast.cli.journal import show_journal, show_log
from holdfast.cli.show import (
    ago,
    clean,
    clock_text,
    event_data,
    print_json,
    print_table,
    short,
    span,
    whole_job_data,
)
from holdfast.cli.signing import signed
from holdfast.cli.values import length, moment
from holdfast.cli.why import explained_data, print_explained
from holdfast.core import shown
from holdfast.core.check import check_seconds
from holdfast.core.clock import instant, micros, seconds
from holdfast.core.codec import Codecs
from holdfast.core.job import By, Event, JobRecord
from holdfast.explain import Explained
from holdfast.operate import Timeline
from holdfast.store import Ref

_NAMES = ("tenant", "id", "type", "queue", "priority", "key", "group", "tags", "origin")
_REST = ("replayed_as", "worker", "reason", "awaits", "progress")


class ShowFirst(click.Group):
    """`job ID` is `job show ID`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = (*self.commands, *ctx.help_option_names)
        if not args or args[0] not in known:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("job", cls=ShowFirst)
def command() -> None:
    """Show one job (`job ID`), or change a waiting job."""


_tenant = click.option("--tenant", help="The tenant of the job. Default: search all tenants.")


@command.command("reprioritise")
@click.argument("id")
@click.argument("priority", type=int)
@_tenant
@signed
@common_options
@click.pass_obj
def reprioritise(settings: Settings, /, *, id: str, priority: int, tenant: str, by: By) -> None:
    """Change the PRIORITY of a waiting job. Higher runs first."""

    async def act() -> None:
        async with opened(settings) as store:
            job = await operate.one_job(store, id, tenant)
            await operate.reprioritise(store, Ref(job.tenant, job.id), priority, by)

    work(act())
    tell(settings, f"{id} has priority {priority}")


@command.command("reschedule")
@click.argument("id")
@click.option("--delay", type=length, metavar="LENGTH", help="Delay from now: 0, 30, 5m, 2h.")
@click.option("--run-at", type=moment, metavar="INSTANT", help="Instant: 2026-01-31T12:00:00Z.")
@_tenant
@signed
@common_options
@click.pass_obj
def reschedule(
    settings: Settings,
    /,
    *,
    id: str,
    delay: float | None,
    run_at: datetime | None,
    tenant: str | None,
    by: By,
) -> None:
    """Change when a waiting job may run. Also works for a job that waits for a retry."""
    if (delay is None) == (run_at is None):
        raise click.UsageError("no time given: use --delay or --run-at")

    async def act() -> JobRecord:
        async with opened(settings) as store:
            job = await operate.one_job(store, id, tenant)
            ref = Ref(job.tenant, job.id)
            after = 0 if delay is None else micros(check_seconds("delay", delay))
            at = None if run_at is None else instant(run_at)
            await operate.reschedule(store, ref, delay_us=after, run_at=at, by=by)
            return await operate.one_job(store, id, job.tenant)

    tell(settings, f"{id} may run {ago(work(act()).run_at)}")


@command.command("show")
@click.argument("id")
@_tenant
@click.option(
    "--explain", is_flag=True, help="Show why the job does not run now, and for how long."
)
@click.option(
    "--journal", is_flag=True, help="Show what it remembers and awaits, its errors and its log."
)
@click.option("--log", is_flag=True, help="Show the lines of its log.")
@click.option("--follow", "-f", is_flag=True, help="With --log: print new lines until it ends.")
@json_option
@common_options
@click.pass_obj
def show(
    settings: Settings,
    /,
    *,
    id: str,
    tenant: str | None,
    explain: bool,
    journal: bool,
    log: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Show one job: its record, payload, result and timeline."""
    if explain + journal + log > 1:
        raise click.UsageError("--explain, --journal and --log exclude each other")
    if follow and not log:
        raise click.UsageError("--follow works only with --log")
    if journal:
        show_journal(settings, id, tenant, as_json)
        return
    if log:
        show_log(settings, id, tenant, follow, as_json)
        return
    if explain:
        found = work(_explained(settings, id, tenant))
        if as_json:
            print_json(explained_data(found))
        else:
            print_explained(found)
        return
    print_timeline(work(_timeline(settings, id, tenant)), as_json)


async def _explained(settings: Settings, id: str, tenant: str | None) -> Explained:
    async with opened(settings) as store:
        return await operate.explain(store, id, tenant)


async def _timeline(settings: Settings, id: str, tenant: str | None) -> Timeline:
    async with opened(settings) as store:
        return await operate.timeline(store, id, tenant)


def print_timeline(found: Timeline, as_json: bool) -> None:
    """Prints everything about the job, as JSON or as text."""
    whole = whole_job_data(found.job, Codecs())
    if as_json:
        events = [event_data(event) for event in found.events]
        print_json({**whole, "events": events, "events_lost": found.lost})
        return
    for line in _lines(found, whole):
        click.echo(line)
    click.echo("\ntimeline" + (" (earlier events were pruned)" if found.lost else ""))
    print_table(
        ("at", "#later", "what", "#attempt", "note"),
        [_row(*pair) for pair in zip(found.events, [None, *found.events], strict=False)],
        keep=("at", "what"),
    )


def _lines(found: Timeline, whole: dict[str, object]) -> Iterator[str]:
    job = found.job
    for name in _NAMES:
        if whole[name] not in (None, []):
            yield _line(name, whole[name])
    yield _line("state", f"{job.state.value}, attempt {job.attempt} of {job.max_attempts}")
    for name in ("created_at", "run_at", "finished_at", "lease_until", "expires_at"):
        if whole[name] is not None:
            yield _line(name, f"{whole[name]}  ({ago(getattr(job, name))})")
    for name in _REST:
        if whole[name] is not None:
            yield _line(name, whole[name])
    yield _block("payload", shown.pretty(whole["payload"]))
    if job.result is not None:
        yield _block("result", shown.pretty(whole["result"]))
    if job.error is not None:
        yield _block("error", str(whole["error"]))


def _line(name: str, value: object) -> str:
    text = ", ".join(value) if isinstance(value, list) else value
    return f"{name.replace('_', ' '):<13}{clean(text)}"


def _block(name: str, text: str) -> str:
    lines = clean(text).splitlines()
    if len(lines) == 1:
        return _line(name, text)
    return "\n".join([name, *(f"    {line}" for line in lines)])


def _row(event: Event, before: Event | None) -> tuple[str, ...]:
    """The events, each with the time since the previous one."""
    note = "" if event.note is None else short(event.note)
    if event.until is not None:
        note = f"for {span(seconds(event.until - event.at))}  {note}".rstrip()
    if event.by is not None:
        note = f"{note}  by {short(event.by)}".strip()
    later = "" if before is None else f"{seconds(event.at - before.at):.3f} s"
    return clock_text(event.at), later, event.kind.value, str(event.attempt), note
