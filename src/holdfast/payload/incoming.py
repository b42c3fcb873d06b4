"""Which bytes of what a store gives back are mapped, and what stands for those that cannot be read.

A payload or a result that cannot be read makes the codec of the record UNREADABLE; whoever decodes
it gets the error, and a worker fails the job, or releases it where it can be tried again. A step
that cannot be read does the same to a lease: the run would do the step again. Texts say what is
wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.job import Envelope, Event, JobRecord, Lease
from holdfast.core.journal import Entry, Journal
from holdfast.core.mapped import TEXT_MARK, UNREADABLE, bytes_of, text_of, unreadable
from holdfast.core.schedule import encode
from holdfast.core.spec import JobSpec
from holdfast.payload.outgoing import (
    definition_of,
    entry_values,
    envelope_values,
    head_in,
    kind_of,
    with_specs,
)
from holdfast.payload.values import Kind, Mapped, Value
from holdfast.store import Ref, Setting

Taken = Iterator[Mapped]


# -- records ---------------------------------------------------------------------------------------


def record_values(job: JobRecord) -> list[Value]:
    found = envelope_values(job.tenant, job.id, job.envelope)
    if job.result is not None:
        found.append(Value(job.tenant, job.id, Kind.RESULT, "", "", job.result))
    found += _texts(job.tenant, job.id, Kind.ERROR, job.error)
    found += _texts(job.tenant, job.id, Kind.PROGRESS, job.progress)
    return found


def record_with(job: JobRecord, found: Taken) -> JobRecord:
    envelope, result = job.envelope, job.result
    number = len(envelope_values(job.tenant, job.id, envelope))
    if number:
        envelope = _envelope_with(envelope, [next(found) for _ in range(number)])
    if result is not None:
        got = next(found)
        if isinstance(got, HoldfastError):
            result = unreadable(got)
            envelope = _failed(envelope, got)
        else:
            result = got.body
    error = _text_with(job.error, found)
    progress = _text_with(job.progress, found)
    return msgspec.structs.replace(
        job, envelope=envelope, result=result, error=error, progress=progress
    )


def _envelope_with(envelope: Envelope, found: Sequence[Mapped]) -> Envelope:
    head = head_in(envelope)
    if head is None:
        [got] = found
        if isinstance(got, HoldfastError):
            return _failed(envelope, got)
        return Envelope(envelope.type, got.codec, envelope.version, got.body)
    taken = iter(found)
    body = msgspec.json.encode(with_specs(head, lambda spec: _spec_with(spec, next(taken))))
    return msgspec.structs.replace(envelope, body=body)


def _spec_with(spec: JobSpec, got: Mapped) -> JobSpec:
    if isinstance(got, HoldfastError):
        return msgspec.structs.replace(spec, codec=UNREADABLE, body=unreadable(got))
    return msgspec.structs.replace(spec, codec=got.codec, body=got.body)


def _failed(envelope: Envelope, error: HoldfastError) -> Envelope:
    return Envelope(envelope.type, UNREADABLE, envelope.version, unreadable(error))


# -- texts -----------------------------------------------------------------------------------------


def _texts(tenant: str, id: str, kind: Kind, text: str | None) -> list[Value]:
    """The mapped value in a text, if there is one."""
    body = None if text is None else bytes_of(text)
    return [] if body is None else [Value(tenant, id, kind, "", "", body)]


def _text_with(text: str | None, found: Taken) -> str | None:
    body = None if text is None else bytes_of(text)
    return text if body is None else _plain(body, next(found))


def _plain(body: bytes, got: Mapped) -> str:
    if isinstance(got, HoldfastError):
        return f"(cannot be read: {got.facts.get('why', got)})"
    return text_of(body) if got.body is body else got.body.decode("utf-8", "replace")


# -- leases and journals ---------------------------------------------------------------------------


def lease_values(lease: Lease) -> list[Value]:
    job = lease.job
    return record_values(job) + entry_values(job.tenant, job.id, lease.journal)


def lease_with(lease: Lease, found: Sequence[Mapped]) -> Lease:
    taken = iter(found)
    job = record_with(lease.job, taken)
    journal = _entries_with(lease.journal, taken)
    needed = (one for one, value in zip(found, lease_values(lease), strict=True) if _needed(value))
    error = next((one for one in needed if isinstance(one, HoldfastError)), None)
    if error is not None:
        job = msgspec.structs.replace(job, envelope=_failed(job.envelope, error))
    return msgspec.structs.replace(lease, job=job, journal=journal)


def _needed(value: Value) -> bool:
    """Whether a run cannot do without it."""
    return value.kind not in (Kind.ERROR, Kind.PROGRESS)


def _entries_with(entries: Sequence[Entry], found: Taken) -> tuple[Entry, ...]:
    return tuple(
        entry if kind_of(entry) is None else _entry_with(entry, next(found)) for entry in entries
    )


def _entry_with(entry: Entry, got: Mapped) -> Entry:
    value = unreadable(got) if isinstance(got, HoldfastError) else got.body
    return entry if value is entry.value else msgspec.structs.replace(entry, value=value)


Owned = tuple[Ref, Journal]


def journal_values(one: Owned) -> list[Value]:
    return entry_values(one[0].tenant, one[0].id, one[1].entries)


def journal_with(one: Owned, found: Sequence[Mapped]) -> Owned:
    return one[0], Journal(_entries_with(one[1].entries, iter(found)), one[1].edges)


# -- events and settings ---------------------------------------------------------------------------


def event_values(event: Event) -> list[Value]:
    """The error in the note of a failure, after its reason."""
    note = event.note or ""
    return _texts(event.tenant, event.job_id, Kind.ERROR, note[note.find(TEXT_MARK) :])


def event_with(event: Event, found: Sequence[Mapped]) -> Event:
    note = event.note or ""
    at = note.find(TEXT_MARK)
    return msgspec.structs.replace(event, note=f"{note[:at]}{_text_with(note[at:], iter(found))}")


def setting_values(setting: Setting) -> list[Value]:
    found = definition_of(setting.name, setting.value)
    if found is None:
        return []
    tenant, job = found[0], found[1].job
    return [Value(tenant, setting.name, Kind.SPEC, "", job.codec, job.body, job.type)]


def setting_with(setting: Setting, found: Sequence[Mapped]) -> Setting:
    defined = definition_of(setting.name, setting.value)
    assert defined is not None, "its spec was taken from it"
    definition = msgspec.structs.replace(defined[1], job=_spec_with(defined[1].job, found[0]))
    return Setting(setting.name, encode(definition), setting.version)
