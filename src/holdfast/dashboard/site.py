"""Wraps every page: authentication, headers, errors as pages, and the redirect to the login."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.core.errors import HoldfastError
from holdfast.dashboard import html, session
from holdfast.dashboard.host import READ, Host, Viewer
from holdfast.dashboard.live import Hub
from holdfast.dashboard.words import link, unlink

UNKNOWN = 401
"""The status for a viewer who is not signed in."""

DID = {
    "schedule_paused": "The schedule is paused. It makes no jobs until it is resumed.",
    "schedule_resumed": "The schedule is resumed. It goes on with its next tick.",
    "schedule_run": "The job was made besides the ticks of its schedule.",
    "source_polled": "This job polls the source.",
    "source_listed": "This job begins the full listing of the source.",
    "source_paused": "The source is paused. Nothing is read until it is resumed.",
    "source_resumed": "The source is resumed.",
    "changed": "The job was changed.",
    "canceled": "The job is canceled.",
    "ended": "The job had already ended; nothing was changed.",
    "signaled": "The signal is stored.",
    "known": "An earlier signal of this name counts; nothing was changed.",
    "replayed": "The job was replayed: this is the new one.",
    "paused": "The queue is paused. Running jobs continue; no new job starts.",
    "resumed": "The queue is resumed.",
    "limited": "The limits of all tenants are set.",
    "paused_all": "It is paused for all tenants. Running jobs continue; no new job starts.",
    "resumed_all": "It is resumed for all tenants.",
}
"""Messages after an action. Only these texts are shown, never text from an address."""

TITLES = {
    401: "Please sign in",
    403: "Not allowed",
    404: "Not found",
    409: "This is not possible now",
    422: "Invalid input",
    429: "Please try again in a moment",
    501: "This store cannot do it",
    503: "Please try again in a moment",
}


class Ask:
    """One parsed request, with its viewer."""

    def __init__(self, host: Host, hub: Hub, request: Request, viewer: Viewer) -> None:
        self.host = host
        self.hub = hub
        self.request = request
        self.viewer = viewer

    @property
    def params(self) -> Mapping[str, str]:
        return self.request.query_params

    def part(self, name: str) -> str:
        """A decoded segment of the path; the inverse of `link`."""
        return unlink(self.request.path_params[name])

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        now = self.host.clock.now()
        return page(self.request, self.viewer, template, status=status, now=now, **values)


Handler = Callable[[Ask], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Site:
    """The parts that all endpoints share."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.hub = Hub(host, html.overview)

    def endpoint(self, name: str, handler: Handler) -> Endpoint:
        """Wraps a handler with authentication."""

        async def endpoint(request: Request) -> Response:
            request.scope["route_name"] = f"dashboard_{name}"
            viewer = None
            try:
                viewer = await self.host.who(request, session.token_of(request))
                viewer.check(READ in viewer.rights, READ)
                async with asyncio.timeout(self.host.request_s), self.host.turn(viewer):
                    await self.host.clock.look()
                    return await handler(Ask(self.host, self.hub, request, viewer))
            except HoldfastError as error:
                return self.refused(request, error, viewer)
            except TimeoutError:
                why = f"This did not finish within {self.host.request_s:g} s."
                return _told(request, viewer, 503, why)

        return endpoint

    def refused(self, request: Request, error: HoldfastError, viewer: Viewer | None) -> Response:
        """The error as a page, or a redirect to the login if the viewer is not signed in."""
        status = self.host.status(error)
        if status == UNKNOWN and request.method in ("GET", "HEAD") and not _streams(request):
            here = request.scope.get("raw_path", b"/").decode("latin-1")
            query = request.scope.get("query_string", b"").decode("latin-1")
            where = quote(f"{here}?{query}" if query else here, safe="")
            return moved(f"{link('login')}?next={where}")
        return _told(request, viewer, status, str(error))


def _streams(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


def _told(request: Request, viewer: Viewer | None, status: int, why: str) -> Response:
    title = TITLES.get(status, "Something went wrong")
    return page(request, viewer, "error.html", status=status, title=title, why=why)


def moved(where: str) -> Response:
    """A redirect to another page, by GET."""
    return RedirectResponse(where, 303, headers={**session.HEADERS, "cache-control": "no-store"})


def page(
    request: Request, viewer: Viewer | None, template: str, *, status: int = 200, **values: Any
) -> Response:
    """A complete page with its headers and cookies."""
    token = session.form_token(request)
    did = DID.get(request.query_params.get("did", ""), "")
    shown = {
        "viewer": viewer,
        "signed": session.TOKEN_COOKIE in request.cookies,
        "form_field": session.FORM_FIELD,
        "form_token": token,
        "did": did,
        "now": time.time_ns() // 1000,
        "path": request.scope["path"],
        **values,
    }
    text = html.render(template, **shown)
    headers = {**session.HEADERS, "cache-control": "no-store"}
    answer = HTMLResponse(text, status, headers=headers)
    session.keep_form_token(answer, request, token)
    return answer
