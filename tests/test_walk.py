"""The walk through the code is true: every file and function that its page names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "holdfast"
PAGE = ROOT / "docs" / "internals" / "walk.md"

NAMED = re.compile(r"`([\w/]+\.(?:py|sql|lua))(?:: ([\w.]+)(?:\(\))?)?`")
"""`path.py`, `path.py: function()`, `path.py: Class.method()` or `path.sql: function()`."""
FILES_MAX = 20
"""Files that the steps of one walk may name."""


def stores() -> dict[str, str]:
    """Each store's part of the page, by its heading."""
    _, *parts = re.split(r"^## (.+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def named(text: str) -> list[tuple[str, str]]:
    return [(path, name) for path, name in NAMED.findall(text)]


@pytest.mark.parametrize(("path", "name"), sorted(set(named(PAGE.read_text("utf-8")))))
def test_what_the_walk_names_exists(path: str, name: str) -> None:
    """A reader who follows the page opens each file and finds each function."""
    file = SRC / path

    assert file.is_file()
    if name:
        assert name in (python_names(file) if file.suffix == ".py" else sql_names(file))


def python_names(file: Path) -> set[str]:
    """Functions and classes of a module, and `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(f"{node.name}.{inner.name}")
    return found


def sql_names(file: Path) -> set[str]:
    """Functions that a file of SQL or Lua defines."""
    text = file.read_text("utf-8")
    return set(re.findall(r"\bfunction\s+(?:\w+\.)?(\w+)\s*\(", text, flags=re.IGNORECASE))


def test_the_walk_names_what_it_walks_through() -> None:
    """The search for names finds them: an empty list would prove nothing."""
    assert len(named(stores()["SQLite"])) > 30


@pytest.mark.parametrize("store", stores())
def test_a_walk_stays_within_few_files(store: str) -> None:
    """Whoever follows a job from enqueue to ack reads few files, the core's among them."""
    steps = stores()[store].partition("### Beside the walk")[0]

    assert len({path for path, _ in named(steps)}) <= FILES_MAX
