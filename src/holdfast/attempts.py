"""The errors of a job's last attempts, as they are kept in its journal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.core.bounds import ERROR_BYTES_MAX, ERRORS_MAX, INSTANT_MAX
from holdfast.core.clock import Micros
from holdfast.core.journal import Entry, EntryKind

Instant = Annotated[Micros, Meta(ge=0, le=INSTANT_MAX)]
UNREADABLE = (ValueError, RecursionError)
"""What reading foreign JSON raises: for bad text, another shape, deep nesting."""


class AttemptError(msgspec.Struct, frozen=True, kw_only=True):
    """Why one attempt failed. Its instants are of the store's clock."""

    attempt: Annotated[int, Meta(ge=0, le=INSTANT_MAX)]
    kind: str
    """The class of the exception with its module; empty if there was none."""
    message: str
    traceback: str
    worker: str
    started_at: Instant
    ended_at: Instant


_decode = msgspec.json.Decoder(AttemptError).decode


def error_entry(error: AttemptError) -> Entry:
    """The entry for the journal. It replaces that of ERRORS_MAX attempts before."""
    value = msgspec.json.encode(error)
    most = ERROR_BYTES_MAX
    while len(value) > ERROR_BYTES_MAX:  # Escapes make some texts longer than they are.
        most //= 2
        value = msgspec.json.encode(
            msgspec.structs.replace(
                error, message=_cut(error.message, most // 4), traceback=_cut(error.traceback, most)
            )
        )
    return Entry(EntryKind.ERROR, str(error.attempt % ERRORS_MAX), value)


def attempt_errors(entries: Iterable[Entry]) -> list[AttemptError]:
    """The kept errors in the order of their attempts. Entries that cannot be read are left out."""
    found = []
    for entry in entries:
        if entry.kind is EntryKind.ERROR:
            try:
                found.append(_decode(entry.value))
            except UNREADABLE:
                continue
    return sorted(found, key=lambda error: error.started_at)


def _cut(text: str, most: int) -> str:
    """Head and tail of a text, because they name the causes."""
    if len(text) <= most:
        return text
    half = max(1, (most - 5) // 2)
    return f"{text[:half]}\n...\n{text[-half:]}"
