"""What is sent: a call of a handler, checked and made into one request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict
from urllib.parse import quote

import msgspec

from holdfast.context import Context
from holdfast.core.bounds import ID_MAX
from holdfast.core.check import check_name, check_seconds
from holdfast.core.codec import to_plain
from holdfast.core.edge_bounds import OUTBOUND_BODY_MAX, OUTBOUND_BUDGET_S_MAX
from holdfast.core.errors import InvalidInput, PayloadTooLarge, did_you_mean
from holdfast.outbound.address import Params, path_of, url_of
from holdfast.outbound.keys import UsedKeys, key_of

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
REPEATABLE = SAFE | {"PUT", "DELETE"}
"""Methods that do the same when they are repeated."""
METHODS = REPEATABLE | {"POST", "PATCH"}

KEY_HEADER = "idempotency-key"
CORRELATION_HEADER = "x-correlation-id"
TRACE_HEADER = "traceparent"
OWN_HEADERS = {KEY_HEADER: "key", CORRELATION_HEADER: "correlation", TRACE_HEADER: "traceparent"}
"""Headers that have an argument of their own."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")


class CallOptions(TypedDict, total=False):
    """The options of one call."""

    params: Params
    """The query."""
    json: Any
    """The body, encoded as JSON."""
    data: bytes
    """The body as it is; name its type in `headers`."""
    headers: Mapping[str, str]
    """Besides those of the client."""
    key: str | None
    """A name that tells several calls of one job apart, an IdempotencyKey, or None for no key."""
    correlation: str
    """The X-Correlation-Id, instead of the job's id."""
    traceparent: str
    """Passed on as it is."""
    timeout: float
    """The seconds of each try, instead of the client's."""
    budget: float
    """The seconds of all tries together, instead of the client's."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One call, the same in each of its tries."""

    method: str
    url: str
    place: str
    headers: dict[str, str]
    body: bytes | None
    repeats: bool
    """Whether it may be sent again although the service may have done it."""
    timeout_s: float
    budget_s: float
    once: bool = False
    """Whether one run of the job makes one try only, and leaves further ones to its policy."""


class Requests:
    """Makes the requests of one client."""

    def __init__(
        self, base: str, headers: Mapping[str, str], timeout: float, budget: float
    ) -> None:
        self._base = base
        self._headers = {"user-agent": "holdfast", **checked_headers(headers)}
        self._timeout_s = _length("timeout", timeout)
        self._budget_s = _length("budget", budget)
        self._used = UsedKeys()

    def make(self, ctx: Context, method: str, path: str, options: CallOptions) -> Request:
        """The request of a call. Raises InvalidInput, which names the argument."""
        check_options(options)
        if method not in METHODS:
            raise InvalidInput(field="method", why=f"must be one of {', '.join(sorted(METHODS))}")
        path = path_of(path)
        body, media = body_of(options)
        headers = {**self._headers, **media, **checked_headers(options.get("headers") or {})}
        headers |= _tracing(ctx, options)
        url = url_of(self._base, path, options.get("params"))
        keyed = self._key(ctx, method, options)
        if keyed is not None:
            self._used.check(ctx, keyed, method, url, body)
            headers[KEY_HEADER] = keyed
        return Request(
            method=method,
            url=url,
            place=(self._base + path).partition("://")[2],
            headers=headers,
            body=body,
            repeats=keyed is not None or method in REPEATABLE,
            timeout_s=_length("timeout", options.get("timeout", self._timeout_s)),
            budget_s=_length("budget", options.get("budget", self._budget_s)),
        )

    def _key(self, ctx: Context, method: str, options: CallOptions) -> str | None:
        """The idempotency key. Safe methods have one only if the caller names it."""
        if "key" not in options:
            return None if method in SAFE else ctx.effect_key
        return None if options["key"] is None else key_of(ctx.effect_key, options["key"])


def check_options(options: CallOptions) -> None:
    """Refuses misspelt options."""
    known = CallOptions.__annotations__
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidInput(field=name, why=f"is no option of a call.{hint}")


def body_of(options: CallOptions) -> tuple[bytes | None, dict[str, str]]:
    """The body, and the header that tells its type."""
    if "json" in options and "data" in options:
        raise InvalidInput(field="json", why="give json= or data=, not both")
    media: dict[str, str] = {}
    if "json" in options:
        try:
            body = msgspec.json.encode(options["json"], enc_hook=to_plain)
        except Exception as error:
            raise InvalidInput(field="json", why=f"cannot be encoded: {error}") from None
        media = {"content-type": "application/json"}
    elif "data" in options:
        body = options["data"]
        if not isinstance(body, bytes):
            raise InvalidInput(field="data", why=f"must be bytes, not {type(body).__name__}")
    else:
        return None, media
    if len(body) > OUTBOUND_BODY_MAX:
        raise PayloadTooLarge(field="body", size=len(body), max=OUTBOUND_BODY_MAX)
    return body, media


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, with names in lower case."""
    checked = {}
    for name, value in headers.items():
        if not isinstance(name, str) or _TOKEN.match(name) is None:
            raise InvalidInput(field="headers", why=f"{name!r:.100} is no name of a header")
        if name.lower() in OWN_HEADERS:
            why = f"{name} is set by the argument {OWN_HEADERS[name.lower()]}="
            raise InvalidInput(field="headers", why=why)
        if not isinstance(value, str) or not value.isprintable():  # The value may be a secret.
            raise InvalidInput(field="headers", why=f"the value of {name} must be printable text")
        checked[name.lower()] = value
    return checked


def _length(field: str, value: float) -> float:
    return check_seconds(field, value, 0.001, OUTBOUND_BUDGET_S_MAX)


def _tracing(ctx: Context, options: CallOptions) -> dict[str, str]:
    """The headers by which a call is found in the logs of both sides."""
    correlation = check_name("correlation", options.get("correlation", ctx.job_id), ID_MAX)
    if not correlation.isascii():
        correlation = quote(correlation)
    headers = {CORRELATION_HEADER: correlation}
    trace = options.get("traceparent")
    if trace is not None:
        if not isinstance(trace, str) or _TRACE.match(trace) is None:
            why = "must be version-trace-parent-flags in hexadecimal, as W3C Trace Context has it"
            raise InvalidInput(field="traceparent", why=why)
        headers[TRACE_HEADER] = trace
    return headers
