"""From a request to its handler: authentication, rights, tenant and values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.core.errors import HoldfastError
from holdfast.service.call import TENANT_HEADER, Call, decoded, header, queried, tenant_of
from holdfast.service.problems import NotJson, WrongMedia, answer, problem
from holdfast.service.rights import Caller, Forbidden, Right
from holdfast.service.service import Service

JSON_MEDIA = "application/json"

Handler = Callable[[Call], Awaitable[Any]]

NOBODY = Caller(name="nobody", tenant=None, rights=frozenset())
"""The caller of routes that need no token."""

_encoder = msgspec.json.Encoder()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: everything that the service knows about a route."""

    name: str
    """Its id in the OpenAPI document, in logs and in metrics."""
    method: str
    path: str
    right: Right | None
    """The right that it needs. None: no token is needed."""
    summary: str
    handler: Handler
    body: Any = None
    optional_body: bool = False
    query: Any = None
    answer: Any = None
    """The shape of a 200 answer. A handler may also return a Response."""
    status: int = 200
    tenant: bool | None = True
    """Whether it is about one tenant. False: about all tenants, and not for a token of one. None:
    its values name tenants, and its handler checks them for a caller of one tenant.
    """
    waits: bool = False
    """Whether it may take as long as the caller wants to wait."""
    streams: bool = False
    """Whether it answers with server-sent events."""
    takes_bytes: bool = False
    """Whether its body is any bytes."""
    gives_bytes: bool = False
    """Whether it answers with any bytes."""
    hidden: bool = False
    """Whether it is left out of the OpenAPI document."""
    part: str = ""
    """The heading under which the OpenAPI document lists it."""


class Status(msgspec.Struct, frozen=True):
    """An answer with another status than 200."""

    status: int
    value: Any


class Endpoint:
    """A route as an ASGI application. Starlette's own endpoints add two layers to each answer,
    which take a sixth of the time of a request.
    """

    def __init__(self, route: Route, service: Service) -> None:
        self._route = route
        self._service = service
        self._decoder = None if route.body is None else msgspec.json.Decoder(route.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route_name"] = self._route.name
        response = await self._respond(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        route, service = self._route, self._service
        try:
            caller = NOBODY if route.right is None else await service.caller(request)
            allow(route, caller)
            call = Call(service, request, caller, self._tenant(caller, request))
            if route.query is not None:
                call.query = queried(route.query, request)
            if self._decoder is not None:
                body = await read(request)
                if body or not route.optional_body:
                    call.body = decoded(self._decoder, body)
            if route.waits:
                with service.waiting.place(caller):
                    return _answer(route, await route.handler(call))
            if route.right is Right.READ:
                async with service.reads.admit(caller):
                    return _answer(route, await route.handler(call))
            return _answer(route, await route.handler(call))
        except HoldfastError as error:
            return answer(problem(error, request.scope.get("request_id")))

    def _tenant(self, caller: Caller, request: Request) -> str | None:
        if self._route.tenant is False:
            return None
        named = header(request, TENANT_HEADER)
        if self._route.tenant is None and named is None:
            return caller.tenant
        return tenant_of(caller, named, self._service.config.tenant)


def allow(route: Route, caller: Caller) -> None:
    if route.right is not None and route.right not in caller.rights:
        raise Forbidden(why=f"this token has no right to {route.right}")
    if route.tenant is False and route.right is not None and caller.tenant is not None:
        raise Forbidden(why="this route is about every tenant, but the token is for one")


async def read(request: Request) -> bytes:
    """The body. The guard bounds its size and its time."""
    media = header(request, b"content-type")
    if media not in (None, JSON_MEDIA) and not _is_json(media or ""):
        raise WrongMedia(media=media, wanted=JSON_MEDIA)
    parts: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise NotJson(why="the client disconnected before it was complete")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts) if len(parts) > 1 else parts[0]


def _is_json(media: str) -> bool:
    return media.partition(";")[0].strip().lower().endswith("json")


def _answer(route: Route, value: Any) -> Response:
    if isinstance(value, Response):
        return value
    status = route.status
    if isinstance(value, Status):
        status, value = value.status, value.value
    return Json(_encoder.encode(value), status)


class Json(Response):
    """A JSON response with only the necessary headers."""

    def __init__(self, body: bytes, status: int) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
