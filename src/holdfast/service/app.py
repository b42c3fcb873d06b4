"""The ASGI application: the routes of the table and the OpenAPI document, wrapped by the guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Router
from starlette.routing import Route as At
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.service.endpoint import JSON_MEDIA, Endpoint, Route
from holdfast.service.guard import Guard
from holdfast.service.openapi import document, page
from holdfast.service.routes import ROUTES
from holdfast.service.service import Service

Mount = Callable[[Service], Sequence[BaseRoute]]
"""Returns further routes, such as the Firecrawl protocol or the dashboard."""
CSP = "default-src 'none'; style-src 'unsafe-inline'"


def application(
    service: Service,
    *,
    mounts: Sequence[Mount] = (),
    owns_store: bool = True,
) -> ASGIApp:
    """An ASGI application that serves the store of the service, with the routes of the mounts."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        if owns_store:
            await service.store.open()
        try:
            yield
        finally:
            service.close()
            if owns_store:
                await service.store.close()

    # Our routes come first: routes are tried in order.
    routes: list[BaseRoute] = [at(route, service) for route in ROUTES]
    routes += [At("/openapi.json", _document), At("/docs", _page)]
    routes += [route for mount in mounts for route in mount(service)]
    return Guard(_Routing(Router(routes, redirect_slashes=False, lifespan=lifespan)), service)


class _Routing:
    """Finds routes without path parameters by a dict look-up, all others as Starlette does."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._fixed = {
            (method, route.path): route.endpoint
            for route in router.routes
            if isinstance(route, At) and isinstance(route.endpoint, Endpoint)
            for method in route.methods or ()
            if "{" not in route.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fixed = self._fixed.get((scope.get("method", ""), scope.get("path", "")))
        await (self._router if fixed is None else fixed)(scope, receive, send)


def at(route: Route, service: Service) -> At:
    """A row of the table as a route of Starlette."""
    return At(route.path, Endpoint(route, service), methods=[route.method], name=route.name)


_DOCUMENT = msgspec.json.encode(document(ROUTES))


async def _document(_: Request) -> Response:
    return Response(_DOCUMENT, media_type=JSON_MEDIA)


async def _page(_: Request) -> Response:
    return HTMLResponse(page(ROUTES), headers={"content-security-policy": CSP})
