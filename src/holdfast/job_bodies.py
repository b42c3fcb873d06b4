"""Payloads and results for people: as plain data, or as text that says why they cannot be shown."""

from __future__ import annotations

import msgspec

from holdfast.core.blob import is_offloaded, read_reference
from holdfast.core.codec import JSON, OBJECT, Codecs, json_fault, unread
from holdfast.core.errors import DecodeError
from holdfast.core.job import JobRecord
from holdfast.core.mapped import (
    BLOB,
    UNREADABLE,
    is_mapped,
    is_mapped_codec,
    plain_codec,
    reason_of,
)


def payload_of(job: JobRecord, codecs: Codecs) -> object:
    """The payload as plain data for display, or text in angle brackets if it cannot be read."""
    envelope = job.envelope
    try:
        if envelope.codec == OBJECT:
            return msgspec.to_builtins(envelope.body)
        if envelope.codec.startswith(BLOB):
            return _in_bucket(envelope.body)
        if is_mapped_codec(envelope.codec):
            return f"<encrypted: {len(envelope.body)} bytes, read where the keys are>"
        if envelope.codec == JSON and (fault := json_fault(envelope.body)) is not None:
            return f"<unreadable: {fault}>"
        if envelope.codec == "pickle":
            return f"<{len(envelope.body)} bytes of pickle, not read>"
        if envelope.codec == UNREADABLE:
            raise unread(job.type, envelope.body)
        return codecs.get(envelope.codec).decode(envelope.body, object)
    except Exception as error:
        return f"<unreadable: {error}>"


def result_of(job: JobRecord, codecs: Codecs) -> object:
    """The result as plain data for display, or text in angle brackets if it cannot be read."""
    codec = plain_codec(job.envelope.codec)
    if is_offloaded(job.result):
        return _in_bucket(job.result)
    if is_mapped(job.result) and reason_of(job.result) is None:
        return f"<encrypted: {len(job.result)} bytes, read where the keys are>"
    try:
        result = codecs.unseal_result(codec, job.result)
        return msgspec.to_builtins(result) if codec == OBJECT else result
    except Exception as error:
        return f"<unreadable: {error}>"


def _in_bucket(body: bytes) -> str:
    """What stands for a body that was offloaded, for people."""
    try:
        ref = read_reference(body)
    except DecodeError as error:
        return f"<unreadable: {error.facts['why']}>"
    return f"<in the bucket: {ref.size} bytes, blob {ref.id}>"
