"""The page of SQLite is true: each of its commands runs, and it names every option."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.core import bounds
from holdfast.stores.sqlite import writer
from holdfast.stores.sqlite.layout import INLINE_MAX
from holdfast.stores.sqlite.options import Options

PAGE = Path(__file__).parents[3] / "docs" / "stores" / "sqlite.md"
COMMAND_S_MAX = 60


def commands() -> list[str]:
    """The indented lines of the page."""
    fenced, found = False, []
    for line in PAGE.read_text("utf-8").splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("    ") and not fenced:
            found.append(line.strip())
    return found


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the shell of SQLite is not installed")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """A reader copies them in their order: in an empty directory they must work as they stand."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

    ran = [
        subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        for command in commands()
    ]

    assert len(ran) == 4
    assert [one.stderr for one in ran if one.returncode != 0] == []
    assert (tmp_path / "copy.db").exists()


def test_the_page_names_every_option_and_number() -> None:
    """What it says of options and bounds is what the code has."""
    text = PAGE.read_text("utf-8")

    for option in msgspec.structs.fields(Options):
        assert option.name == "path" or f"| `{option.name}` |" in text
    assert f"an enqueue of at most {writer.INLINE_JOBS_MAX} jobs" in text.lower()
    assert f"took less than {writer.INLINE_COMMIT_S_MAX * 1000:g} ms each" in text
    assert f"longer than {INLINE_MAX:,} bytes" in text
    assert f"reads for more than {bounds.READ_S_MAX:g} seconds" in text
