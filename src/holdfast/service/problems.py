"""An error of ours -> a status and a body. One table; one shape (RFC 9457, problem+json)."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.errors import (
    CodecError,
    ConfigError,
    HoldfastError,
    IdConflict,
    InvalidInput,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    PlatformOnly,
    QueueFull,
    Refused,
    StaleSetting,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    StoreUnsupported,
    TenantFull,
    WaitTimeout,
)
from holdfast.service.rights import Forbidden, Unauthenticated

MEDIA = "application/problem+json"
RETRY_S = 1
"""After which a caller may try again, where nothing better is known."""


class NotFound(HoldfastError):
    """No such route, or nothing of that name."""

    code = "NOT_FOUND"
    text = "{what}: not found"


class MethodNotAllowed(HoldfastError):
    code = "METHOD_NOT_ALLOWED"
    text = "{method} is not among {allowed}"


class NotJson(HoldfastError):
    """The body is not what its media type says, or not one that is read here."""

    code = "MALFORMED_BODY"
    text = "body: {why}"


class WrongMedia(HoldfastError):
    """Refused also so that a page of another site cannot make a browser send it."""

    code = "WRONG_MEDIA_TYPE"
    text = "content-type: is {media!r}, only application/json is read here"


class BodyTooLarge(HoldfastError):
    code = "BODY_TOO_LARGE"
    text = "body: more than the {max} bytes that are allowed"


class TooManyRequests(HoldfastError):
    code = "RATE_LIMITED"
    text = "{why}; try again in {retry_after_s} s"


class Overloaded(HoldfastError):
    code = "OVERLOADED"
    text = "{why}; try again in {retry_after_s} s"


class TimedOut(HoldfastError):
    code = "REQUEST_TIMEOUT"
    text = "not done within {seconds:g} s"


STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (NotJson, 400),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (PlatformOnly, 403),
    (NotFound, 404),
    (JobNotFound, 404),
    (MethodNotAllowed, 405),
    (WaitTimeout, 408),
    (IdConflict, 409),
    (StaleSetting, 409),
    (Refused, 409),
    (JobFailed, 409),
    (BodyTooLarge, 413),
    (PayloadTooLarge, 413),
    (WrongMedia, 415),
    (InvalidInput, 422),
    (CodecError, 422),
    (ConfigError, 422),
    (QueueFull, 429),
    (TenantFull, 409),
    (TooManyRequests, 429),
    (StoreUnsupported, 501),
    (StoreReadOnly, 503),
    (StoreUnavailable, 503),
    (Overloaded, 503),
    (TimedOut, 503),
    (StoreError, 503),
)
"""The first that fits."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every refusal looks like. `code` is the stable one of our error tree."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    field: str | None = None
    """What was wrong, if it was a value of the call."""
    retry_after_s: float | None = None
    request_id: str | None = None


def status_of(error: HoldfastError) -> int:
    """500 for what this table does not know: a fault of ours."""
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
    """What is told of a fault of ours: nothing but where to look for it."""
    return Problem(
        type="urn:holdfast:internal",
        title="Internal",
        status=500,
        code="INTERNAL",
        detail="an internal fault; the service's log has it under this request id",
        request_id=request_id,
    )


def answer(told: Problem, headers: dict[str, str] | None = None) -> Response:
    """As it goes out."""
    more: dict[str, Any] = dict(headers or {})
    if told.retry_after_s is not None:
        more["retry-after"] = str(max(1, round(told.retry_after_s)))
    if told.status == 401:
        more["www-authenticate"] = 'Bearer realm="holdfast"'
    return Response(msgspec.json.encode(told), told.status, media_type=MEDIA, headers=more)
