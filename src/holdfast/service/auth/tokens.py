"""Signed tokens (JWT): verified with a key of the issuer, then turned into a caller."""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jwt
import msgspec

from holdfast.service.auth.bearer import bearer
from holdfast.service.auth.claims import caller_of
from holdfast.service.auth.jwks import Key, KeySource
from holdfast.service.rights import Caller, Unauthenticated

if TYPE_CHECKING:
    from starlette.requests import Request

RECENT_S = 30.0
"""How long a verified token is cached. A withdrawn key may work for this long."""
RECENT_MAX = 10_000
NEEDED = ["exp", "iss", "aud"]


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that every token must have."""

    issuer: str
    audience: tuple[str, ...]
    """Accepted audiences; a token must have one of them."""
    leeway_s: float
    tenant_pattern: re.Pattern[str]
    sub_tenant: bool = False
    """`sub` names the tenant if no other claim does."""


class Tokens:
    """Mode `jwt`."""

    def __init__(
        self, keys: KeySource, rules: TokenRules, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._recent = Recent(clock)

    async def caller(self, request: Request) -> Caller:
        token = bearer(request)
        if (known := self._recent.get(token)) is not None:
            return known
        key = await self._keys.key(_kid(token))
        claims = verified(token, key, self._rules)
        ends_at = float(claims["exp"])
        rules = self._rules
        known = caller_of(claims, rules.tenant_pattern, sub_tenant=rules.sub_tenant)
        caller = msgspec.structs.replace(known, until=ends_at + rules.leeway_s)
        self._recent.put(token, caller, ends_at)
        return caller


class Recent:
    """The callers of recently verified tokens, by the hashes of the tokens."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, token: str) -> Caller | None:
        hashed = _hashed(token)
        until, caller = self._known.get(hashed, (0.0, None))
        if caller is None or self._clock() < until:
            return caller
        del self._known[hashed]
        return None

    def put(self, token: str, caller: Caller, expires_at: float) -> None:
        """Caches a caller, at most until its token expires."""
        until = min(self._clock() + RECENT_S, expires_at)
        if until <= self._clock():
            return
        self._known[_hashed(token)] = until, caller
        if len(self._known) > RECENT_MAX:
            self._known.popitem(last=False)


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _kid(token: str) -> str | None:
    """The key that the token names. Nothing in the token is trusted yet."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthenticated(why="the token is malformed") from None
    return None if kid is None else str(kid)


def verified(token: str, key: Key, rules: TokenRules) -> dict[str, Any]:
    """The claims of a valid token. Raises Unauthenticated, which says why it is invalid."""
    try:
        return jwt.decode(
            token,
            key.material,
            algorithms=[key.algorithm],
            issuer=rules.issuer,
            audience=list(rules.audience),
            leeway=rules.leeway_s,
            options={"require": NEEDED},
        )
    except jwt.PyJWTError as error:
        raise Unauthenticated(why=_why(error)) from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Unauthenticated(why="the token is malformed") from None


_WHY: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidIssuerError, "the token is from another issuer"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidAlgorithmError, "the token is signed with another algorithm than that of its key"),
    (jwt.InvalidSignatureError, "the signature of the token is invalid"),
)
"""The first match applies."""


def _why(error: jwt.PyJWTError) -> str:
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"the token has no claim {error.claim}"
    return next((why for kind, why in _WHY if isinstance(error, kind)), "the token is malformed")
