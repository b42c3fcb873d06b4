"""`app.sync` in a forked child, as under `gunicorn --preload`: it works, or refuses at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.servers.kinds import KINDS

POSTGRES = next(kind for kind in reversed(KINDS) if kind.startswith("postgres"))
PROGRAM_S = 60


def said_by(url: str) -> dict[str, str]:
    """What the program says over this store."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.stores.forking", url],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, str] = json.loads(ran.stdout)
    return said


@pytest.mark.parametrize("server", [POSTGRES, "redis", "remote"], indirect=True)
def test_a_forked_child_opens_the_store_for_itself(url: Callable[[str], str]) -> None:
    """What both sides enqueued is kept (P1)."""
    said = said_by(url("jobs"))

    assert said == {
        "parent": "kept",
        "child": "kept",
        "other": "kept",
        "again": "kept",
        "closed": "kept",
        "ids": "again child closed other parent",
    }


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
def test_a_file_that_is_open_across_a_fork_is_refused_at_once(url: Callable[[str], str]) -> None:
    """SQLite's locks of the parent do not hold for the child: its jobs would be lost with the log
    when the parent closes the file (P1).
    """
    said = said_by(url("jobs"))

    assert said["child"].startswith("StoreUnavailable")
    assert "close it before the fork" in said["child"]
    assert said["other"] == said["child"]
    assert (said["again"], said["closed"]) == ("kept", "kept")
    assert said["ids"] == "again closed parent"


@pytest.mark.parametrize("server", ["memory"], indirect=True)
def test_a_memory_store_is_refused_in_a_forked_child(url: Callable[[str], str]) -> None:
    """The child has a copy of it, whose jobs nobody else would ever see."""
    said = said_by(url("jobs"))

    assert said["child"].startswith("StoreUnavailable")
    assert "cannot be shared with a forked process" in said["child"]
    assert said["closed"] == said["child"]
    assert (said["other"], said["again"]) == ("kept", "kept")
    assert said["ids"] == "again parent"
