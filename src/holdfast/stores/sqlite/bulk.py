"""Writes many rows in few statements.

`executemany` runs its statement once per row and releases Python's global lock each time, which is
half of the time of a short statement while other threads run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec

SIZES = (32, 8)
"""Rows of one statement. Only these sizes and single rows are used: the driver keeps few prepared.
"""
ALIKE_MIN = 8
"""Rows with the same values for which a statement of their own is faster."""

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


Pair = tuple[int | None, Any]
"""The sequence of a job, and the last value of its update."""


class Update(NamedTuple):
    """An UPDATE of many jobs. The last of its values may be another one for each of them."""

    alike: str
    """For jobs with the same values. Ends with their sequence numbers."""
    each: str
    """Begins with a row of marks for the sequence and the last value of a job."""


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


def update_rows(
    connection: sqlite3.Connection, update: Update, rows: Mapping[int, tuple[Any, ...]]
) -> None:
    """Runs an UPDATE for all of these rows: few statements also where the last value differs.

    The results of jobs differ. A statement for each of them takes four times as long.
    """
    groups: dict[tuple[Any, ...], dict[Any, list[int]]] = {}
    for seq, values in rows.items():
        groups.setdefault(values[:-1], {}).setdefault(values[-1], []).append(seq)
    for values, by_last in groups.items():
        number = sum(map(len, by_last.values()))
        if len(by_last) <= 1 + number // ALIKE_MIN:
            for last, seqs in by_last.items():
                connection.execute(update.alike, (*values, last, listed(seqs)))
        else:
            pairs: list[Pair] = [(seq, last) for last, seqs in by_last.items() for seq in seqs]
            _update_each(connection, update.each, values, pairs)


def _update_each(
    connection: sqlite3.Connection,
    statement: str,
    values: tuple[Any, ...],
    pairs: list[Pair],
) -> None:
    """Runs the statement for these jobs. A row of marks without a sequence is for none of them."""
    least = SIZES[-1]
    pairs += [(None, None)] * (-len(pairs) % least)
    start = 0
    for size in SIZES:
        while len(pairs) - start >= size:
            marks = chain.from_iterable(pairs[start : start + size])
            connection.execute(_repeated(statement, size), (*marks, *values))
            start += size


def listed(seqs: Sequence[int]) -> str:
    """Sequence numbers as the one value of a statement for many jobs."""
    return _encode(seqs).decode()


@cache
def _repeated(statement: str, number: int) -> str:
    head, _, rest = statement.partition("VALUES ")
    marks = rest[: rest.index(")") + 1]
    return f"{head}VALUES {', '.join([marks] * number)}{rest[len(marks) :]}"
