"""Guides are true: the commands of "Many customers" and the programs of it, of "Recipes from
Celery", "Calls to other services", "Effects exactly once" and "Large data by reference" say what
the pages show.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests import guide
from tests.service.live import serving

from holdfast.cli.main import cli

PAGE = Path(__file__).parent.parent / "docs" / "guides" / "tenants.md"
CELERY = PAGE.with_name("from_celery.md")
OUTBOUND = PAGE.with_name("outbound.md")
DEPLOY = PAGE.with_name("deploy_check.md")
EFFECTS = PAGE.with_name("effects.md")
BLOBS = PAGE.with_name("blobs.md")
STEPS = list(guide.steps(PAGE))
RUN_S = 120
END = "--- end of step ---"
KEYS = {"OPS": ("*", "admin"), "ACME": ("acme", "read")}
"""The keys that the page takes from the environment: of whom, and with which right."""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """An empty folder with the app of the page."""
    (tmp_path / "mail.py").write_text(guide.program(PAGE)[0], "utf-8")
    return tmp_path


def test_every_command_of_the_guide_says_what_is_shown(desk: Path) -> None:
    """In one shell, from the top of the page to its end, beside a service on the same store."""
    curl = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"curl (\d+)\.(\d+)", curl.stdout)
    if found is None or (int(found[1]), int(found[2])) < (7, 82):
        pytest.skip("no curl that knows --json")
    keys = _keys(desk)
    script = "".join(f"{step.command}\necho '{END}'\n" for step in STEPS)

    with serving(f"sqlite:///{desk / 'jobs.db'}", f"--keys={desk / 'keys.json'}") as url:
        done = subprocess.run(
            ["bash", "-u", "-c", f"exec 2>&1\n{script}"],
            cwd=desk,
            env=_environment() | keys | {"H": url},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    assert done.returncode == 0, done.stdout
    said = [_tidy(one) for one in done.stdout.split(f"{END}\n")[:-1]]
    assert list(zip([step.command for step in STEPS], said, strict=True)) == [
        (step.command, step.said) for step in STEPS
    ]


def test_every_command_of_the_deploy_check_says_what_is_shown(tmp_path: Path) -> None:
    """As a build would run them, in one folder with the program of the page."""
    (tmp_path / "shop.py").write_text("\n\n".join(guide.program(DEPLOY)), "utf-8")
    shown = list(guide.steps(DEPLOY))
    script = "".join(f"{step.command}\necho '{END}'\n" for step in shown)

    done = subprocess.run(
        ["bash", "-u", "-c", f"exec 2>&1\n{script}"],
        cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=RUN_S,
        check=False,
    )  # fmt: skip

    said = [_tidy(one) for one in done.stdout.split(f"{END}\n")[:-1]]
    assert said == [step.said for step in shown]
    assert len(said) > 4


def _keys(desk: Path) -> dict[str, str]:
    """Makes the keys and their file."""
    entries, keys = [], {}
    for name, (tenant, right) in KEYS.items():
        arguments = ["keys", "new", name, "--tenant", tenant, "--right", right, "--json"]
        made = json.loads(CliRunner().invoke(cli, arguments).stdout)
        keys[name] = made["key"]
        entries.append(made["entry"])
    (desk / "keys.json").write_text(json.dumps({"keys": entries}), "utf-8")
    return keys


def _environment() -> dict[str, str]:
    """With the `holdfast` of this interpreter, and no other store than the page's."""
    env = {name: one for name, one in os.environ.items() if not name.startswith("HOLDFAST_")}
    return env | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}


def _tidy(said: str) -> str:
    """Without spaces at the ends of lines, as the page is."""
    return "\n".join(line.rstrip() for line in said.splitlines())


PROGRAMS = [PAGE, CELERY, OUTBOUND, EFFECTS, BLOBS]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)
def test_every_program_of_the_guide_prints_what_is_shown(desk: Path, page: Path) -> None:
    """As one program, from the top of the page to its end."""
    (desk / "page.py").write_text("\n\n".join(guide.program(page)), "utf-8")

    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=desk, env=_environment(), capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == guide.printed(page)


def test_no_command_of_the_guide_is_left_out() -> None:
    """An indented command without its `$` would not be run; nor would one within a sentence."""
    assert len(STEPS) > 25
    assert [
        one for one in guide.blocks(PAGE) if not one[0].startswith("$ ") and _commands(one)
    ] == []
    run = [step.command for step in STEPS]
    assert [
        one for one in _within_sentences() if not any(each.startswith(one) for each in run)
    ] == []


def _commands(block: list[str]) -> list[str]:
    return [line for line in block if re.match(r"(holdfast|curl) ", line.strip())]


def _within_sentences() -> Iterator[str]:
    """Commands with options, which a reader copies. The name of a command alone is none."""
    for line in guide.prose(PAGE):
        for found in re.findall(r"`(holdfast [^`]+)`", line):
            if " -" in found:
                yield found


def test_the_shell_of_the_test_has_what_the_page_needs() -> None:
    """The page's commands are those of this project, not of another one on the path."""
    found = shutil.which("holdfast", path=_environment()["PATH"])

    assert found is not None
    assert Path(found).parent == Path(sys.executable).parent
