"""The command line as a whole: help, apps, extras, doctor, migrate, completion."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.environment import unmeasured

from holdfast.cli.main import COMMANDS
from holdfast.store import Take
from holdfast.worker_registry import Present


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=unmeasured()
    )


def test_help_names_the_commands_and_the_exit_codes(run: Any) -> None:
    """What a newcomer asks first."""
    told = run("--help").stdout

    assert "Exit codes:" in told
    assert "HOLDFAST_STORE" in told
    assert all(command.name in told for command in COMMANDS if command.name is not None)


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_every_command_has_its_own_help(run: Any, command: str) -> None:
    """Also where nothing is set up."""
    result = run(command, "--help")

    assert result.exit_code == 0
    assert "Usage: holdfast " + command in result.stdout


def test_version_is_told(run: Any) -> None:
    """For bug reports."""
    assert run("--version").stdout.startswith("holdfast, version ")


def test_the_later_store_wins(run: Any, shelf: Any, tmp_path: Path) -> None:
    """After the command's name, before it, by the environment."""
    shelf.add("one")
    empty = f"sqlite:///{tmp_path / 'empty.db'}"
    run("migrate", "--store", empty)

    assert "one" in run("jobs").stdout
    assert run("--store", empty, "jobs").stdout == "no jobs\n"
    assert "one" in run("--store", empty, "jobs", "--store", shelf.url).stdout


@pytest.mark.parametrize("command", ["jobs", "queues", "dead list", "events", "workers"])
def test_looking_at_a_store_that_is_not_there_makes_none(
    run: Any, tmp_path: Path, command: str
) -> None:
    """A mistyped path is an error, not an empty queue."""
    place = tmp_path / "mistyped.db"

    result = run(*command.split(), "--store", f"sqlite:///{place}")

    assert result.exit_code == 1
    assert "there is no such database [STORE_UNAVAILABLE]" in result.stderr
    assert not place.exists()


@pytest.mark.usefixtures("in_shop")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shop", "must be module:attribute"),
        (":app", "must be module:attribute"),
        ("shopp:app", "there is no module 'shopp'"),
        ("shop.deep:app", "there is no module 'shop.deep'"),
        ("shop:ap", "module 'shop' has no 'ap'. Did you mean 'app'?"),
        ("shop:queue_of_the_house", "Its apps: app, other"),
        ("shop:number", "'shop:number' is a int, not an App"),
    ],
)
def test_an_app_that_is_not_there_is_named(run: Any, name: str, words: str) -> None:
    """What was not found, and what may have been meant."""
    result = run("worker", "--app", name)

    assert result.exit_code == 1
    assert words in result.stderr
    assert "[INVALID_CONFIG]" in result.stderr


