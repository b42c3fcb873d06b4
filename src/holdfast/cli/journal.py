"""`holdfast job ID --journal` and `--log`: what a job remembers, and the lines that it wrote."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import click

from holdfast import operate
from holdfast.attempts import AttemptError
from holdfast.cli.common import Settings, opened, work
from holdfast.cli.show import Plain, clean, clock_text, instant_text, print_json, span
from holdfast.core import shown
from holdfast.core.blockers import awaited
from holdfast.core.clock import seconds
from holdfast.core.job import TERMINAL, JobRecord
from holdfast.core.journal import Entry, EntryKind, Journal
from holdfast.job_journal import JobJournal, Remembered, lines_of, read_journal
from holdfast.store import Find, Ref, Selection, Store, Watch

VALUE_MAX = 4 * 1024
"""Characters shown of one value; with --json it is complete."""
LOOK_S = 1.0
"""How often --follow looks for new lines."""


# -- the journal -----------------------------------------------------------------------------------


def show_journal(settings: Settings, id: str, tenant: str | None, as_json: bool) -> None:
    """Prints what a job remembers."""
    job, found = work(_read(settings, id, tenant))
    if as_json:
        print_json(journal_data(job, found))
        return
    for line in _lines(job, found):
        click.echo(line)


async def _read(settings: Settings, id: str, tenant: str | None) -> tuple[JobRecord, JobJournal]:
    async with opened(settings) as store:
        job = await operate.one_job(store, id, tenant)
        return job, await read_journal(store, Ref(job.tenant, job.id))


def journal_data(job: JobRecord, found: JobJournal) -> Plain:
    return {
        "tenant": job.tenant,
        "id": job.id,
        "state": job.state.value,
        "awaits": job.awaits,
        "steps": [_remembered(one) for one in found.steps],
        "positions": [_remembered(one) for one in found.positions],
        "signals": [_remembered(one) for one in found.signals],
        "joins": {
            name: {"total": join.total, "left": join.left, "failed": join.failed}
            for name, join in found.joins.items()
        },
        "errors": [_error_data(error) for error in found.errors],
        "log": list(found.log),
        "edges": [
            {"target": edge.target, "join": edge.join, "on_failure": edge.on_failure.value}
            for edge in found.edges
        ],
    }


def _remembered(one: Remembered) -> Plain:
    if isinstance(one.value, bytes):
        value: Plain = {"value_base64": base64.b64encode(one.value).decode()}
    else:
        value = {"value": one.value}
    return {"name": one.name, "at": instant_text(one.at), **value}


def _error_data(error: AttemptError) -> Plain:
    return {
        "attempt": error.attempt,
        "kind": error.kind,
        "message": error.message,
        "traceback": error.traceback,
        "worker": error.worker,
        "started_at": instant_text(error.started_at),
        "ended_at": instant_text(error.ended_at),
    }


def _lines(job: JobRecord, found: JobJournal) -> Iterator[str]:
    yield f"{job.type} {clean(job.id)}, {job.state.value}"
    if job.awaits is not None:
        yield clean(awaited(job.awaits))
    for title, some in (
        ("steps", found.steps), ("positions", found.positions), ("signals", found.signals),
    ):  # fmt: skip
        if some:
            yield f"\n{title}"
            for one in some:
                yield from _entry(one)
    if found.joins:
        yield "\njoins"
        for name, join in found.joins.items():
            failed = f", {join.failed} not completed" if join.failed else ""
            ended = join.total - join.left
            yield f"    {clean(name) or 'parents'}: {ended} of {join.total} ended{failed}"
    if found.errors:
        yield "\nerrors"
        for error in found.errors:
            yield from _error(error)
    if found.log:
        yield "\nlog"
        yield from (f"    {clean(line)}" for line in found.log)


def _entry(one: Remembered) -> Iterator[str]:
    first, *rest = clean(shown.pretty(one.value, VALUE_MAX)).splitlines() or [""]
    yield f"    {clock_text(one.at)}  {clean(one.name)}  {first}"
    yield from (f"        {line}" for line in rest)


def _error(error: AttemptError) -> Iterator[str]:
    took = span(max(0.0, seconds(error.ended_at - error.started_at)))
    worker = f", worker {clean(error.worker)}" if error.worker else ""
    yield f"    attempt {error.attempt}  {clock_text(error.started_at)}, {took}{worker}"
    what = f"{error.kind}: {error.message}" if error.kind else error.message
    yield from (f"        {line}" for line in clean(error.traceback or what).splitlines())


# -- the log ---------------------------------------------------------------------------------------


def show_log(settings: Settings, id: str, tenant: str | None, follow: bool, as_json: bool) -> None:
    """Prints the lines of a job's log; with `follow` also the new ones, until the job has ended."""
    with contextlib.suppress(KeyboardInterrupt):
        work(_print_log(settings, id, tenant, follow, as_json))


async def _print_log(
    settings: Settings, id: str, tenant: str | None, follow: bool, as_json: bool
) -> None:
    async with opened(settings) as store:
        job = await operate.one_job(store, id, tenant)
        async for entry in _entries(store, Ref(job.tenant, job.id), follow):
            for line in lines_of(entry):
                if as_json:
                    print_json({"at": instant_text(entry.at), "line": line})
                else:
                    click.echo(f"{clock_text(entry.at)}  {clean(line)}")


async def _entries(store: Store, ref: Ref, follow: bool) -> AsyncIterator[Entry]:
    """The kept entries of the log, then each new one. Entries that are replaced are new ones."""
    known: set[tuple[str, int]] = set()
    find = Find(select=Selection(tenant=ref.tenant, ids=(ref.id,)), limit=1, journals=True)
    while True:
        page = await store.find(find)
        found = page.journals.get(ref, Journal()).entries
        logged = [entry for entry in found if entry.kind is EntryKind.LOG]
        for entry in _in_order(logged):
            if (entry.name, entry.at) not in known:
                yield entry
        known = {(entry.name, entry.at) for entry in logged}
        ended = not page.jobs or page.jobs[0].state in TERMINAL
        if ended or not follow:
            return
        await store.wait(Watch(job=ref), LOOK_S)


def _in_order(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.at)
