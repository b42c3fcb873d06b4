"""Rows of the database as the values of the contract, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import TERMINAL, Event, JobRecord, Lease, Reason, Rules, State
from holdfast.core.journal import Entry
from holdfast.core.lifecycle import Transition
from holdfast.store import Claim
from holdfast.stores import sql_rows
from holdfast.stores.sql_rows import KINDS, STATES, Columns

TAGS_BETWEEN = "\x1f"
"""Between the tags of a job on their way to the server; no name can hold it."""


def column(values: list[Any], empty: Any = None) -> list[Any] | None:
    """The values of one field, or None where no job has any: then nothing needs to be sent."""
    return None if values.count(empty) == len(values) else values


AWAITING = (State.WAITING, State.SCHEDULED)
"""States in which a job may await something."""
_RULES = 7  # Its place in `statements.LIVE`.
_NO_RULES = sql_rows.rules_text(Rules())


def record(row: Columns, now: Micros) -> JobRecord:
    """The job of a row with the columns of `statements.LIVE` or `DONE`; with default rules where
    they cannot be read, which a claim will find out.
    """
    *shown, awaits = row
    try:
        job = sql_rows.record(shown, now, tuple)
    except (msgspec.MsgspecError, ValueError, ArithmeticError):
        shown[_RULES] = _NO_RULES
        job = sql_rows.record(shown, now, tuple)
    if awaits is None or job.state not in AWAITING:
        return job
    return msgspec.structs.replace(job, awaits=awaits)


JournalOf = Callable[[int], tuple[tuple[Entry, ...], int]]
"""What the lease of a job brings of its journal, by its sequence, and how many entries it leaves
out.
"""


def read_leases(
    rows: Sequence[Columns], claim: Claim, journal_of: JournalOf
) -> tuple[list[Lease], list[Transition]]:
    """What the rows of a claim give; and what becomes of jobs whose rows cannot be read."""
    read: list[Lease] = []
    unreadable: list[Transition] = []
    for row in rows:
        try:
            read.append(_lease(row, claim, journal_of))
        except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:
            unreadable.append(_unreadable(row, claim, f"the stored record cannot be read: {error}"))
    return read, unreadable


def _unreadable(row: Columns, claim: Claim, why: str) -> Transition:
    return Transition(
        tenant=row[1],
        id=row[2],
        token=f"{claim.nonce}.{row[14]}",
        to=State.FAILED,
        reason=Reason.DECODE,
        error=why,
    )


def _lease(row: Columns, claim: Claim, journal_of: JournalOf) -> Lease:
    """A row of the type `lease`."""
    (
        _, tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
        origin, seq, attempt, fence, lapses, misses, created_at, updated_at, run_at, expires_at,
        lease_until, reason, error, journal, *_,
    ) = row  # fmt: skip
    entries, left_out = ((), 0) if journal is None else journal_of(seq)
    job = sql_rows.record(
        (
            tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
            origin, seq, "processing", attempt, fence, lapses, misses, created_at, updated_at,
            run_at, expires_at, lease_until, claim.worker, None, reason, error, None, None, None,
        ),
        updated_at,
        tuple,
    )  # fmt: skip
    return Lease(job, f"{claim.nonce}.{seq}", lease_until, entries, left_out)


def seq_of(token: str | None) -> int:
    """The job's sequence, which our tokens end with; 0 for a token that is not ours."""
    digits = (token or "").rpartition(".")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else 0


class Parent(NamedTuple):
    """A job that has ended or was deleted, whose edges have to be followed."""

    seq: int
    edges: int
    followed: int
    tenant: str
    id: str
    state: str


class Row(sql_rows.Row):
    """With what an act asks of it here."""

    __slots__ = ("edges", "journal")

    def __init__(self, row: Columns) -> None:
        *common, awaits, journal, edges = row
        super().__init__(common)
        self.awaits: str | None = awaits
        self.journal: str | None = journal
        """The size of its journal; None without one."""
        self.edges: int | None = edges
        """How many jobs await its end; None for none."""

    @property
    def as_parent(self) -> Parent:
        assert self.edges is not None, "nobody awaits it"
        return Parent(self.seq, self.edges, 0, self.tenant, self.id, self.state.value)

    @property
    def lived(self) -> bool:
        """It had not ended when it was read."""
        return STATES.get(self.was) not in TERMINAL

    def keep_until(self) -> Micros:
        try:
            return super().keep_until()
        except (msgspec.MsgspecError, ValueError, ArithmeticError):
            self.rules = _NO_RULES
            return super().keep_until()


def event(row: Columns) -> Event:
    cursor, at, kind, *rest = row
    return Event(cursor, at, KINDS[kind], *rest)


NOWHERE = "\x01"
"""Stands for a text that PostgreSQL cannot hold: no name and no token has a control character."""


def asked(text: str) -> str:
    """A name or token as it can be asked for: one that cannot be stored is nowhere, and must not
    fail the others of its call.
    """
    if text.isascii() and "\0" not in text:
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return NOWHERE
    return NOWHERE if "\0" in text else text


def plain(text: str | None) -> str | None:
    """The text with what PostgreSQL cannot hold spelled out: lone surrogates, which error texts
    have when they quote file names, and zero characters. An error text must never fail an ack.
    """
    if text is None:
        return text
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