def test_an_app_that_cannot_be_imported_says_where(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File, line and error; one line."""
    (tmp_path / "broken_shop.py").write_text("import holdfast\nnothing_there\n")
    monkeypatch.chdir(tmp_path)

    result = run("worker", "--app", "broken_shop:app")

    assert result.exit_code == 1
    assert "broken_shop.py:2: NameError: name 'nothing_there'" in result.stderr


def test_worker_without_an_app_says_how_to_name_one(run: Any) -> None:
    """--app or the environment."""
    result = run("worker")

    assert result.exit_code == 1
    assert "no app: give --app MODULE:ATTR or set HOLDFAST_APP" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tenants", "a,,b"), "has an empty name"),
        (("--concurrency", "0"), "not in the range"),
        (("--processes", "0"), "not in the range"),
        (("--lease", "long"), "is not a duration"),
    ],
)
def test_bad_worker_options_are_usage_errors(
    run: Any, arguments: tuple[str, ...], words: str
) -> None:
    """Before anything is started."""
    result = run("worker", "--app", "shop:app", *arguments)

    assert result.exit_code == 2
    assert words in result.stderr


def test_doctor_finds_a_sound_store_sound(run: Any, shelf: Any) -> None:
    """Words and JSON; dead letters are a warning and no error."""
    shelf.bury("dead1")

    told = run("doctor", shelf.url)
    data = json.loads(run("doctor", "--json").stdout)

    assert told.exit_code == 0
    assert "✓ ok" in told.stdout
    assert "! warning" in told.stdout
    whats = {one["what"] for one in data if one["level"] == "ok"}
    assert {"SQLite", "journal", "durability", "integrity", "file", "wake-up"} <= whats


def test_doctor_names_jobs_in_queues_that_nobody_serves(run: Any, shelf: Any) -> None:
    """Workers are there, and yet these will never run."""
    for number in range(3):
        shelf.add(f"mail{number}", queue="mail")
    shelf.add("other", queue="other", tenant="globex")
    shelf.add("served", queue="served")
    note = Present(
        pid=1, tenants=None, queues=("served",), types=(), concurrency=1, running=0, held=0
    )
    take = Take("worker/w", "w", 60_000_000, msgspec.json.encode(note).decode())
    alone = run("doctor", shelf.url).stdout
    shelf.use(lambda store: store.hold([take]))

    told = run("doctor", shelf.url).stdout

    assert "5 jobs waiting and no worker is present" in alone
    line = next(line for line in told.splitlines() if "workers:" in line)
    assert "no worker serves 'mail' of 'acme' (3 jobs), 'other' of 'globex' (1 job)" in line
    assert "'served'" not in told


def test_doctor_warns_of_what_a_power_loss_may_take(run: Any, shelf: Any) -> None:
    """synchronous=normal is a choice; it should be a known one."""
    told = run("doctor", f"{shelf.url}?synchronous=normal").stdout

    assert "! warning  durability: synchronous=normal" in told


def test_doctor_calls_a_broken_store_bad(run: Any, shelf: Any) -> None:
    """Exit code 1, with the reason in words."""
    shelf.path.write_text("this is no database, whatever its name says " * 100)

    for url in (shelf.url, "foo://x"):
        result = run("doctor", url)
        assert result.exit_code == 1
        assert "✗ bad" in result.stdout


def test_migrate_tells_the_version(run: Any) -> None:
    """Safe to repeat."""
    first, second = run("migrate"), run("migrate", "--json")

    assert first.stdout.startswith("the schema is at version ")
    assert json.loads(second.stdout)["version"] >= 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Any, shell: str) -> None:
    """Each shell gets its own."""
    result = run("completion", shell)

    assert result.exit_code == 0
    assert "_HOLDFAST_COMPLETE" in result.stdout


def test_importing_holdfast_brings_no_command_line() -> None:
    """An application that only enqueues pays for neither click nor rich."""
    code = "import sys, holdfast; print(sorted({'click', 'rich', 'anyio'} & set(sys.modules)))"

    assert python(code).stdout == "[]\n"


def test_help_loads_neither_stores_nor_tables() -> None:
    """The command line starts fast."""
    code = (
        "import sys; from holdfast.cli.main import cli; cli(['--help'], standalone_mode=False);"
        "print({'rich', 'sqlite3', 'anyio', 'holdfast.worker.worker'} & set(sys.modules))"
    )

    assert python(code).stdout.endswith("set()\n")


@pytest.mark.parametrize(
    ("package", "arguments"), [("click", ["--help"]), ("rich", ["jobs"]), ("rich", ["demo"])]
)
def test_a_missing_extra_is_named(shelf: Any, package: str, arguments: list[str]) -> None:
    """One line that says what to install, before anything is done."""
    shelf.add("one")
    code = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "from holdfast import operate\n"
        "from holdfast.__main__ import main\n"
        "main()"
    )

    result = python(code, "--store", shelf.url, *arguments)

    assert result.returncode == 1
    assert result.stderr == (
        f"holdfast: the command line needs the package {package!r}:"
        " pip install 'holdfast[cli]' [MISSING_EXTRA]\n"
    )
    assert result.stdout == ""
