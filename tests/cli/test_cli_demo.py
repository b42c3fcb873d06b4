"""`holdfast demo`: it plays, it proves, and it cleans up; and its proof finds what is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.demo_verdict import judge
from holdfast.core.job import Envelope, Event, EventKind, JobRecord, Rules, State
from holdfast.store import Ref

FAULTS = ("lost", "unfinished", "completed twice", "broken promises")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short temporary directory of its own, so that leftovers show."""
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def row(told: str, name: str) -> int:
    [line] = [line for line in told.splitlines() if line.startswith(f"{name}  ")]
    return int(line.removeprefix(name).split()[0])


def alive(place: Path) -> list[str]:
    """Processes that still speak of this place: the demo's workers have it in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [one for one in found if "holdfast" in one and "worker" in one]


def test_the_demo_loses_and_doubles_nothing(place: Path) -> None:
    """Though a worker is killed on the way; and it leaves nothing behind."""
    result = demo("--jobs", "60")

    told = result.stdout
    assert result.returncode == 0, told + result.stderr
    assert row(told, "enqueued") == 60
    assert row(told, "dead letters") == 3
    assert row(told, "rescued") > 0
    assert [row(told, name) for name in FAULTS] == [0, 0, 0, 0]
    assert "killed worker process" in told
    assert os.listdir(place) == []
    assert alive(place) == []


def test_on_a_named_store_the_demo_removes_its_jobs(place: Path, shelf: Any) -> None:
    """Other tenants' jobs are not touched, not even by its workers."""
    shelf.add("mine", type="send_mail", queue="mail")

    result = demo("--jobs", "20", "--store", shelf.url)

    assert result.returncode == 0, result.stdout + result.stderr
    assert [(job.id, job.attempt) for job in shelf.all()] == [("mine", 0)]


def test_the_environments_store_is_not_played_on(
    place: Path, shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in earnest use."""
    monkeypatch.setenv("HOLDFAST_STORE", shelf.url)

    result = demo("--jobs", "20", "-q", "--keep")

    assert result.returncode == 0, result.stdout + result.stderr
    assert f"kept: sqlite:///{place}" in result.stdout
    assert shelf.all() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_cleans_up(place: Path, until: Any, number: signal.Signals) -> None:
    """No process and no file is left."""
    command = [sys.executable, "-m", "holdfast", "demo", "--jobs", "2000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until(lambda: len(alive(place)) >= 3)

    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 1, said
    assert b"Traceback" not in said
    assert os.listdir(place) == []
    assert alive(place) == []


def test_a_killed_demo_leaves_no_worker(place: Path, until: Any) -> None:
    """Its workers are tied to it."""
    command = [sys.executable, "-m", "holdfast", "demo", "--jobs", "2000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(alive(place)) >= 3)

    process.kill()
    process.wait()

    until(lambda: alive(place) == [])


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("--jobs", "3"), "not in the range", 2),
        (("--store", "memory://"), "processes cannot share memory:// [INVALID_CONFIG]", 1),
        (("--store", "sqlite:///x.db?events=off"), "needs a store with an event log", 1),
        (("--store", "foo://x"), "[UNKNOWN_STORE]", 1),
    ],
)
def test_what_cannot_be_played_on_is_told(
    place: Path, arguments: tuple[str, ...], words: str, code: int
) -> None:
    """Before anything is started."""
    result = demo(*arguments)

    assert result.returncode == code
    assert words in result.stderr
    assert os.listdir(place) == []


# -- the proof -------------------------------------------------------------------------------------

ONE = Ref("acme", "one")


def record(state: State) -> JobRecord:
    return JobRecord(
        tenant="acme",
        id="one",
        queue="q",
        envelope=Envelope("t", "json", 1, b"{}"),
        rules=Rules(),
        priority=0,
        key=None,
        group=None,
        tags=(),
        origin=None,
        seq=1,
        state=state,
        attempt=1,
        fence=1,
        lapses=0,
        misses=0,
        created_at=0,
        updated_at=0,
        run_at=0,
    )


def events(*facts: tuple[str, int, int, int | None]) -> list[Event]:
    """Events of one job from (kind, instant, fence, until)."""
    return [
        Event(number, at, EventKind(kind), "acme", "one", "q", "t", fence, fence, until)
        for number, (kind, at, fence, until) in enumerate(facts)
    ]


GOOD = events(
    ("enqueued", 0, 0, None),
    ("leased", 1, 1, 10),
    ("extended", 5, 1, 15),
    ("rescued", 15, 1, None),
    ("leased", 16, 2, 26),
    ("completed", 20, 2, None),
)


def test_a_rescued_and_completed_job_is_good() -> None:
    """One completion, and no lease before the last one had ended."""
    verdict = judge({ONE}, [record(State.COMPLETED)], GOOD)

    assert verdict.good
    assert (verdict.completed, verdict.rescued) == (1, 1)
    assert verdict.length_s == pytest.approx(20e-6)


def test_a_missing_record_is_a_lost_job() -> None:
    """Whatever the events say."""
    verdict = judge({ONE}, [], GOOD)

    assert (verdict.good, verdict.lost) == (False, [ONE])


def test_an_open_job_is_unfinished() -> None:
    """It is not lost, but not proven either."""
    verdict = judge({ONE}, [record(State.ENQUEUED)], GOOD[:1])

    assert (verdict.good, verdict.unfinished, verdict.lost) == (False, [ONE], [])


def test_two_completions_are_found() -> None:
    """Also when the record looks innocent."""
    again = [*GOOD, *events(("leased", 21, 3, 30), ("completed", 22, 3, None))]

    verdict = judge({ONE}, [record(State.COMPLETED)], again)

    assert (verdict.good, verdict.doubled) == (False, [ONE])


def test_a_completion_that_the_log_does_not_know_is_found() -> None:
    """Record and log must tell the same."""
    assert judge({ONE}, [record(State.COMPLETED)], GOOD[:-1]).doubled == [ONE]
    assert judge({ONE}, [record(State.CANCELED)], GOOD).doubled == [ONE]


@pytest.mark.parametrize(
    ("facts", "promise"),
    [
        ([("leased", 1, 1, 10), ("leased", 2, 2, 12), ("completed", 3, 2, None)], "P2"),
        ([("leased", 1, 1, 10), ("rescued", 5, 1, None), ("leased", 6, 2, 16)], "P2"),
        ([("leased", 1, 1, 10), ("released", 5, 1, None), ("leased", 6, 1, 16)], "P3"),
        ([("completed", 3, 1, None)], "P3"),
    ],
)
def test_broken_promises_are_found(
    facts: list[tuple[str, int, int, int | None]], promise: str
) -> None:
    """Two leases at once, one taken early, a fence that does not grow, an act without a lease."""
    verdict = judge({ONE}, [record(State.COMPLETED)], events(*facts))

    assert [breach.promise for breach in verdict.breaches] == [promise]
    assert not verdict.good
