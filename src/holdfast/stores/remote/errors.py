"""Turns refusals of the service, and answers that never came, into errors of our own tree."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import (
    ConfigError,
    HoldfastError,
    PayloadTooLarge,
    StoreError,
    StoreUnavailable,
)
from holdfast.stores.remote.wire import CLASSES, MEDIA, WireError, error_in

UNTOUCHED = frozenset({"OVERLOADED", "RATE_LIMITED"})
"""Refused before anything was done, so any call may be sent again."""
PASSING = frozenset({"STORE_UNAVAILABLE", "REQUEST_TIMEOUT", *UNTOUCHED})
"""A retry may succeed."""
GATEWAYS = frozenset({502, 503, 504})
"""What a proxy answers that does not reach the service."""


class NotSent(Exception):
    """The service was not reached: nothing can have happened."""


class NoAnswer(Exception):
    """The call went out and no answer came: it may have happened."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    media: str
    body: bytes
    retry_after_s: float | None = None


class Refusal(msgspec.Struct, frozen=True):
    """An answer that is no result: the error, and what may be done about it."""

    error: HoldfastError
    passing: bool = False
    untouched: bool = False


class _Problem(msgspec.Struct):
    code: str
    detail: str = ""
    field: str | None = None
    request_id: str | None = None


_error = msgspec.msgpack.Decoder(WireError)
_problem = msgspec.json.Decoder(_Problem)


def refusal(answer: Answer, store: str, size: int) -> Refusal:
    """Of an answer with any status but 200, to a call of this many bytes."""
    try:
        if answer.media == MEDIA:
            one = _error.decode(answer.body)
            return Refusal(error_in(one, store), one.code in PASSING, one.code in UNTOUCHED)
        if answer.media.endswith("json"):
            found = _problem.decode(answer.body)
            error = _ours(found, store, size)
            return Refusal(error, found.code in PASSING, found.code in UNTOUCHED)
    except msgspec.MsgspecError:
        pass  # Not from our service, whatever it calls itself.
    if answer.status in GATEWAYS:
        why = f"something before it answers {answer.status}"
        return Refusal(StoreUnavailable(store=store, why=why), passing=True)
    return Refusal(_foreign(answer.status, store))


def _foreign(status: int, store: str) -> HoldfastError:
    why = f"{store} answers {status}: there is no Holdfast service, or one without this route"
    return ConfigError(field="store", why=why)


def _ours(found: _Problem, store: str, size: int) -> HoldfastError:
    """What the service refused before the verb was even understood."""
    code, detail = found.code, found.detail
    if code == "UNAUTHENTICATED":
        why = f"the token is missing or does not hold ({detail}); see token_env"
        return StoreUnavailable(store=store, why=why)
    if code == "FORBIDDEN":
        return StoreError(store=store, why=f"not allowed: {detail}")
    if code == "BODY_TOO_LARGE":
        most = next((int(word) for word in detail.split() if word.isdecimal()), 0)
        return PayloadTooLarge(field="body", size=size, max=most)
    if code == "NOT_FOUND":
        return _foreign(404, store)
    if code in PASSING:
        return StoreUnavailable(store=store, why=detail)
    if code in CLASSES and found.field is not None:
        return error_in(WireError(code, {"field": found.field, "why": detail}, detail), store)
    seen = f" (request {found.request_id})" if found.request_id else ""
    return StoreError(store=store, why=f"{code}: {detail}{seen}")
