"""Style is a test for SQL and Lua too: sizes, and each function defined once."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "holdfast"

SQL_FILE_LINES_MAX = 400
LUA_FILE_LINES_MAX = 250
SQL_FUNCTION_LINES_MAX = 80

_CREATE = re.compile(
    r"^CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\s+([\w.\"]+)", re.IGNORECASE | re.M
)
_BODY = re.compile(r"\bAS\s+(\$\w*\$)", re.IGNORECASE)


class Function(NamedTuple):
    """A definition of an SQL function, from CREATE to the end of its statement."""

    name: str
    path: Path
    line: int
    lines: int

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}: {self.name} ({self.lines} lines)"


def files(ending: str) -> list[Path]:
    return sorted(SRC.rglob(f"*.{ending}"))


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def definitions(path: Path, text: str) -> list[Function]:
    """All of a file. The words inside a body are no definitions."""
    found, after = [], 0
    for created in _CREATE.finditer(text):
        if created.start() < after:
            continue
        after = _end(text, created.end())
        line = text.count("\n", 0, created.start()) + 1
        lines = text.count("\n", created.start(), after) + 1
        found.append(Function(created.group(1).rpartition(".")[2], path, line, lines))
    return found


def _end(text: str, start: int) -> int:
    """Of the statement: the semicolon after a body between dollars, or after one without."""
    body = _BODY.search(text, start)
    closing = text.find(";", start)
    if body is not None and (closing < 0 or body.start() < closing):
        closed = text.index(body.group(1), body.end()) + len(body.group(1))
        closing = text.find(";", closed)
    return len(text) if closing < 0 else closing + 1


def all_functions() -> list[Function]:
    return [one for path in files("sql") for one in definitions(path, path.read_text())]


@pytest.mark.parametrize(
    ("ending", "most"), [("sql", SQL_FILE_LINES_MAX), ("lua", LUA_FILE_LINES_MAX)]
)
def test_native_files_are_short(ending: str, most: int) -> None:
    """A file is one concern, as in Python."""
    found = files(ending)

    assert found
    assert [f"{path.name}: {lines_of(path)}" for path in found if lines_of(path) > most] == []


def test_sql_functions_are_short() -> None:
    """One that is longer does several things."""
    found = all_functions()

    assert found
    assert [str(one) for one in found if one.lines > SQL_FUNCTION_LINES_MAX] == []


def test_no_sql_function_is_defined_twice() -> None:
    """A reader who finds a definition has found the one that runs."""
    by_name = defaultdict(list)
    for one in all_functions():
        by_name[one.name].append(str(one))

    assert {name: places for name, places in by_name.items() if len(places) > 1} == {}


def test_definitions_are_found_by_their_statements() -> None:
    """With either kind of body, and not by what a body says."""
    text = """
CREATE FUNCTION hf.one() RETURNS int LANGUAGE sql AS $$
CREATE FUNCTION inner_one() is no definition;
SELECT 1
$$;

create or replace function hf.two(a int)
RETURNS int LANGUAGE plpgsql AS $body$
BEGIN
    RETURN 1;
END $body$ SECURITY DEFINER;
CREATE FUNCTION three() RETURNS int RETURN 3;
"""
    found = definitions(Path("a.sql"), text)

    assert [(one.name, one.line, one.lines) for one in found] == [
        ("one", 2, 4),
        ("two", 7, 5),
        ("three", 12, 1),
    ]
