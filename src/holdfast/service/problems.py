"""Maps each error to a status and a body: one table, one shape (RFC 9457, problem+json)."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.core.errors import (
    BatchRefused,
    BlobCorrupt,
    BlobError,
    BlobNotFound,
    CodecError,
    ConfigError,
    FlowRefused,
    HoldfastError,
    IdConflict,
    InvalidInput,
    JobFailed,
    JobNotFound,
    KeyErased,
    PayloadTooLarge,
    PlatformOnly,
    QueueFull,
    Refused,
    ScheduleNotFound,
    SignatureRefused,
    SourceError,
    SourceNotFound,
    StaleSetting,
    StaleSource,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsupported,
    TenantFull,
    WaitTimeout,
    WebhookNotFound,
)
from holdfast.service.rights import Forbidden, Unauthenticated

MEDIA = "application/problem+json"
RETRY_S = 1
"""Default delay before a caller should try again."""


class NotFound(HoldfastError):
    """No such route or object."""

    code = "NOT_FOUND"
    text = "{what}: not found"


class MethodNotAllowed(HoldfastError):
    code = "METHOD_NOT_ALLOWED"
    text = "method {method} is not supported, only {allowed}"


class NotJson(HoldfastError):
    """The body does not match its media type, or cannot be read."""

    code = "MALFORMED_BODY"
    text = "body: {why}"


class WrongMedia(HoldfastError):
    """Also refused because a page of another site could make a browser send it."""

    code = "WRONG_MEDIA_TYPE"
    text = "content-type: is {media!r}, only {wanted} is supported"


class BodyTooLarge(HoldfastError):
    code = "BODY_TOO_LARGE"
    text = "body: larger than the allowed {max} bytes"


class TooManyRequests(HoldfastError):
    code = "RATE_LIMITED"
    text = "{why}; try again in {retry_after_s} s"


class Overloaded(HoldfastError):
    code = "OVERLOADED"
    text = "{why}; try again in {retry_after_s} s"


class TimedOut(HoldfastError):
    code = "REQUEST_TIMEOUT"
    text = "not finished within {seconds:g} s"


STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (NotJson, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (PlatformOnly, 403),
    (NotFound, 404),
    (JobNotFound, 404),
    (BlobNotFound, 404),
    (ScheduleNotFound, 404),
    (WebhookNotFound, 404),
    (SignatureRefused, 400),
    (MethodNotAllowed, 405),
    (WaitTimeout, 408),
    (IdConflict, 409),
    (StaleSetting, 409),
    (StaleSource, 409),
    (SourceNotFound, 404),
    (SourceError, 422),
    (Refused, 409),
    (JobFailed, 409),
    (BlobCorrupt, 409),
    (BlobError, 409),
    (BodyTooLarge, 413),
    (PayloadTooLarge, 413),
    (WrongMedia, 415),
    (InvalidInput, 422),
    (CodecError, 422),
    (ConfigError, 422),
    (QueueFull, 429),
    (TenantFull, 409),
    (FlowRefused, 409),
    (KeyErased, 409),
    (BatchRefused, 409),
    (TooManyRequests, 429),
    (StoreUnsupported, 501),
    (StoreReadOnly, 503),
    (StoreUnavailable, 503),
    (Overloaded, 503),
    (TimedOut, 503),
    (StoreError, 503),
)
"""The first match applies."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error. `code` is the stable code of the error tree."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    field: str | None = None
    """The name of the invalid value, if the error concerns one."""
    retry_after_s: float | None = None
    request_id: str | None = None


def status_of(error: HoldfastError) -> int:
    """The status of an error; 500 for an error that this table does not contain."""
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def problem(error: HoldfastError, request_id: str | None = None) -> Problem:
    status = status_of(error)
    facts = error.facts
    field = facts.get("field")
    after = facts.get("retry_after_s", RETRY_S if status in {429, 503} else None)
    return Problem(
        type=f"urn:holdfast:{error.code.lower().replace('_', '-')}",
        title=error.code.replace("_", " ").capitalize(),
        status=status,
        code=error.code,
        detail=str(error),
        field=field if isinstance(field, str) else None,
        retry_after_s=float(after) if isinstance(after, int | float) else None,
        request_id=request_id,
    )


def fault(request_id: str | None) -> Problem:
    """The body for an internal error: only the request id, by which the log has the details."""
    return Problem(
        type="urn:holdfast:internal",
        title="Internal",
        status=500,
        code="INTERNAL",
        detail="internal error; the log of the service has it under this request id",
        request_id=request_id,
    )


def answer(told: Problem, headers: dict[str, str] | None = None) -> Response:
    """The response for a problem."""
    more: dict[str, Any] = dict(headers or {})
    if told.retry_after_s is not None:
        more["retry-after"] = str(max(1, round(told.retry_after_s)))
    if told.status == 401:
        more["www-authenticate"] = 'Bearer realm="holdfast"'
    return Response(msgspec.json.encode(told), told.status, media_type=MEDIA, headers=more)
