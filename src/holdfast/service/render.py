"""Converts values of the core to the shapes of the API, and a few shapes back."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.blob import BlobRef, is_offloaded, read_reference
from holdfast.core.clock import Micros, moment
from holdfast.core.codec import BYTES, JSON, OBJECT, Codecs, json_fault
from holdfast.core.errors import DecodeError, InvalidInput
from holdfast.core.job import Event, JobRecord, Lease, effect_key
from holdfast.core.journal import Entry
from holdfast.core.mapped import plain_codec, told
from holdfast.core.scope import Scope, ScopeKind
from holdfast.service.journal_wire import EntryOut
from holdfast.service.wire import BlobOut, EventOut, JobOut, LeaseOut, ResultOut

_codecs = Codecs()


def when(at: Micros | None) -> datetime | None:
    return None if at is None else moment(at)


def job_out(job: JobRecord, *, payload: bool = True) -> JobOut:
    """A job, with its payload and result unless it is part of a list."""
    rules, envelope = job.rules, job.envelope
    body, text = shown(envelope.codec, envelope.body) if payload else (None, None)
    codec = plain_codec(envelope.codec)
    result, result_text = shown(codec, job.result) if payload else (None, None)
    return JobOut(
        id=job.id,
        tenant=job.tenant,
        queue=job.queue,
        type=envelope.type,
        state=job.state,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=rules.max_attempts,
        created_at=moment(job.created_at),
        updated_at=moment(job.updated_at),
        run_at=moment(job.run_at),
        payload=body,
        payload_base64=text,
        payload_blob=_blob_in(envelope.body) if payload else None,
        codec=envelope.codec,
        version=envelope.version,
        key=job.key,
        group=job.group,
        tags=job.tags,
        origin=job.origin,
        fence=job.fence,
        expires_at=when(job.expires_at),
        lease_until=when(job.lease_until),
        worker=job.worker,
        finished_at=when(job.finished_at),
        reason=job.reason,
        error=_told(job.error),
        result=result,
        result_base64=result_text,
        result_blob=_blob_in(job.result) if payload else None,
        progress=_told(job.progress),
        replayed_as=job.replayed_as,
        awaits=job.awaits,
    )


def blob_out(ref: BlobRef) -> BlobOut:
    return BlobOut(id=ref.id, size=ref.size, sha256=ref.sha256, media_type=ref.media_type)


def _blob_in(body: object) -> BlobOut | None:
    """The reference that stands for a body; None for a body itself, and for a forged one."""
    if not isinstance(body, bytes) or not is_offloaded(body):
        return None
    try:
        return blob_out(read_reference(body))
    except DecodeError:
        return None


def lease_out(lease: Lease) -> LeaseOut:
    return LeaseOut(
        job=job_out(lease.job),
        token=lease.token,
        until=moment(lease.until),
        fence=lease.fence,
        effect_key=effect_key(lease.job),
        journal=tuple(entry_out(entry) for entry in lease.journal),
        left_out=lease.left_out,
    )


def entry_out(entry: Entry) -> EntryOut:
    value, text = shown(JSON, entry.value)
    return EntryOut(
        kind=entry.kind, name=entry.name, at=moment(entry.at), value=value, value_base64=text
    )


def result_out(job: JobRecord, *, done: bool) -> ResultOut:
    codec = plain_codec(job.envelope.codec)
    result, text = shown(codec, job.result)
    return ResultOut(
        id=job.id,
        state=job.state,
        done=done,
        result=result,
        result_base64=text,
        result_blob=_blob_in(job.result),
        codec=None if text is None else codec,
        reason=job.reason,
        error=_told(job.error),
    )


def event_out(event: Event) -> EventOut:
    return EventOut(
        cursor=event.cursor,
        at=moment(event.at),
        kind=event.kind,
        tenant=event.tenant,
        job_id=event.job_id,
        queue=event.queue,
        type=event.type,
        attempt=event.attempt,
        fence=event.fence,
        until=when(event.until),
        note=_told(event.note),
        by=event.by,
    )


def _told(text: str | None) -> str | None:
    return None if text is None else told(text)


def scope_text(scope: Scope) -> str:
    """A scope in one word: `tenant/`, `queue/mail`; over all tenants `platform/queue/mail`."""
    if scope.of_platform and scope.kind is not ScopeKind.PLATFORM:
        return f"{ScopeKind.PLATFORM}/{scope.kind}/{scope.part}"
    return f"{scope.kind}/{scope.part}"


def shown(codec: str, body: Any) -> tuple[Raw | None, str | None]:
    """A payload or result as JSON, or in base64 if it is bytes or not valid JSON; neither of one
    that is in a bucket.

    It is inserted unquoted only if it is certainly valid JSON. Otherwise the stored text could
    forge a part of the answer.
    """
    if body is None or is_offloaded(body):
        return None, None
    text: bytes | None = None
    try:
        if codec == JSON:
            text = body
        elif codec == OBJECT:
            text = msgspec.json.encode(msgspec.to_builtins(body))
        elif codec != BYTES:
            text = msgspec.json.encode(_codecs.get(codec).decode(body, Any))
        if text is not None and json_fault(text) is None:
            return Raw(text), None
    except Exception:
        pass  # It is inserted unchanged.
    if not isinstance(body, bytes):
        return Raw(b'"<cannot be shown>"'), None
    return None, base64.b64encode(body).decode()


# -- from the API ----------------------------------------------------------------------------------


def unbase64(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(field=field, why="is not base64") from None
