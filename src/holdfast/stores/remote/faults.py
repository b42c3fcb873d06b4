"""The edge where answers that are no results, and answers that never came, become our errors."""

from __future__ import annotations

import msgspec

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    PayloadTooLarge,
    StoreError,
    StoreUnavailable,
)
from holdfast.stores.remote.wire import CLASSES, MEDIA, Told, untold

UNTOUCHED = frozenset({"OVERLOADED", "RATE_LIMITED"})
"""Refused at the door: nothing was done, so that anything may be sent again."""
PASSING = frozenset({"STORE_UNAVAILABLE", "REQUEST_TIMEOUT", *UNTOUCHED})
"""Another try, a little later, may not get it."""
GATEWAYS = frozenset({502, 503, 504})
"""What something between us and the service says when it does not reach it."""


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


_told = msgspec.msgpack.Decoder(Told)
_problem = msgspec.json.Decoder(_Problem)


def refusal(answer: Answer, store: str, size: int) -> Refusal:
    """Of an answer with any status but 200, to a call of this many bytes."""
    try:
        if answer.media == MEDIA:
            one = _told.decode(answer.body)
            return Refusal(untold(one, store), one.code in PASSING, one.code in UNTOUCHED)
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
        return untold(Told(code, {"field": found.field, "why": detail}, detail), store)
    seen = f" (request {found.request_id})" if found.request_id else ""
    return StoreError(store=store, why=f"{code}: {detail}{seen}")
