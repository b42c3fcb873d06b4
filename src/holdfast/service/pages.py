"""Mounts the dashboard into the service, with its store and authentication by cookie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute

from holdfast.dashboard.host import Host, Viewer
from holdfast.dashboard.pages import routes
from holdfast.service.problems import status_of
from holdfast.service.rights import Caller, Right
from holdfast.service.service import Service
from holdfast.service.standing import Standing

_HEADER = b"authorization"
_OWN = frozenset({_HEADER, b"x-api-key"})


def dashboard(service: Service) -> Sequence[BaseRoute]:
    """A `Mount` for the pages at `/` and under `/ui`."""

    async def who(request: Request, token: str | None) -> Viewer:
        return _viewer(await service.caller(_bearing(request, token)))

    def standing(
        request: Request, token: str | None, viewer: Viewer
    ) -> Callable[[], Awaitable[bool]]:
        bearing = _bearing(request, token)
        return Standing(service, bearing, lambda caller: _viewer(caller) == viewer).holds

    def stream(request: Request, viewer: Viewer) -> None:
        service.hold(request, service.streams, _caller(viewer))

    return routes(
        Host(
            store=service.store,
            clock=service.store_clock,
            codecs=service.codecs,
            who=who,
            status_of=status_of,
            closing=lambda: service.closing,
            request_s=service.limits.request_s,
            endless=service.deadlines.free,
            standing=standing,
            stream=stream,
            turn=lambda viewer: service.reads.admit(_caller(viewer)),
        )
    )


def _viewer(caller: Caller) -> Viewer:
    return Viewer(
        name=caller.name,
        tenant=caller.tenant,
        rights=frozenset(right.value for right in caller.rights),
        queues=caller.queues,
        types=caller.types,
    )


def _caller(viewer: Viewer) -> Caller:
    """The part of a caller that shares depend on."""
    rights = frozenset(Right(right) for right in viewer.rights)
    return Caller(name=viewer.name, tenant=viewer.tenant, rights=rights)


def _bearing(request: Request, token: str | None) -> Request:
    """The request with its cookie as a header. An existing header takes precedence."""
    headers = request.scope["headers"]
    if token is None or any(name in _OWN for name, _ in headers):
        return request
    bearer = (_HEADER, f"Bearer {token}".encode("latin-1", "replace"))
    return Request({**request.scope, "headers": [*headers, bearer]})
