"""Which schema a file has, and how it gets to the newest."""

from __future__ import annotations

import sqlite3
from importlib import resources

from holdfast.clock import SystemClock
from holdfast.errors import SchemaTooNew, SchemaTooOld, StoreCorrupt
from holdfast.scope import slot_scope_of
from holdfast.stores.sqlite.counting import recount
from holdfast.stores.sqlite.gates import open_up
from holdfast.stores.sqlite.layout import APPLICATION_ID, SCHEMA_VERSION
from holdfast.stores.sqlite.rules import Rules
from holdfast.stores.sqlite.transaction import Transaction
from holdfast.stores.sqlite.unpacking import unpack

PACKED = 2
"""The one version that kept jobs in packs."""


def check(connection: sqlite3.Connection, path: str) -> None:
    """Refuses to work on a schema that this code was not written for; part of each transaction."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found != SCHEMA_VERSION:
        kind = SchemaTooNew if found > SCHEMA_VERSION else SchemaTooOld
        raise kind(store=path, found=found, known=SCHEMA_VERSION)


def version(connection: sqlite3.Connection, path: str) -> int:
    """The schema's version; 0 for an empty file. Refuses what is not ours, or newer than we are."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise StoreCorrupt(store=path, why="the file is another application's database")
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(store=path, found=found, known=SCHEMA_VERSION)
    return found if tables else 0


def run(connection: sqlite3.Connection, path: str) -> None:
    """Runs the missing migrations in the present transaction."""
    found = version(connection, path)
    for number, text in migrations():
        if number > found:
            for statement in _statements(text):
                connection.execute(statement)
    if 0 < found <= PACKED:
        _bring_up(connection)
    elif found == 0:
        unpack(connection)  # Drops the tables of packs, which are empty.
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _bring_up(connection: sqlite3.Connection) -> None:
    """What the statements of a migration cannot do: rows of packs, tenants of slots, new counts."""
    unpack(connection)
    for name, scope in connection.execute("SELECT name, scope FROM holds").fetchall():
        of = None if scope is None else slot_scope_of(name)
        if of is not None:
            connection.execute("UPDATE holds SET tenant = ? WHERE name = ?", (of.tenant, name))
    transaction = Transaction(connection, True, Rules())
    transaction.now = SystemClock().now()
    recount(transaction)
    open_up(transaction)
    transaction.flush()


def migrations() -> list[tuple[int, str]]:
    folder = resources.files("holdfast.stores.sqlite").joinpath("migrations")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files]


def _statements(text: str) -> list[str]:
    # Not executescript: it would commit the transaction that the migration runs in.
    statements, part = [], ""
    for line in text.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
