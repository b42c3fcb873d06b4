"""The routes of sources. `routes.py` has the table of all routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.service import scope_wire, source_wire, wire
from holdfast.service.api import sources
from holdfast.service.endpoint import Handler, Route
from holdfast.service.rights import Right

PRODUCE, READ, OPERATE = Right.PRODUCE, Right.READ, Right.OPERATE


def source_routes(route: Callable[..., Route]) -> Iterator[Route]:
    """Each of them, made by `route`."""

    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return route("sources", name, where, right, handler, **more)

    path = "/v1/sources/{name}"
    out = source_wire.SourceOut
    yield line(
        "sources", "GET /v1/sources", READ, sources.every,
        query=sources.Listing, answer=source_wire.SourcesOut,
    )  # fmt: skip
    yield line("source", f"GET {path}", READ, sources.get, answer=out)
    yield line(
        "source_objects", f"GET {path}/objects", READ, sources.objects,
        query=sources.Listing, answer=source_wire.ObjectsOut,
    )  # fmt: skip
    yield line(
        "push_source", f"POST {path}/push", PRODUCE, sources.push,
        body=source_wire.PushIn, answer=source_wire.PushedOut,
    )  # fmt: skip
    yield line(
        "poll_source", f"POST {path}/poll", OPERATE, sources.poll,
        answer=wire.EnqueuedOut, status=201,
    )  # fmt: skip
    yield line(
        "reconcile_source", f"POST {path}/reconcile", OPERATE, sources.reconcile,
        body=source_wire.ReconcileIn, optional_body=True, answer=wire.EnqueuedOut, status=201,
    )  # fmt: skip
    yield line(
        "pause_source", f"POST {path}/pause", OPERATE, sources.pause,
        body=scope_wire.PauseIn, answer=out,
    )  # fmt: skip
    yield line("resume_source", f"POST {path}/resume", OPERATE, sources.resume, answer=out)
    yield line("reset_source", f"POST {path}/reset", OPERATE, sources.reset, answer=out)
    yield line(
        "delete_source", f"DELETE {path}", OPERATE, sources.delete, answer=source_wire.RemovedOut
    )
