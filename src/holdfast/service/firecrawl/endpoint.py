"""From a request of the wire to its handler: who calls, with what right, with which body.

The team is in the path or in the body, so whether the caller may act for it is asked there
(`Ask.team`), not here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.errors import HoldfastError
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
    """A parameter of the path's query is not what it should be: 400, as the original says."""

    code = "MALFORMED_QUERY"
    text = "{field}: {why}"


class Ask(Call):
    """One request of the wire, understood."""

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
        """A parameter that is a count; more than the most is the most."""
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 20:
            raise BadQuery(field=name, why="must be a whole number from 0 on")
        return min(int(text), most)


Handler = Callable[[Ask], Awaitable[Any]]
Read = Callable[[bytes], Any]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One route of the wire."""

    name: str
    method: str
    path: str
    right: Right | None
    """None: anybody may."""
    handler: Handler
    body: Read | None = None
    """Reads the body; None: there is none, and what comes all the same is not looked at."""


def reader(kind: Any) -> Read:
    """Reads a body of this shape."""
    decoder = msgspec.json.Decoder(kind)
    return lambda body: decoded(decoder, body)


class Endpoint:
    """A route of the wire as an ASGI application; the guard around it sees to time and size."""

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
                async with wire.service.reads.lane(caller):
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
