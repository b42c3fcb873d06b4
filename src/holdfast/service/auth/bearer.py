"""Reads the token from a header of a request. No URL may contain it, because URLs are logged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.service.rights import Unauthenticated

if TYPE_CHECKING:
    from starlette.requests import Request

TOKEN_MAX = 16 * 1024
KEY_HEADER = "x-api-key"

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def bearer(request: Request) -> str:
    """The token of `Authorization: Bearer`. Raises Unauthenticated, without the token."""
    given = request.headers.getlist("authorization")
    if not given:
        raise Unauthenticated(why="there is no token: send Authorization: Bearer <token>")
    if len(given) > 1:
        raise Unauthenticated(why="there is more than one Authorization header")
    scheme, _, token = given[0].partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated(why="Authorization: only the scheme Bearer is supported")
    return well_formed(token.strip(" "))


def api_key(request: Request) -> str:
    """The key of `Authorization: Bearer` or of `X-Api-Key`. Only one of them may be present."""
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return bearer(request)
    if len(given) > 1 or "authorization" in request.headers:
        raise Unauthenticated(why="there is more than one key")
    return well_formed(given[0])


def well_formed(token: str) -> str:
    if len(token) > TOKEN_MAX:
        raise Unauthenticated(why=f"the token has more than {TOKEN_MAX} characters")
    if _TOKEN.fullmatch(token) is None:
        raise Unauthenticated(why="the token is malformed")
    return token
