"""The SQL of the store: each function is defined once, is short, and is used."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.stores.postgres import schema

FOLDER = Path(schema.__file__).parent
FUNCTIONS = sorted((FOLDER / "sql" / "functions").glob("*.sql"))
DEFINED = re.compile(r"^CREATE OR REPLACE FUNCTION holdfast\.(\w+)\(.*?^\$\$;$", re.S | re.M)
FUNCTION_LINES_MAX = 80
FILE_LINES_MAX = 400


def definitions() -> list[tuple[str, str]]:
    return [(m[1], m[0]) for file in FUNCTIONS for m in DEFINED.finditer(file.read_text("utf-8"))]


def test_each_function_is_defined_once() -> None:
    """Whoever looks for a function finds its current definition."""
    names = [name for name, _ in definitions()]

    assert len(names) == schema.FUNCTIONS.count("CREATE OR REPLACE FUNCTION")
    assert sorted(names) == sorted(set(names))


def test_functions_and_files_are_short() -> None:
    """As in Python: what is longer has a part with a name of its own."""
    long = {name: text.count("\n") + 1 for name, text in definitions()}
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES_MAX} == {}
    for file in (FOLDER / "sql").rglob("*.sql"):
        assert len(file.read_text("utf-8").splitlines()) <= FILE_LINES_MAX, file.name
        assert max(map(len, file.read_text("utf-8").splitlines())) <= 100, file.name


def test_every_function_is_called() -> None:
    """By another function, a view or a statement of Python."""
    python = "".join(file.read_text("utf-8") for file in FOLDER.glob("*.py"))
    for name, text in definitions():
        elsewhere = schema.FUNCTIONS.replace(text, "") + schema.VIEWS + python
        assert re.search(rf"holdfast\.{name}\b", elsewhere), name
