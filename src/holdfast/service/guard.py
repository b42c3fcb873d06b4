"""Wraps every request: request id, access log, limits of size and of concurrent requests.

It is plain ASGI around the whole application, so every request pays its cost.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable
from itertools import count
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.core.errors import HoldfastError
from holdfast.service.call import SLASH
from holdfast.service.problems import (
    BodyTooLarge,
    MethodNotAllowed,
    NotFound,
    NotJson,
    Overloaded,
    TimedOut,
    answer,
    fault,
    problem,
)
from holdfast.service.proxies import Proxies
from holdfast.service.service import HELD, Service

logger = logging.getLogger("holdfast.access")
faults = logging.getLogger("holdfast")

ID_HEADER = b"x-request-id"
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
HEADERS_MAX = 100
LENGTH_DIGITS = 18
"""Maximum digits of a Content-Length. Python refuses to convert 4,300 digits."""
_PROCESS = uuid.uuid4().hex[:20]
_numbers = count(1)
"""Request ids of this process are consecutive: a random one for each would take 3 us."""


class Guard:
    """Wraps the application of one service."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._proxies = Proxies.of_environment()
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        named = scope["named_headers"] = dict(scope["headers"])
        request_id = scope["request_id"] = _request_id(named)
        held: list[Callable[[], None]] = []
        scope[HELD] = held
        scope["app"] = self  # Makes routing raise its errors.
        if b"x-forwarded-proto" in named:
            self._believe(scope)
        told = Told(send, request_id)
        limits, deadlines = self._service.limits, self._service.deadlines
        self.under_way += 1
        task = deadlines.begin(limits.request_s)
        try:
            self._admit(scope)
            scope["path"] = readable(scope)
            if b"transfer-encoding" in named:  # Otherwise the announced length was checked.
                receive = Sized(receive, limits.body_max)
            await self._app(scope, receive, told)
        except BaseException as error:
            response = self._refused(error, scope, task)
            if not told.begun:
                await response(scope, receive, told)
        finally:
            self.under_way -= 1
            for give_back in held:
                give_back()
            deadlines.end(task)
            took = time.perf_counter() - started
            name = scope.get("route_name", "none")
            self._service.metrics.served(name, told.status, took)
            if logger.isEnabledFor(logging.INFO):
                words = '%s "%s %s" %d %.1f ms %s'
                client = scope["client"][0] if scope.get("client") else "-"
                path = scope["raw_path"].decode("latin-1")
                logger.info(
                    words, client, scope["method"], path, told.status, took * 1e3, request_id
                )

    def _refused(self, error: BaseException, scope: Scope, task: asyncio.Task[object]) -> Response:
        """The answer for an error. Raises it again if it is not an error of a request."""
        request_id = scope["request_id"]
        match error:
            case HoldfastError():
                return answer(problem(error, request_id))
            case HTTPException():
                return _unrouted(scope, error)
            case asyncio.CancelledError() if self._service.deadlines.was_late(task):
                late = TimedOut(seconds=self._service.limits.request_s)
                return answer(problem(late, request_id))
            case Exception():
                faults.error("request %s failed", request_id, exc_info=error)
                return answer(fault(request_id))
        raise error

    def _believe(self, scope: Scope) -> None:
        """The scheme that the browser used, if a trusted proxy reports it."""
        client = scope["client"][0] if scope.get("client") else None
        said = scope["named_headers"][b"x-forwarded-proto"].decode("latin-1")
        scope["scheme"] = self._proxies.scheme(client, said) or scope["scheme"]

    def _admit(self, scope: Scope) -> None:
        limits = self._service.limits
        if self.under_way > limits.under_way:
            why = f"{self.under_way} requests are running"
            raise Overloaded(why=why, retry_after_s=1)
        if len(scope["headers"]) > HEADERS_MAX:
            raise NotJson(why=f"more than {HEADERS_MAX} headers")
        length = scope["named_headers"].get(b"content-length", b"")
        if length.isdigit() and (len(length) > LENGTH_DIGITS or int(length) > limits.body_max):
            raise BodyTooLarge(max=limits.body_max)


def _unrouted(scope: Scope, error: HTTPException) -> Response:
    """Turns an error of the routing into a problem document."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        told = MethodNotAllowed(method=scope["method"], allowed=allowed)
        return answer(problem(told, scope["request_id"]), {"allow": allowed})
    path = scope["path"].replace(SLASH, "%2F")
    return answer(problem(NotFound(what=f"route {path!r}"), scope["request_id"]))


def _request_id(named: dict[bytes, bytes]) -> str:
    """The request id of the caller if it is valid, else a new one."""
    given = named.get(ID_HEADER)
    if given is not None and _SANE_ID.match(given):
        return given.decode()
    return f"{_PROCESS}{next(_numbers):x}"


def readable(scope: Scope) -> str:
    """The decoded path. An encoded slash stays inside its segment."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if b"%" not in raw:
        return str(scope["path"])
    try:
        text = raw.decode("ascii")
        parts = [unquote(part, errors="strict") for part in text.split("/")]
    except (UnicodeDecodeError, ValueError):
        raise NotJson(why="the path is not UTF-8") from None
    if any(SLASH in part for part in parts):
        raise NotJson(why="the path has a null character")
    return "/".join(part.replace("/", SLASH) for part in parts)


class Told:
    """Sends messages and remembers the status."""

    __slots__ = ("_id", "_send", "begun", "status")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._id = request_id.encode()
        self.begun = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            message.setdefault("headers", [])
            message["headers"].append((ID_HEADER, self._id))
        await self._send(message)


class Sized:
    """Receives messages and refuses too large a body that has no announced length."""

    __slots__ = ("_left", "_max", "_receive")

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._max = self._left = most

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise BodyTooLarge(max=self._max)
        return message
