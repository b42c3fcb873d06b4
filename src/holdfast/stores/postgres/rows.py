"""Rows of the database as the values of the contract, and back."""

from __future__ import annotations

from holdfast.clock import Micros
from holdfast.job import TERMINAL, Envelope, Event, JobRecord, Lease, State
from holdfast.store import Claim
from holdfast.stores import sql_rows
from holdfast.stores.sql_rows import KINDS, STATES, Columns, rules_of

TAGS_BETWEEN = "\x1f"
"""Between the tags of a job on their way to the server; no name can hold it."""


def record(row: Columns, now: Micros) -> JobRecord:
    """The job of a row with the columns of `statements.LIVE` or `DONE`."""
    return sql_rows.record(row, now, tuple)


def leases(row: Columns, claim: Claim) -> list[Lease]:
    """What a row of `holdfast.leased` gives: a job, or a piece."""
    (
        _, tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
        origin, seq, attempt, fence, lapses, misses, created_at, updated_at, run_at, expires_at,
        lease_until, reason, error, ids, payloads,
    ) = row  # fmt: skip
    if ids is not None:
        rules, worker, nonce = rules_of(rules), claim.worker, claim.nonce
        return [
            Lease(
                JobRecord(
                    tenant, id, queue, Envelope(type, codec, version, payload), rules, priority,
                    None, None, (), None, seq, State.PROCESSING, attempt, fence, lapses, misses,
                    created_at, updated_at, run_at, None, lease_until, worker,
                ),
                f"{nonce}.{seq}",
                lease_until,
            )
            for seq, (id, payload) in enumerate(zip(ids, payloads, strict=True), seq)
        ]  # fmt: skip
    job = record(
        (
            tenant, id, queue, type, codec, version, payload, rules, priority, key, group, tags,
            origin, seq, "processing", attempt, fence, lapses, misses, created_at, updated_at,
            run_at, expires_at, lease_until, claim.worker, None, reason, error, None, None, None,
        ),
        updated_at,
    )  # fmt: skip
    return [Lease(job, f"{claim.nonce}.{seq}", lease_until)]


def seq_of(token: str | None) -> int:
    """The job's sequence, which our tokens end with; 0 for a token that is not ours."""
    digits = (token or "").rpartition(".")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 19 else 0


class Row(sql_rows.Row):
    """With what an act asks of it here."""

    __slots__ = ()

    @property
    def lived(self) -> bool:
        """It had not ended when it was read."""
        return STATES.get(self.was) not in TERMINAL


def event(row: Columns) -> Event:
    cursor, at, kind, *rest = row
    return Event(cursor, at, KINDS[kind], *rest)


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
