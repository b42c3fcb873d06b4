"""Output of the demo: live counts in a terminal, plain lines elsewhere, and the final report."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import click

from holdfast.cli.demo_verdict import Verdict
from holdfast.core.job import TERMINAL, State
from holdfast.core.plural import many
from holdfast.store import Ref, Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LINE_EVERY_S = 1.0
FAULTS_SHOWN_MAX = 50


class Counts:
    """The number of jobs of each tenant by state, at one instant."""

    def __init__(self, tallies: Sequence[Sequence[Tally]]) -> None:
        self.by_tenant: dict[str, dict[State, int]] = {}
        for tally in (tally for part in tallies for tally in part):
            states = self.by_tenant.setdefault(tally.tenant, dict.fromkeys(State, 0))
            for state, number in tally.counts.items():
                states[state] += number

    def total(self, state: State) -> int:
        return sum(states[state] for states in self.by_tenant.values())

    @property
    def finished(self) -> int:
        return sum(self.total(state) for state in TERMINAL)


class View(Protocol):
    def counts(self, counts: Counts) -> None: ...
    def say(self, words: str) -> None: ...


@contextlib.contextmanager
def view(quiet: bool) -> Iterator[View]:
    """Where the demo displays its counts."""
    if quiet:
        yield Silence()
    elif sys.stdout.isatty():
        with Screen() as screen:
            yield screen
    else:
        yield Lines()


class Silence:
    def counts(self, counts: Counts) -> None: ...
    def say(self, words: str) -> None: ...


class Lines:
    """One line a second, for logs and pipes."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._next = 0.0

    def counts(self, counts: Counts) -> None:
        now = time.monotonic() - self._start
        if now >= self._next:
            self._next = now + LINE_EVERY_S
            numbers = ((state.value, counts.total(state)) for state in State)
            self.say("  ".join(f"{name} {number}" for name, number in numbers if number))

    def say(self, words: str) -> None:
        click.echo(f"{time.monotonic() - self._start:5.1f} s  {words}")


class Screen:
    """A table that is redrawn with each update."""

    def __init__(self) -> None:
        from rich.live import Live

        from holdfast.cli.show import console

        self._live = Live(console=console(), refresh_per_second=10, transient=True)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def counts(self, counts: Counts) -> None:
        self._live.update(_table(counts))

    def say(self, words: str) -> None:
        self._live.console.print(words)


def _table(counts: Counts) -> Table:
    from rich.table import Table

    states = [state for state in State if state is not State.WAITING]
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("tenant")
    for state in states:
        table.add_column(state.value, justify="right")
    for tenant, numbers in sorted(counts.by_tenant.items()):
        table.add_row(tenant, *(str(numbers[state]) for state in states))
    return table


class Told(Protocol):
    """What the demo did."""

    ids: set[Ref]
    duplicates: int
    dead: int
    canceled: int
    killed: int | None
    held: int


def print_verdict(screen: Console, verdict: Verdict, cast: Told) -> None:
    """Prints the final report, which names the jobs that have a problem."""
    from rich.table import Table

    table = Table(title="\nHoldfast demo", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column()
    for row in _rows(verdict, cast):
        table.add_row(*(str(cell) for cell in row))
    screen.print(table)
    faults = list(_faults(verdict))
    for line in faults[:FAULTS_SHOWN_MAX]:
        screen.print(line, markup=False)
    if len(faults) > FAULTS_SHOWN_MAX:
        screen.print(f"and {len(faults) - FAULTS_SHOWN_MAX} more")


def _faults(verdict: Verdict) -> Iterator[str]:
    for name in ("lost", "unfinished", "doubled"):
        refs: list[Ref] = getattr(verdict, name)
        for ref in refs:
            yield f"{name}: {ref.tenant}/{ref.id}"
    for breach in verdict.breaches:
        yield f"{breach.promise} broken: {breach.tenant}/{breach.job_id}: {breach.words}"


def _rows(verdict: Verdict, cast: Told) -> Iterator[tuple[Any, ...]]:
    twice = many(cast.duplicates, "duplicate")
    yield "enqueued", len(cast.ids), f"and {twice} repeated with the same key"
    yield "completed", verdict.completed, ""
    yield "dead letters", verdict.dead, f"{cast.dead} expected"
    yield "canceled", verdict.canceled, f"{cast.canceled} expected"
    killed = "no process was killed in time"
    if cast.killed is not None:
        killed = f"process {cast.killed} held {many(cast.held, 'lease')} when it was killed"
        if verdict.spent:
            killed += f"; {verdict.spent} on the last attempt became dead letters"
    yield "rescued", verdict.rescued, killed
    yield "lost", len(verdict.lost), "enqueued, but without a record"
    yield "unfinished", len(verdict.unfinished), "not in a final state"
    yield "completed twice", len(verdict.doubled), "by the event log"
    yield (
        "broken promises",
        len(verdict.breaches),
        "such as overlapping leases, by the event log",
    )
    finished = verdict.completed + verdict.dead + verdict.canceled
    rate = finished / verdict.length_s if verdict.length_s else 0.0
    yield "time", f"{verdict.length_s:.1f} s", f"{rate:.0f} jobs/s"
