"""Signatures of deliveries: HMAC-SHA256 over the time of sending and the body.

`verify` is for receivers. It needs nothing else of this library.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.core.check import check_seconds
from holdfast.core.edge_bounds import (
    WEBHOOK_BODY_MAX,
    WEBHOOK_SECRET_MAX,
    WEBHOOK_SECRET_MIN,
    WEBHOOK_SECRETS_MAX,
    WEBHOOK_SIGNATURES_MAX,
    WEBHOOK_WINDOW_S_MAX,
)
from holdfast.core.errors import InvalidInput, SignatureRefused

SIGNATURE_HEADER = "Holdfast-Signature"
DELIVERY_HEADER = "Holdfast-Delivery"
ATTEMPT_HEADER = "Holdfast-Attempt"
PREFIX = "whsec_"
"""How a generated secret begins, so that scanners for leaked secrets find it."""
SECRET_BYTES = 32
WINDOW_S = 300.0
HEADER_MAX = 2048
"""Characters of a signature header that are read."""

_STAMP = re.compile(r"[0-9]{1,12}\Z", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Delivery(msgspec.Struct, frozen=True):
    """A delivery whose signature is right."""

    id: str
    """The same for each repeat of this delivery. Remember it to do nothing twice."""
    attempt: int
    at: int
    """When it was sent, in seconds since 1970."""
    event: dict[str, Any]
    """What happened: the body, decoded."""


def new_secret() -> str:
    """A random secret."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def check_secret(secret: object) -> str:
    """The secret, if it is long enough. Raises InvalidInput, which does not show it."""
    if not isinstance(secret, str) or not (secret.isascii() and secret.isprintable()):
        raise InvalidInput(field="secret", why="must be printable ASCII text")
    if not WEBHOOK_SECRET_MIN <= len(secret) <= WEBHOOK_SECRET_MAX:
        why = f"must have {WEBHOOK_SECRET_MIN} to {WEBHOOK_SECRET_MAX} characters"
        raise InvalidInput(field="secret", why=why)
    return secret


def signature(secrets: Iterable[str], at: int, body: bytes) -> str:
    """The value of the header: the time of sending, and one signature for each secret."""
    return ",".join((f"t={at}", *(f"v1={_digest(one, at, body)}" for one in secrets)))


def _digest(secret: str, at: int, body: bytes) -> str:
    return hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()


def verify(
    secret: str | Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    window: float = WINDOW_S,
    *,
    now: float | None = None,
) -> Delivery:
    """The delivery, if one of the secrets has signed it at most `window` seconds ago. Raises
    SignatureRefused, which says what is wrong; answer it with status 400.

    `body` is the body as it arrived, before any decoding. During a rotation give both secrets.
    """
    known = [secret] if isinstance(secret, str) else list(secret)
    if not 1 <= len(known) <= WEBHOOK_SECRETS_MAX:
        raise InvalidInput(field="secret", why=f"give 1 to {WEBHOOK_SECRETS_MAX} secrets")
    for one in known:
        check_secret(one)
    check_seconds("window", window, 1.0, WEBHOOK_WINDOW_S_MAX)
    if not isinstance(body, bytes):
        why = f"must be the bytes as they arrived, not {type(body).__name__}"
        raise InvalidInput(field="body", why=why)
    if len(body) > WEBHOOK_BODY_MAX:
        raise SignatureRefused(why=f"the body is larger than {WEBHOOK_BODY_MAX} bytes")
    named = {str(name).lower(): value for name, value in headers.items()}
    at, given = _parts(named.get(SIGNATURE_HEADER.lower()))
    # Each pair is compared, and in constant time, so that the time of the answer tells nothing.
    right = [hmac.compare_digest(_digest(one, at, body), g) for one in known for g in given]
    if not any(right):
        raise SignatureRefused(why="no signature is of this secret and body")
    age_s = (time.time() if now is None else now) - at
    if not abs(age_s) <= window or math.isnan(age_s):
        when = "ago" if age_s > 0 else "in the future"
        raise SignatureRefused(why=f"it was signed {abs(age_s):.0f} s {when}, at most {window:g}")
    return _delivery(named, at, body)


def _parts(header: str | None) -> tuple[int, list[str]]:
    """The time and the signatures of a header."""
    if not header:
        raise SignatureRefused(why=f"the header {SIGNATURE_HEADER} is missing")
    if len(header) > HEADER_MAX:
        raise SignatureRefused(why=f"the header {SIGNATURE_HEADER} is too long")
    stamps, given = [], []
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        if name == "t" and _STAMP.match(value):
            stamps.append(int(value))
        elif name == "v1" and _DIGEST.match(value):
            given.append(value)
    if len(stamps) != 1 or not 1 <= len(given) <= WEBHOOK_SIGNATURES_MAX:
        why = f"the header {SIGNATURE_HEADER} must be t=SECONDS,v1=SIGNATURE"
        raise SignatureRefused(why=why)
    return stamps[0], given


def _delivery(named: Mapping[str, str], at: int, body: bytes) -> Delivery:
    try:
        event = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise SignatureRefused(why="the body is signed, but is no JSON object") from None
    attempt = named.get(ATTEMPT_HEADER.lower(), "")
    # The id is read from the body, which is signed; headers are not.
    id = str(event.get("id", ""))
    return Delivery(id, int(attempt) if _STAMP.match(attempt) else 1, at, event)
