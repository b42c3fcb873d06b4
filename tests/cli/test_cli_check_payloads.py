"""`holdfast check-payloads`, as a build runs it: real processes, real exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Shelf

from holdfast.core.job import Envelope, NewJob, Rules

APP = """
from holdfast import App, Context

app = App("memory://")

@app.job
async def greet(ctx: Context, name: {type}) -> None: ...
"""
OWN = "sqlite:///own.db"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(shelf: Shelf, tmp_path: Path) -> Run:
    """The command in a folder with two versions of an app, on the store of the shelf."""
    (tmp_path / "old.py").write_text(APP.format(type="str"), "utf-8")
    (tmp_path / "new.py").write_text(APP.format(type="int"), "utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", "check-payloads", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_code_that_reads_everything_passes(shelf: Shelf, run: Run) -> None:
    """Exit code 0, and a line that says how much was read."""
    shelf.add("a")
    shelf.add("b")

    done = run("-q", "old:app", "--store", shelf.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "all 2 payloads can be read"


def test_code_that_cannot_read_a_payload_fails(shelf: Shelf, run: Run) -> None:
    """Exit code 1, with type, count and ids, and without the payload."""
    shelf.add("a")
    shelf.add("b", tenant="globex")
    shelf.add("c", type="gone")

    done = run("new:app", "--store", shelf.url)

    assert done.returncode == 1
    assert "Expected `int`, got `str` at $.name" in done.stdout
    assert "unreadable  greet  globex/b" in done.stdout
    assert "unknown_type  gone  acme/c" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 of 3 payloads cannot be read"
    assert "Ada" not in done.stdout + done.stderr


def test_json_has_the_groups_and_the_payloads_if_they_are_asked_for(shelf: Shelf, run: Run) -> None:
    """For builds that read it themselves."""
    shelf.add("a")

    report: dict[str, Any] = json.loads(
        run("--app", "new:app", "--store", shelf.url, "--json").stdout
    )
    loud = run("new:app", "--store", shelf.url, "--json", "--payloads").stdout

    assert (report["checked"], report["unreadable"], report["complete"]) == (1, 1, True)
    [group] = report["groups"]
    assert group == {
        "source": "job",
        "type": "greet",
        "version": 1,
        "codec": "json",
        "problem": "unreadable",
        "why": "Expected `int`, got `str` at $.name",
        "count": 1,
        "states": {"enqueued": 1},
        "samples": [{"tenant": "acme", "id": "a"}],
    }
    assert "Ada" in loud


def test_limits_and_tenants_narrow_what_is_read(shelf: Shelf, run: Run) -> None:
    """A part is read, and the command says so."""
    for number in range(3):
        shelf.add(f"j{number}")
    shelf.add("other", tenant="globex", type="gone")

    part = run("old:app", "--store", shelf.url, "--limit", "2", "--tenant", "acme")

    assert part.returncode == 0
    assert part.stderr.splitlines()[-1] == "there are more than 2 jobs: raise --limit to read all"
    assert run("old:app", "--store", shelf.url, "--tenant", "acme").returncode == 0
    assert run("old:app", "--store", shelf.url).returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("nowhere:app",), ("old:nothing",), ("old:app", "--samples", "many"), ("old",)],
    ids=str,
)
def test_a_wrong_call_is_no_finding(shelf: Shelf, run: Run, arguments: tuple[str, ...]) -> None:
    """Exit code 2, so that a build can tell it from a payload that cannot be read."""
    shelf.add("a")
    assert run(*arguments, "--store", shelf.url).returncode == 2


def test_it_changes_nothing(shelf: Shelf, run: Run, tmp_path: Path) -> None:
    """It publishes no types, makes no file, and leaves an older schema as it is."""
    job = NewJob(
        tenant="acme", id="a", queue="q", envelope=Envelope("gone", "json", 1, b"{}"), rules=Rules()
    )
    shelf.use(lambda store: store.enqueue([job]))
    before = shelf.use(lambda store: store.settings(under="type/"))

    run("old:app", "--store", shelf.url)
    missing = run("old:app", "--store", f"{shelf.url}.not-there")

    (tmp_path / "own.py").write_text(APP.format(type="str").replace("memory://", OWN), "utf-8")
    own = run("own:app")

    assert shelf.use(lambda store: store.settings(under="type/")) == before
    assert (own.returncode, (tmp_path / "own.db").exists()) == (1, False)
    assert missing.returncode == 1
    assert "there is no such database" in missing.stderr
    assert not Path(f"{shelf.path}.not-there").exists()
