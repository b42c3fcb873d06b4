"""`holdfast worker` as a process: drain, second signal, several processes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import operate
from holdfast.core.job import Envelope, NewJob, Rules, State


@pytest.fixture
def held(shelf: Any, tmp_path: Path) -> tuple[Path, Path]:
    """A job `one` that says when it runs, and waits until it is released."""
    started, release = tmp_path / "started", tmp_path / "release"
    body = msgspec.json.encode({"started": str(started), "release": str(release)})
    job = NewJob(
        tenant="acme",
        id="one",
        queue="default",
        envelope=Envelope("hold", "json", 1, body),
        rules=Rules(),
    )
    shelf.use(lambda store: store.enqueue([job]))
    return started, release


def children(process: Any) -> list[int]:
    """The processes a supervisor started, in the order of its log."""
    return [int(pid) for pid in re.findall(r"started \(pid (\d+)\)", process.said())]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_running_job_completes(
    start: Any, shelf: Any, until: Any, held: tuple[Path, Path], number: signal.Signals
) -> None:
    """What a deploy does: the job finishes, the exit code is 0."""
    started, release = held
    worker = start("worker", "--app", "shop:app", "--drain", "20")
    until(started.exists)

    worker.signal(number)
    release.touch()

    assert worker.ended() == 0
    assert shelf.get("one").state is State.COMPLETED
    assert "stopped" in worker.said()
    assert "Traceback" not in worker.said()


def test_a_drain_that_is_too_long_gives_the_lease_back_with_its_attempt(
    start: Any, shelf: Any, until: Any, held: tuple[Path, Path]
) -> None:
    """The next worker has it at once, and no attempt was spent."""
    started, _ = held
    worker = start("worker", "--app", "shop:app", "--drain", "200ms")
    until(started.exists)

    worker.signal(signal.SIGTERM)

    assert worker.ended() == 0
    job = shelf.get("one")
    assert (job.state, job.attempt, job.lapses) == (State.ENQUEUED, 0, 0)


def test_a_second_signal_stops_at_once(
    start: Any, shelf: Any, until: Any, held: tuple[Path, Path]
) -> None:
    """The lease is left to lapse: it is the way out that never hangs."""
    started, _ = held
    worker = start("-v", "worker", "--app", "shop:app", "--drain", "10m")
    until(started.exists)

    # Again and again, for two that come at the same instant count as one.
    until(lambda: worker.popen.poll() is not None or worker.signal(signal.SIGTERM))

    assert worker.ended() == 128 + signal.SIGTERM
    assert shelf.get("one").state is State.PROCESSING


def test_a_worker_keeps_to_its_tenants_and_queues(start: Any, shelf: Any, until: Any) -> None:
    """What others are for stays where it is."""
    shelf.add("mine", tenant="acme", queue="mail")
    shelf.add("foreign", tenant="globex", queue="mail")
    shelf.add("elsewhere", tenant="acme")

    start("worker", "--app", "shop:app", "--tenants", "acme", "--queues", "mail")

    until(lambda: shelf.get("mine").state is State.COMPLETED)
    assert shelf.get("foreign").attempt == 0
    assert shelf.get("elsewhere").attempt == 0


def test_a_failure_for_good_is_in_the_log(start: Any, shelf: Any, until: Any) -> None:
    """Once, with the job, its type, its tenant, the error and its traceback."""
    shelf.add("bad", type="fail", rules=Rules(max_attempts=1))

    worker = start("worker", "--app", "shop:app", "--no-upkeep")

    until(lambda: "job bad (fail, tenant acme)" in worker.said())
    until(lambda: worker.said().rstrip().endswith("ValueError: no good"))
    said = worker.said()
    assert "attempt 1 of 1 failed, no attempts left: ValueError: no good" in said
    assert (said.count("job bad"), said.count("Traceback")) == (1, 1)


def test_two_processes_restart_a_killed_child(start: Any, shelf: Any, until: Any) -> None:
    """And the drain of both ends with 0."""
    parent = start("worker", "--app", "shop:app", "--processes", "2", "--name", "w", "--lease", "1")
    names = until(lambda: _present(shelf) if len(_present(shelf)) == 2 else None)
    first, second = children(parent)

    os.kill(first, signal.SIGKILL)
    until(lambda: len(children(parent)) == 3)
    third = children(parent)[-1]
    until(lambda: third in _present(shelf).values())

    parent.signal(signal.SIGTERM)
    assert parent.ended() == 0
    assert set(names) == {"w-0", "w-1"}
    assert all(gone(pid) for pid in (first, second, third))
    assert "ended with -9; starting another" in parent.said()


def test_children_end_when_their_parent_is_killed(start: Any, shelf: Any, until: Any) -> None:
    """However it goes: nobody works on unseen."""
    parent = start("worker", "--app", "shop:app", "--processes", "2")
    until(lambda: len(_present(shelf)) == 2)
    pids = children(parent)

    parent.signal(signal.SIGKILL)

    until(lambda: all(gone(pid) for pid in pids))
    assert _present(shelf) == {}


def test_a_second_signal_stops_all_processes_at_once(
    start: Any, shelf: Any, until: Any, held: tuple[Path, Path]
) -> None:
    """The parent kills its children and says by its exit code that they did not end well."""
    started, _ = held
    parent = start("worker", "--app", "shop:app", "--processes", "2", "--drain", "10m")
    until(started.exists)
    until(lambda: len(_present(shelf)) == 2)

    parent.signal(signal.SIGINT)
    until(lambda: len(_present(shelf)) == 1)  # The idle one has drained already.
    parent.signal(signal.SIGINT)

    assert parent.ended() == 1
    assert all(gone(pid) for pid in children(parent))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--processes", "2", "--store", "memory://"), "several processes cannot share"),
        (("--lease", "0.01"), "setting 'lease_s'"),
        (("--app", "shop:other"), "the app has no job types"),
        (("--store", "sqlite:////no/such/folder/jobs.db"), "[STORE"),
    ],
)
def test_what_cannot_work_is_told_at_the_start(
    start: Any, arguments: tuple[str, ...], words: str
) -> None:
    """One line, exit code 1."""
    worker = start("worker", "--app", "shop:app", *arguments)

    assert worker.ended() == 1
    assert words in worker.said()
    assert "Traceback" not in worker.said()


def _present(shelf: Any) -> dict[str, int]:
    """The workers by name, with their process ids."""
    holds = shelf.use(operate.workers)
    return {hold.owner: msgspec.json.decode(hold.note)["pid"] for hold in holds}
