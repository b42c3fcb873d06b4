"""What the tables of a SQLite store hold."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def rows(path: Path, table: str) -> int:
    """How many rows a table has."""
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found
