"""From a request of the Firecrawl protocol to its handler: authentication, rights and body.

The team is in the path or in the body, so the handler checks whether the caller may act for it
(`Ask.team`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.core.errors import HoldfastError
from holdfast.service.aside import aside
from holdfast.service.call import Call, decoded
from holdfast.service.endpoint import JSON_MEDIA, NOBODY, read
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.wire import Wire
from holdfast.service.problems import (
    BodyTooLarge,
    NotJson,
    WrongMedia,
    answer,
    problem,
)
from holdfast.service.rights import Caller, Forbidden, Right

_encoder = msgspec.json.Encoder()


class BadQuery(NotJson):
    """A query parameter is invalid: 400, as in the original."""

    code = "MALFORMED_QUERY"
    text = "{field}: {why}"


class Ask(Call):
    """One parsed request of the protocol."""

    __slots__ = ("wire",)

    def __init__(self, wire: Wire, request: Request, caller: Caller) -> None:
        super().__init__(wire.service, request, caller, None)
        self.wire = wire

    def team(self, id: str, field: str = "teamId") -> str:
        """The tenant of a team, if the caller may act for it."""
        tenant = mapping.team_name(id, field)
        if self.caller.tenant not in (None, tenant):
            raise Forbidden(why="this token is for another team")
        return tenant

    def number(self, name: str, default: int, most: int) -> int:
        """A query parameter that is a number; larger values are reduced to the maximum."""
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 20:
            raise BadQuery(field=name, why="must be a whole number of 0 or more")
        return min(int(text), most)


Handler = Callable[[Ask], Awaitable[Any]]
Read = Callable[[bytes], Any]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One route of the protocol."""

    name: str
    method: str
    path: str
    right: Right | None
    """The right that it needs. None: no token is needed."""
    handler: Handler
    body: Read | None = None
    """Reads the body. None: the route has no body, and a body is ignored."""


def reader(kind: Any) -> Read:
    """Reads a body of this shape."""
    decoder = msgspec.json.Decoder(kind)
    return lambda body: decoded(decoder, body)


class Endpoint:
    """A route of the protocol as an ASGI application. The guard around it bounds time and size."""

    def __init__(self, line: Line, wire: Wire) -> None:
        self._line = line
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route_name"] = self._line.name
        response = await self._respond(Request(scope, receive, send))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        line, wire = self._line, self._wire
        try:
            caller = NOBODY if line.right is None else await wire.caller(request)
            _allow(line, caller)
            ask = Ask(wire, request, caller)
            if line.body is not None:
                body = await _body(request, wire.settings.body_max)
                ask.body = await aside(len(body), partial(line.body, body))
            if line.right is Right.READ:
                async with wire.service.reads.admit(caller):
                    found = await line.handler(ask)
            else:
                found = await line.handler(ask)
            return Response(_encoder.encode(found), media_type=JSON_MEDIA)
        except HoldfastError as error:
            return answer(problem(error, request.scope.get("request_id")))


def _allow(line: Line, caller: Caller) -> None:
    if line.right is None:
        return
    if line.right not in caller.rights:
        raise Forbidden(why=f"this token has no right to {line.right}")
    caller.check_queue(mapping.QUEUE)


async def _body(request: Request, most: int) -> bytes:
    if "content-type" not in request.headers:
        raise WrongMedia(media="")
    body = await read(request)
    if len(body) > most:
        raise BodyTooLarge(max=most)
    return body
