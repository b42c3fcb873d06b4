"""Migrate: which schema a file has, and how it gets the newest.

`SCHEMA` makes the schema of a new file; `UPGRADES` brings older files to it. Files of
versions 1 and 2, which only development versions wrote, are refused and left as they are.
"""

from __future__ import annotations

import sqlite3
from importlib import resources

from holdfast.core.errors import SchemaTooNew, SchemaTooOld, StoreCorrupt, StoreUnsupported
from holdfast.stores.sqlite.layout import APPLICATION_ID, SCHEMA_VERSION

SCHEMA = ("schema.sql", "journals.sql", "edges.sql", "lines.sql", "sources.sql")
"""The scripts that make the tables of a new file."""

UPGRADES = {
    3: ("upgrade_3.sql",),
    4: ("upgrade_4.sql", "lines.sql"),
    5: ("upgrade_5.sql", "journals.sql"),
    6: ("upgrade_6.sql", "edges.sql", "upgrade_6_edges.sql"),
    7: ("sources.sql",),
}
"""Version -> the scripts that bring a file of it to the next version."""


def check_version(connection: sqlite3.Connection, path: str) -> None:
    """Refuses to work on a schema that this code was not written for; part of each transaction."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found != SCHEMA_VERSION:
        _refuse(found, path)
        raise SchemaTooOld(store=path, found=found, known=SCHEMA_VERSION)


def version(connection: sqlite3.Connection, path: str) -> int:
    """The version of the schema; 0 for an empty file. Refuses every file that cannot be used."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise StoreCorrupt(store=path, why="the file is another application's database")
    if not tables:
        return 0
    _refuse(found, path)
    return found


def _refuse(found: int, path: str) -> None:
    """Raises for a version that this code can neither use nor upgrade."""
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(store=path, found=found, known=SCHEMA_VERSION)
    if 0 < found < min(UPGRADES):
        what = (
            f"a file of schema version {found}, which a development version of holdfast wrote; "
            "finish its jobs with the version that wrote it, then start with a new file"
        )
        raise StoreUnsupported(store=path, feature=what)


def run(connection: sqlite3.Connection, path: str) -> None:
    """Creates or upgrades the schema in the present transaction."""
    found = version(connection, path)
    for statement in _missing(found):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _missing(found: int) -> list[str]:
    """The statements that a file of this version lacks."""
    scripts = list(SCHEMA)
    if found:
        scripts = [each for old in range(found, SCHEMA_VERSION) for each in UPGRADES[old]]
    return [statement for script in scripts for statement in _statements(script)]


def _statements(script: str) -> list[str]:
    text = resources.files("holdfast.stores.sqlite").joinpath(script).read_text("utf-8")
    # Not executescript: it would commit the transaction that creates the schema.
    statements, part = [], ""
    for line in text.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
