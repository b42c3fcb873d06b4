"""Type checkers know arguments and results: both find every mistake, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mypy import api

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".mypy_cache" / "sample"
SAMPLE = HERE / "known_arguments.py"
MISTAKES = 25
PYRIGHT = "pyright@1.1.414"
"""By npm: the package of PyPI only loads it from there."""
PYRIGHT_S = 120


def test_a_type_checker_finds_the_mistakes_that_are_marked_and_no_other() -> None:
    """Strict mypy also complains of a mark on a line without the marked mistake."""
    flags = ["--strict", "--config-file", "", "--cache-dir", str(CACHE), "--no-error-summary"]

    found, problems, status = api.run([*flags, str(SAMPLE)])

    assert (found, problems, status) == ("", "", 0)
    assert SAMPLE.read_text().count("# type: ignore[") == MISTAKES


def test_pyright_finds_the_same_mistakes_and_no_other(tmp_path: Path) -> None:
    """Also wrong arguments of a job that is a class."""
    config = {
        "include": [SAMPLE.name],
        "pythonVersion": "3.11",
        "extraPaths": [str(HERE.parent.parent / "src")],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    shutil.copy(SAMPLE, tmp_path)

    told = pyright(tmp_path)

    found = [(one["range"]["start"]["line"] + 1, one["message"]) for one in told["found"]]
    assert (told["files"], found) == (1, [])


def pyright(folder: Path) -> dict[str, Any]:
    """How many files it read and what it found; without npm the test is skipped."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("there is no npx to run pyright with")
    command = [npx, "--yes", PYRIGHT, "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run(
        [*command, "-p", str(folder)],
        capture_output=True,
        text=True,
        timeout=PYRIGHT_S,
        check=False,
    )
    try:
        told = json.loads(ran.stdout)
        return {"files": told["summary"]["filesAnalyzed"], "found": told["generalDiagnostics"]}
    except (ValueError, KeyError):
        pytest.skip(f"npx could not get {PYRIGHT}: {ran.stderr.strip()[-200:]}")
