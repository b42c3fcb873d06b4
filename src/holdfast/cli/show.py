"""Output: jobs, events and counts as plain data for `--json`, and as tables for people."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast import job_bodies
from holdfast.core.clock import Micros, moment, seconds
from holdfast.core.codec import Codecs
from holdfast.core.job import Event, JobRecord, State
from holdfast.core.mapped import told

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns when stdout is not a terminal, so that a pipe gets whole lines."""
CELL_MAX = 60

Plain = dict[str, Any]


# -- plain data: field names are part of the command line's promise --------------------------------


def job_data(job: JobRecord) -> Plain:
    """A job without its payload and result. A lease's token is never part of a record."""
    return {
        "tenant": job.tenant,
        "id": job.id,
        "queue": job.queue,
        "type": job.type,
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "group": job.group,
        "tags": list(job.tags),
        "created_at": instant_text(job.created_at),
        "updated_at": instant_text(job.updated_at),
        "run_at": instant_text(job.run_at),
        "expires_at": instant_text(job.expires_at),
        "finished_at": instant_text(job.finished_at),
        "lease_until": instant_text(job.lease_until),
        "worker": job.worker,
        "reason": None if job.reason is None else job.reason.value,
        "error": plain_text(job.error),
        "progress": _progress(plain_text(job.progress)),
        "origin": job.origin,
        "replayed_as": job.replayed_as,
        "awaits": job.awaits,
        "fence": job.fence,
        "lapses": job.lapses,
        "misses": job.misses,
        "seq": job.seq,
    }


def whole_job_data(job: JobRecord, codecs: Codecs) -> Plain:
    """A job with its payload and result as plain data."""
    payload = job_bodies.payload_of(job, codecs)
    return {**job_data(job), "payload": payload, "result": job_bodies.result_of(job, codecs)}


def event_data(event: Event) -> Plain:
    return {
        "cursor": event.cursor,
        "at": instant_text(event.at),
        "kind": event.kind.value,
        "tenant": event.tenant,
        "job_id": event.job_id,
        "queue": event.queue,
        "type": event.type,
        "attempt": event.attempt,
        "fence": event.fence,
        "until": instant_text(event.until),
        "note": plain_text(event.note),
        "by": event.by,
    }


def counts_data(counts: Mapping[State, int]) -> Plain:
    """The count of every state, including states without jobs."""
    return {state.value: counts.get(state, 0) for state in State}


def instant_text(at: Micros | None) -> str | None:
    return None if at is None else moment(at).isoformat().replace("+00:00", "Z")


def clock_text(at: Micros) -> str:
    """`2026-11-18 02:03:04.123`, in UTC."""
    return moment(at).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def plain_text(text: str | None) -> str | None:
    """A text of a job, or "(encrypted)"."""
    return None if text is None else told(text)


def _progress(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def print_json(value: object) -> None:
    """Prints one JSON document, or one line of JSON lines, to stdout."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError) as error:
        raise click.ClickException(f"the value cannot be written as JSON: {error}") from None
    click.echo(text)


# -- words for people ------------------------------------------------------------------------------


def ago(at: Micros | None, now: Micros | None = None) -> str:
    """`3 min ago`, `in 20 s`, or a dash."""
    if at is None:
        return "-"
    distance = seconds((time.time_ns() // 1000 if now is None else now) - at)
    return f"in {span(-distance)}" if distance < -0.5 else f"{span(max(0.0, distance))} ago"


def waited(at: Micros | None) -> str:
    """The time since then, or a dash."""
    return "-" if at is None else span(max(0.0, seconds(time.time_ns() // 1000 - at)))


def span(length_s: float) -> str:
    """A duration in a readable unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if length_s >= size * 2:
            return f"{length_s / size:.0f} {unit}"
    return f"{length_s:.0f} s" if length_s >= 10 else f"{length_s:.1f} s"


def clean(text: object) -> str:
    """The text without terminal control characters."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in str(text)
    )


def short(text: object, most: int = CELL_MAX) -> str:
    """The last line (of a traceback: the one with the error), cut to fit a cell."""
    lines = clean(told(str(text))).strip().splitlines() or [""]
    return lines[-1] if len(lines[-1]) <= most else f"{lines[-1][: most - 1]}…"


# -- tables and progress ---------------------------------------------------------------------------


def console(*, stderr: bool = False) -> Console:
    """The rich console for stdout; wide if stdout is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def width() -> int:
    """Columns of stdout."""
    return console().width


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, keep: Sequence[str] = ("id",)
) -> None:
    """Prints a table to stdout. Columns in `keep` are never cut. A heading with # marks numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        number, name = head.startswith("#"), head.lstrip("#")
        table.add_column(
            name, justify="right" if number else "left", no_wrap=number or name in keep
        )
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console().print(table)


@contextlib.contextmanager
def progress(label: str, total: int | None, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on a terminal. Call the yielded function with the number done."""
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
