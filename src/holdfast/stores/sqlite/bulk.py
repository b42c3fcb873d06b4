"""Writes many rows in few statements.

`executemany` runs its statement once per row and releases Python's global lock each time, which is
half of the time of a short insert while other threads run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

ROWS = 32
"""Rows of one statement. Only this size and single rows are used: the driver keeps few prepared."""


def insert_rows(
    connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]
) -> int:
    """Runs an INSERT with one row of marks for all of these rows; returns how many were written."""
    written = 0
    whole = len(rows) - len(rows) % ROWS
    for start in range(0, whole, ROWS):
        values = list(chain.from_iterable(rows[start : start + ROWS]))
        written += connection.execute(_repeated(statement), values).rowcount
    if whole < len(rows):
        written += connection.executemany(statement, rows[whole:]).rowcount
    return written


def for_seqs(connection: sqlite3.Connection, statement: str, seqs: Sequence[int]) -> None:
    """Runs a statement that ends in `IN` for all of these sequence numbers."""
    for start in range(0, len(seqs), ROWS):
        some = list(seqs[start : start + ROWS])
        connection.execute(_listed(statement), [*some, *[some[-1]] * (ROWS - len(some))])


@cache
def _repeated(statement: str) -> str:
    head, _, rest = statement.partition(" VALUES ")
    marks = rest[: rest.index(")") + 1]
    return f"{head} VALUES {', '.join([marks] * ROWS)}{rest[len(marks) :]}"


@cache
def _listed(statement: str) -> str:
    return f"{statement} ({', '.join('?' * ROWS)})"
