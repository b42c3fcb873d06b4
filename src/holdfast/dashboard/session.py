"""Who sits before the browser: the token's cookie, and proof that a form was sent from our pages.

The token is read by the dashboard alone: the API asks for a header, which no other site can make a
browser send. A form must come from our own origin and carry the value of a cookie that other sites
can neither read nor set.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.dashboard.host import NotAllowed
from holdfast.dashboard.words import BASE
from holdfast.errors import InvalidInput

TOKEN_COOKIE = "holdfast_token"
FORM_COOKIE = "holdfast_form"
FORM_FIELD = "form_token"
TOKEN_MAX = 2800
"""Characters of a token: its cookie stays within the 4,096 bytes that browsers keep."""
COOKIE_S = 12 * 3600
FORM_MAX = 64 * 1024
FIELDS_MAX = 50
BODY_S = 30.0

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    # Not `no-referrer`: with that a browser hides the origin of a form from us too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}


def token_of(request: Request) -> str | None:
    """The token that the login kept."""
    kept = request.cookies.get(TOKEN_COOKIE)
    if not kept:
        return None
    try:
        return base64.urlsafe_b64decode(kept.encode("ascii")).decode()
    except (UnicodeError, binascii.Error):
        return None


def keep_token(response: Response, request: Request, token: str) -> None:
    value = base64.urlsafe_b64encode(token.encode()).decode()
    _set(response, request, TOKEN_COOKIE, value)


def drop_token(response: Response) -> None:
    response.delete_cookie(TOKEN_COOKIE, path="/", httponly=True, samesite="strict")


def _set(response: Response, request: Request, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=COOKIE_S,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
    )


def form_token(request: Request) -> str:
    """What the forms of the answer carry: the cookie's value, or a new one."""
    kept = request.cookies.get(FORM_COOKIE, "")
    if len(kept) >= 32 and kept.isascii() and kept.isprintable():
        return kept
    return secrets.token_urlsafe(32)


def keep_form_token(response: Response, request: Request, value: str) -> None:
    if request.cookies.get(FORM_COOKIE) != value:
        _set(response, request, FORM_COOKIE, value)


async def form(request: Request) -> dict[str, str]:
    """The fields of a form that our own page sent; NotAllowed for any other."""
    _from_us(request)
    fields = await _fields(request)
    kept, sent = request.cookies.get(FORM_COOKIE, ""), fields.pop(FORM_FIELD, "")
    if not kept or not hmac.compare_digest(kept.encode(), sent.encode()):
        raise NotAllowed(why="the form has expired: reload the page and send it again")
    return fields


def _from_us(request: Request) -> None:
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    theirs = origin is not None and _place(origin) != request.headers.get("host")
    if site not in (None, "same-origin") or theirs:
        raise NotAllowed(why="the form was sent from another site")


def _place(origin: str) -> str | None:
    """Host and port of an origin. Its scheme may differ from ours where a proxy ends the TLS."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


async def _fields(request: Request) -> dict[str, str]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise InvalidInput(field="content-type", why="is not that of a form")
    body = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > FORM_MAX:
                    raise InvalidInput(field="body", why=f"is over {FORM_MAX} bytes")
    except TimeoutError:
        raise InvalidInput(field="body", why=f"did not come within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise InvalidInput(field="body", why="the client left before it was whole") from None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise InvalidInput(field="body", why="is not a form that can be read") from None
    return dict(pairs)


def onward(path: str) -> str:
    """Where to go after the login: a page of ours, never another site."""
    return path if path.startswith(f"{BASE}/") and "\\" not in path else "/"
