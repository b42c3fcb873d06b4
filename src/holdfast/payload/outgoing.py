"""Which bytes of what is sent to a store are mapped, and how the mapped ones are put back.

Each pair of functions names the values of an item in an order, and takes the mapped ones in the
same order. The jobs that the library needs for itself carry names and numbers only, which every
process must read, also one without keys: they stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast.core.codec import JSON
from holdfast.core.errors import HoldfastError, InvalidInput
from holdfast.core.flow import BEGIN, CANCEL, CANCEL_SIGNAL, GUARD, HEAD, Head, read_head
from holdfast.core.job import Envelope, NewJob
from holdfast.core.journal import Entry, EntryKind, Signal
from holdfast.core.lifecycle import Transition
from holdfast.core.mapped import UNREADABLE, Unreadable, reason_of, text_of
from holdfast.core.schedule import TYPE as TICK
from holdfast.core.schedule import Definition, decode, encode, schedule_of
from holdfast.core.spec import JobSpec
from holdfast.payload.values import OF_ENTRIES, Kind, Value
from holdfast.store import Extension, Put, Setting

OWN = frozenset({TICK, BEGIN, CANCEL, GUARD})
"""Types of jobs that carry nothing of their tenant's."""

Taken = Iterator[Value]


# -- jobs ------------------------------------------------------------------------------------------


def envelope_values(tenant: str, id: str, envelope: Envelope) -> list[Value]:
    """The payload; of the head of a flow, the payloads of the jobs that it makes later."""
    if envelope.body is None or envelope.type in OWN:
        return []
    if (head := head_in(envelope)) is not None:
        return [_spec(tenant, id, name, spec) for name, spec in specs_of(head)]
    sealed = envelope
    return [Value(tenant, id, Kind.PAYLOAD, "", sealed.codec, sealed.body, sealed.type)]


def head_in(envelope: Envelope) -> Head | None:
    """What the head of a flow says; None if the payload is of another job, or cannot be read."""
    if envelope.type != HEAD or envelope.codec != JSON:
        return None
    return read_head(envelope.body)


def _spec(tenant: str, id: str, name: str, spec: JobSpec) -> Value:
    return Value(tenant, id, Kind.SPEC, name, spec.codec, spec.body, spec.type)


def specs_of(head: Head) -> Iterator[tuple[str, JobSpec]]:
    """The jobs that a head makes later, with a name for each."""
    for number, spec in head.undo:
        yield f"undo {number}", spec
    for number, spec in enumerate(head.last):
        yield f"last {number}", spec


def with_specs(head: Head, mapped: Callable[[JobSpec], JobSpec]) -> Head:
    """The head with each of these jobs mapped, in the order of `specs_of`."""
    undo = tuple((number, mapped(spec)) for number, spec in head.undo)
    return msgspec.structs.replace(head, undo=undo, last=tuple(map(mapped, head.last)))


def envelope_with(envelope: Envelope, values: Sequence[Value]) -> Envelope:
    if values[0].kind is Kind.SPEC:
        head, taken = head_in(envelope), iter(values)
        assert head is not None, "its specs were taken from it"
        body = msgspec.json.encode(with_specs(head, lambda spec: _spec_with(spec, next(taken))))
        return msgspec.structs.replace(envelope, body=body)
    [value] = values
    return Envelope(envelope.type, value.codec, envelope.version, value.body)


def _spec_with(spec: JobSpec, value: Value) -> JobSpec:
    return msgspec.structs.replace(spec, codec=value.codec, body=value.body)


def job_values(job: NewJob) -> list[Value]:
    return envelope_values(job.tenant, job.id, job.envelope)


def job_with(job: NewJob, values: Sequence[Value]) -> NewJob:
    return msgspec.structs.replace(job, envelope=envelope_with(job.envelope, values))


def unread(codec: str, body: object) -> HoldfastError | None:
    """Why a copy of a job that could not be read is refused: its payload is not there."""
    if codec != UNREADABLE:
        return None
    reason = reason_of(body) or Unreadable("this stands for a payload")
    if reason.again:
        return reason.error("")
    return InvalidInput(field="payload", why=f"could not be read: {reason.why}")


# -- journals --------------------------------------------------------------------------------------


def kind_of(entry: Entry) -> Kind | None:
    """What the value of an entry is; None if it is not mapped."""
    if entry.kind is EntryKind.SIGNAL and entry.name == CANCEL_SIGNAL:
        return None  # It says nothing, and must work without keys.
    return OF_ENTRIES.get(entry.kind)


