"""`holdfast worker` and the lifespan of its app."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.job import State


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the app tells what it did."""
    folder = tmp_path / "told"
    folder.mkdir()
    monkeypatch.setenv("SHOP_TOLD", str(folder))
    return folder


def words(folder: Path) -> list[str]:
    """What was told, without the ids of the processes."""
    return sorted(path.name.partition("-")[0] for path in folder.iterdir())


def test_each_process_opens_its_own_once_and_closes_it(
    start: Any, shelf: Any, until: Any, told: Path
) -> None:
    """The parent, which runs no job, opens none."""
    ids = [shelf.add(f"job{n}") for n in range(4)]
    parent = start("worker", "--app", "shop_with_state:app", "--processes", "2")
    until(lambda: words(told) == ["open", "open"])
    until(lambda: all(shelf.get(id).state is State.COMPLETED for id in ids))

    parent.signal(signal.SIGTERM)

    assert parent.ended() == 0
    assert words(told) == ["close", "close", "open", "open"]
    assert not (told / f"open-{parent.popen.pid}").exists()


def test_a_failure_to_open_ends_the_command_with_its_reason(
    start: Any, shelf: Any, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is in the log with its traceback, and the job was never touched."""
    monkeypatch.setenv("SHOP_BROKEN", "1")
    id = shelf.add("job")

    worker = start("worker", "--app", "shop_with_state:app")

    assert worker.ended() == 1
    said = worker.said()
    assert "could not be opened: ConnectionRefusedError: no database [INVALID_CONFIG]" in said
    assert said.count("Traceback") == 1
    assert shelf.get(id).fence == 0
