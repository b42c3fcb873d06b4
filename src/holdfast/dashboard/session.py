"""Browser sessions: the cookie with the token, and the check that a form was sent by our pages.

Only the dashboard reads the cookie. The API needs a header, which no other site can make a browser
send. A form must come from our own origin and contain the value of a cookie that other sites can
neither read nor set.
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

from holdfast.core.errors import InvalidInput
from holdfast.dashboard.host import NotAllowed
from holdfast.dashboard.words import BASE

TOKEN_COOKIE = "holdfast_token"
FORM_COOKIE = "holdfast_form"
FORM_FIELD = "form_token"
TOKEN_MAX = 2800
"""Maximum characters of a token, so that its cookie fits into the 4,096 bytes of browsers."""
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
    # Not `no-referrer`, with which a browser would hide the origin of a form from us too.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}


def token_of(request: Request) -> str | None:
    """The token that the login stored in the cookie."""
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
    """The value for the forms of the answer: that of the cookie, or a new one."""
    kept = request.cookies.get(FORM_COOKIE, "")
    if len(kept) >= 32 and kept.isascii() and kept.isprintable():
        return kept
    return secrets.token_urlsafe(32)


def keep_form_token(response: Response, request: Request, value: str) -> None:
    if request.cookies.get(FORM_COOKIE) != value:
        _set(response, request, FORM_COOKIE, value)


async def form(request: Request) -> dict[str, str]:
    """The fields of a form of our own pages. Raises NotAllowed for any other form."""
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
    """Host and port of an origin. The scheme may differ if a proxy ends TLS."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


async def _fields(request: Request) -> dict[str, str]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise InvalidInput(field="content-type", why="is not the content type of a form")
    body = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > FORM_MAX:
                    raise InvalidInput(field="body", why=f"is larger than {FORM_MAX} bytes")
    except TimeoutError:
        raise InvalidInput(field="body", why=f"did not arrive within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise InvalidInput(
            field="body", why="the client disconnected before it was complete"
        ) from None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise InvalidInput(field="body", why="is not a form that can be read") from None
    return dict(pairs)


def onward(path: str) -> str:
    """The page to open after the login; never another site."""
    return path if path.startswith(f"{BASE}/") and "\\" not in path else "/"
