"""Writes many rows in few statements.

`executemany` runs its statement once per row and releases Python's global lock each time, which is
half of the time of a short statement while other threads run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import msgspec

SIZES = (32, 8)
"""Rows of one statement. Only these sizes and single rows are used: the driver keeps few prepared.
"""

_encode = msgspec.json.Encoder().encode


def insert_rows(
    connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]
) -> int:
    """Runs an INSERT with one row of marks for all of these rows; returns how many were written."""
    written = start = 0
    for size in SIZES:
        while len(rows) - start >= size:
            values = list(chain.from_iterable(rows[start : start + size]))
            written += connection.execute(_repeated(statement, size), values).rowcount
            start += size
    if start < len(rows):
        written += connection.executemany(statement, rows[start:]).rowcount
    return written


def update_alike(
    connection: sqlite3.Connection, statement: str, rows: Mapping[int, tuple[Any, ...]]
) -> None:
    """Runs an UPDATE that ends with the sequence numbers, once for all rows with the same values.

    Most jobs of an ack get the same: one statement takes a third of the time of one for each row.
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for seq, values in rows.items():
        alike.setdefault(values, []).append(seq)
    for values, seqs in alike.items():
        connection.execute(statement, (*values, listed(seqs)))


def listed(seqs: Sequence[int]) -> str:
    """Sequence numbers as the one value of a statement for many jobs."""
    return _encode(seqs).decode()


@cache
def _repeated(statement: str, number: int) -> str:
    head, _, rest = statement.partition(" VALUES ")
    marks = rest[: rest.index(")") + 1]
    return f"{head} VALUES {', '.join([marks] * number)}{rest[len(marks) :]}"