def entry_values(tenant: str, id: str, entries: Sequence[Entry]) -> list[Value]:
    return [
        Value(tenant, id, kind, "" if kind is Kind.LOG else entry.name, "", entry.value)
        for entry in entries
        if (kind := kind_of(entry)) is not None
    ]


def entries_with(entries: Sequence[Entry], taken: Taken) -> tuple[Entry, ...]:
    return tuple(
        entry if kind_of(entry) is None else msgspec.structs.replace(entry, value=next(taken).body)
        for entry in entries
    )


def signal_values(one: Signal) -> list[Value]:
    if one.name == CANCEL_SIGNAL:
        return []
    return [Value(one.tenant, one.id, Kind.SIGNAL, one.name, "", one.value)]


def signal_with(one: Signal, values: Sequence[Value]) -> Signal:
    return msgspec.structs.replace(one, value=values[0].body)


# -- the work of workers ---------------------------------------------------------------------------


def _text(tenant: str, id: str, kind: Kind, text: str) -> Value:
    return Value(tenant, id, kind, "", "", text.encode("utf-8", "replace"))


def extension_values(one: Extension) -> list[Value]:
    found = entry_values(one.tenant, one.id, one.entries)
    if one.progress is not None:
        found.append(_text(one.tenant, one.id, Kind.PROGRESS, one.progress))
    return found


def extension_with(one: Extension, values: Sequence[Value]) -> Extension:
    taken = iter(values)
    entries = entries_with(one.entries, taken)
    progress = one.progress if one.progress is None else _text_with(one.progress, next(taken))
    return msgspec.structs.replace(one, entries=entries, progress=progress)


def transition_values(one: Transition) -> list[Value]:
    """What the upkeep says about a lapsed job is not the tenant's."""
    found = entry_values(one.tenant, one.id, one.entries)
    if one.result is not None:
        found.append(Value(one.tenant, one.id, Kind.RESULT, "", "", one.result))
    if one.error is not None and not one.lapsed:
        found.append(_text(one.tenant, one.id, Kind.ERROR, one.error))
    return found


def transition_with(one: Transition, values: Sequence[Value]) -> Transition:
    taken = iter(values)
    entries = entries_with(one.entries, taken)
    result = one.result if one.result is None else next(taken).body
    error = one.error
    if error is not None and not one.lapsed:
        error = _text_with(error, next(taken))
    return msgspec.structs.replace(one, entries=entries, result=result, error=error)


def _text_with(text: str, value: Value) -> str:
    return text if value.body == text.encode("utf-8", "replace") else text_of(value.body)


# -- schedules -------------------------------------------------------------------------------------


def definition_of(name: str, value: bytes | None) -> tuple[str, Definition] | None:
    """The tenant and the definition of a stored schedule; None if it is another setting, or cannot
    be read.
    """
    if value is None:
        return None
    try:
        found = schedule_of(name)
        return None if found is None else (found[0], decode(name, value))
    except InvalidInput:
        return None


def put_values(put: Put) -> list[Value]:
    found = definition_of(put.name, put.value)
    if found is None or found[1].job.codec == UNREADABLE:
        return []
    return [_spec(found[0], put.name, "", found[1].job)]


def put_with(put: Put, values: Sequence[Value]) -> Put:
    found = definition_of(put.name, put.value)
    assert found is not None, "its spec was taken from it"
    job = _spec_with(found[1].job, values[0])
    return Put(put.name, encode(msgspec.structs.replace(found[1], job=job)), put.version)


def lacks_spec(put: Put) -> bool:
    """Whether it changes a schedule whose payload could not be read, without a new one."""
    found = definition_of(put.name, put.value)
    return found is not None and found[1].job.codec == UNREADABLE


def put_kept(put: Put, before: Setting | None) -> Put:
    """The put with the payload as it is stored. Without one it is left as it is."""
    found = definition_of(put.name, put.value)
    stored = None if before is None else definition_of(before.name, before.value)
    assert found is not None, "the caller has looked"
    if stored is None:
        raise InvalidInput(field="payload", why="could not be read; give the job again")
    job = msgspec.structs.replace(found[1].job, codec=stored[1].job.codec, body=stored[1].job.body)
    return Put(put.name, encode(msgspec.structs.replace(found[1], job=job)), put.version)
