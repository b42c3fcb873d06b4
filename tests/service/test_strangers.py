"""What a stranger can make of the service: numbers that are too long, errors that tell too much."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.service.asgi import Client

from holdfast.core.errors import StoreUnavailable
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.service import Service
from holdfast.stores import open_store

DIGITS = "9" * 5000
"""More than Python turns into a number (4,300)."""
DIRTY = "postgresql://holdfast:5ecret@10.1.2.3/jobs"


@pytest.mark.parametrize(
    ("where", "body", "headers", "status"),
    [
        ("GET /v1/events/stream", None, {"last-event-id": DIGITS}, 422),
        (f"GET /v1/events?after={DIGITS}", None, {}, 422),
        (f"GET /v1/jobs?cursor={DIGITS}", None, {}, 422),
        ("PATCH /v1/scopes/tenant", {"rate": f"{DIGITS}/s"}, {}, 422),
        ("PATCH /v1/scopes/queue/q", {"groups": {"rate": f"{DIGITS}/s"}}, {}, 422),
        ("POST /v1/jobs", b"{}", {"content-length": DIGITS}, 413),
    ],
    ids=["last-event-id", "after", "cursor", "rate", "rate of groups", "content-length"],
)
async def test_a_number_of_5000_digits_is_refused_by_its_field(
    client: Client, where: str, body: object, headers: dict[str, str], status: int
) -> None:
    """P15: whatever a client sends, it is a refusal and no fault."""
    method, path = where.split(" ")
    answer = await client.call(method, path, body, **headers)

    assert answer.status == status, answer
    assert answer.json["code"] != "INTERNAL"


async def test_readiness_tells_strangers_nothing_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may ask whether it is ready; why it is not is in the log."""
    service = Service(open_store(f"sqlite:///{tmp_path}/jobs.db"), NoAuth())

    async def settings(*_: object, **__: object) -> None:
        raise StoreUnavailable(store=DIRTY, why="password authentication failed for holdfast")

    service.store.settings = settings  # type: ignore[method-assign,assignment] # A fault, injected.
    answer = await Client(application(service, owns_store=False)).get("/readyz")

    assert (answer.status, answer.json["ready"]) == (503, False)
    for word in (b"5ecret", b"10.1.2.3", b"password", str(tmp_path).encode()):
        assert word not in answer.body
    assert "password authentication failed" in caplog.text
