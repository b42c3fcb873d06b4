"""The routes of webhooks. `routes.py` has the table of all routes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.service import scope_wire, webhook_wire, wire
from holdfast.service.api import webhooks
from holdfast.service.endpoint import Handler, Route
from holdfast.service.rights import Right

READ, OPERATE = Right.READ, Right.OPERATE


def webhook_routes(route: Callable[..., Route]) -> Iterator[Route]:
    """Each of them, made by `route`."""

    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return route("webhooks", name, where, right, handler, **more)

    path, shapes = "/v1/webhooks/{name}", webhook_wire
    out = shapes.WebhookOut
    yield line("webhooks", "GET /v1/webhooks", READ, webhooks.every, answer=shapes.WebhooksOut)
    yield line("webhook", f"GET {path}", READ, webhooks.get, answer=out)
    yield line("delete_webhook", f"DELETE {path}", OPERATE, webhooks.delete, answer=wire.DeletedOut)
    for name, where, handler, more in (
        ("set", f"PUT {path}", webhooks.put, {"body": shapes.WebhookIn, "status": 201}),
        ("pause", f"POST {path}/pause", webhooks.pause, {"body": scope_wire.PauseIn}),
        ("resume", f"POST {path}/resume", webhooks.resume, {"body": shapes.ResumeIn}),
        ("rotate", f"POST {path}/rotate", webhooks.rotate, {"body": shapes.RotateIn}),
        ("test", f"POST {path}/test", webhooks.test, {"answer": wire.EnqueuedOut, "status": 201}),
    ):
        usual = {"answer": out, "optional_body": name in ("resume", "rotate")}
        yield line(f"{name}_webhook", where, OPERATE, handler, **(usual | more))
