"""Type checkers know argument names and types: mypy finds every mistake, and nothing else."""

from __future__ import annotations

from pathlib import Path

from mypy import api

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".mypy_cache" / "sample"
SAMPLE = HERE / "known_arguments.py"


def test_a_type_checker_finds_the_mistakes_that_are_marked_and_no_other() -> None:
    """Strict mypy also complains of a mark on a line without the marked mistake."""
    flags = ["--strict", "--config-file", "", "--cache-dir", str(CACHE), "--no-error-summary"]

    found, problems, status = api.run([*flags, str(SAMPLE)])

    assert (found, problems, status) == ("", "", 0)
    assert SAMPLE.read_text().count("# type: ignore[") == 12
