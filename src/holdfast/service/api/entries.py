"""Entries of journals as workers in other languages write them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.arguments import check_entries
from holdfast.attempts import AttemptError, error_entry
from holdfast.core.bounds import ERROR_BYTES_MAX, INSTANT_MAX, LOG_BYTES_MAX
from holdfast.core.clock import Micros, instant, micros
from holdfast.core.codec import json_fault
from holdfast.core.errors import InvalidInput
from holdfast.core.job import JobRecord, Parked
from holdfast.core.journal import Entry, EntryKind, check_awaits
from holdfast.service.aside import EDGE_COST, aside
from holdfast.service.render import unbase64
from holdfast.service.wire import AckIn, ExtendIn


def value_of(value: Raw | UnsetType, text: str | UnsetType, where: str = "") -> bytes:
    """The value as it is stored: JSON, or the bytes of base64. Without either it is null."""
    if text is not UNSET:
        if value is not UNSET:
            raise InvalidInput(field=f"{where}value", why="give either value or value_base64")
        return unbase64(f"{where}value_base64", text)
    if value is UNSET:
        return b"null"
    if (fault := json_fault(bytes(value))) is not None:
        raise InvalidInput(field=f"{where}value", why=fault)
    return bytes(value)


async def written_by(asked: Sequence[AckIn | ExtendIn], field: str) -> list[tuple[Entry, ...]]:
    """The checked entries of each item of a call."""
    size = sum(
        EDGE_COST + (len(bytes(entry.value)) if entry.value is not UNSET else 0)
        for one in asked
        for entry in one.entries
    )
    return await aside(
        size, lambda: [entries_of(one, f"{field}[{n}].") for n, one in enumerate(asked)]
    )


def entries_of(one: AckIn | ExtendIn, where: str) -> tuple[Entry, ...]:
    """The checked entries, with the lines of the log."""
    if not one.entries and not one.log:
        return ()
    found = [
        Entry(
            EntryKind(entry.kind.value),
            entry.name,
            value_of(entry.value, entry.value_base64, f"{where}entries[{number}]."),
        )
        for number, entry in enumerate(one.entries)
    ]
    if one.log:
        found.append(_log(one.log, where))
    try:
        check_entries(found)
    except InvalidInput as error:
        error.facts["field"] = f"{where}entries.{error.facts['field']}"
        raise
    return tuple(found)


def _log(lines: Sequence[str], where: str) -> Entry:
    value = msgspec.json.encode(lines)
    if len(value) > LOG_BYTES_MAX:
        why = f"has {len(value)} bytes, at most {LOG_BYTES_MAX} are allowed at a time"
        raise InvalidInput(field=f"{where}log", why=why)
    return Entry(EntryKind.LOG, "", value)


def error_of(one: AckIn, job: JobRecord, text: str, now: Micros) -> Entry:
    """The entry for the error of an attempt. Without `seconds` it began with the last renewal."""
    began = job.updated_at if one.seconds is UNSET else now - micros(one.seconds)
    return error_entry(
        AttemptError(
            attempt=job.attempt,
            kind="" if one.error_kind is UNSET else one.error_kind,
            message=text[:ERROR_BYTES_MAX],
            traceback="" if one.traceback is UNSET else one.traceback,
            worker=job.worker or "",
            started_at=max(0, min(began, now)),
            ended_at=now,
        )
    )


def parked(one: AckIn, after: Micros | None, where: str) -> Parked:
    """A park until an instant, after a delay, or until what it awaits has come."""
    if one.until is not UNSET and after is not None:
        raise InvalidInput(field=f"{where}until", why="give either after or until")
    awaits = None
    if one.awaits is not UNSET:
        try:
            awaits = check_awaits(one.awaits)
        except InvalidInput as error:
            error.facts["field"] = f"{where}awaits"
            raise
    if one.until is not UNSET:
        return Parked(run_at=instant(one.until), awaits=awaits)
    if after is not None:
        return Parked(after, awaits=awaits)
    if awaits is None:
        raise InvalidInput(field=f"{where}after", why="a park needs after, until or awaits")
    return Parked(run_at=INSTANT_MAX, awaits=awaits)
