"""Staying up: what is too much is told so, early, and the rest goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.service.asgi import Client

from holdfast.core.errors import ConfigError
from holdfast.service import deadlines, pages
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.problems import TooManyRequests
from holdfast.service.rates import Rates
from holdfast.service.service import Service
from holdfast.service.settings import Limits
from holdfast.stores import open_store


@asynccontextmanager
async def limited(**limits: Any) -> AsyncIterator[tuple[Service, Client]]:
    """A service with these limits, and a client of it."""
    service = Service(open_store("memory://"), NoAuth(), Limits(**limits))
    await service.store.open()
    try:
        app = application(service, mounts=[pages.dashboard], owns_store=False)
        yield service, Client(app, {"holdfast-tenant": "acme"})
    finally:
        service.close()
        await service.store.close()


async def until(true: Callable[[], bool]) -> None:
    """Turns of the loop, not seconds."""
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_past_the_places_to_wait_a_call_is_told_to_come_later() -> None:
    """Those who wait already go on waiting."""
    async with limited(waiting=2) as (service, client), AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(client.open("POST", "/v1/claim", {"wait": 30}))
        await until(lambda: service.waiters == 2)

        refused = await client.post("/v1/claim", {"wait": 30})
        fine = await client.post("/v1/jobs", {"type": "mail"})

    assert (refused.status, refused.json["code"]) == (503, "OVERLOADED")
    assert refused.headers["retry-after"] == "1"
    assert fine.status == 201


async def test_past_the_requests_under_way_the_next_is_shed() -> None:
    """Before anything of it is read."""
    async with limited(under_way=1) as (service, client):
        async with client.open("POST", "/v1/claim", {"wait": 30}):
            await until(lambda: service.waiters == 1)
            shed = await client.post("/v1/jobs", {"type": "mail"})
        assert (shed.status, shed.json["code"]) == (503, "OVERLOADED")
        assert (await client.get("/v1/jobs")).json["jobs"] == []


async def test_readers_of_events_are_bounded_and_make_room_when_they_leave() -> None:
    """One more is told to come later."""
    async with limited(streams=1) as (service, client):
        async with client.open("GET", "/v1/events/stream") as talk:
            await talk.start()
            await until(lambda: service.streams.taken == 1)
            assert (await client.get("/v1/events/stream")).status == 503
        await until(lambda: service.streams.taken == 0)


@pytest.mark.parametrize("path", ["/v1/events/stream", "/ui/live"])
async def test_a_stream_has_no_deadline(path: str) -> None:
    """It lasts as long as its reader stays."""
    async with limited() as (service, client), client.open("GET", path) as talk:
        status, _ = await talk.start()
        assert status == 200
        assert len(service.deadlines) == 0


async def test_a_body_is_refused_by_what_comes_not_by_what_is_announced() -> None:
    """Also where no length was said."""
    async with limited(body_max=100) as (_, client):
        body = b'{"type":"mail","payload":"' + b"x" * 200 + b'"}'
        announced = await client.post("/v1/jobs", body)
        hidden = await client.post("/v1/jobs", body, content_length="", transfer_encoding="chunked")

        assert announced.status == hidden.status == 413
        assert (await client.get("/v1/jobs")).json["jobs"] == []


async def test_a_request_that_takes_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work is stopped, and the next is served."""
    monkeypatch.setattr(deadlines, "LOOK_S", 0.01)
    async with limited(request_s=0.02) as (_, client):
        late = await client.post("/v1/claim", {"wait": 30})
        fine = await client.get("/healthz")

    assert (late.status, late.json["code"]) == (503, "REQUEST_TIMEOUT")
    assert fine.status == 200


async def test_the_end_of_the_service_answers_those_who_wait() -> None:
    """With nothing, at once."""
    async with limited() as (service, client):
        waiting = asyncio.ensure_future(client.post("/v1/claim", {"wait": 30}))
        await until(lambda: service.waiters == 1)
        service.close()
        async with asyncio.timeout(5):
            assert (await waiting).json == {"leases": []}
        assert (await client.get("/readyz")).status == 503


async def test_a_token_that_calls_too_often_is_slowed_down() -> None:
    """By 429 and when to come again; others are not."""
    async with limited(rate_per_s=0.1, burst=2) as (_, client):
        answers = [await client.get("/v1/queues") for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_each_caller_has_a_bucket_of_its_own() -> None:
    """One caller's haste is not another's wait."""
    rates = Rates(per_s=0.001, burst=1)
    rates.spend("a")

    with pytest.raises(TooManyRequests):
        rates.spend("a")
    rates.spend("b")


def test_impossible_limits_are_refused_by_name() -> None:
    """Where they are made."""
    with pytest.raises(ConfigError, match="waiting"):
        Limits(waiting=0).checked()


@pytest.mark.parametrize("field", ["head_s", "request_s", "wait_s", "rate_per_s"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_lengths_and_rates_are_finite_and_in_bounds(field: str, value: float) -> None:
    """A limit that is no number would be none."""
    with pytest.raises(ConfigError, match=field):
        Limits(**{field: value}).checked()  # type: ignore[arg-type]


async def test_a_rate_of_very_many_digits_is_refused(client: Client) -> None:
    """By its field; the answer does not repeat all of it."""
    answer = await client.patch("/v1/scopes/queue/mail", {"rate": "9" * 5000 + "/s"})

    assert (answer.status, answer.json["field"]) == (422, "rate")
    assert len(answer.body) < 1000


async def test_metrics_tell_requests_and_queues() -> None:
    """As Prometheus reads them."""
    async with limited() as (_, client):
        await client.post("/v1/jobs", {"type": "mail", "queue": "mail"})
        found = await client.get("/metrics")

    assert found.headers["content-type"].startswith("text/plain")
    assert b'holdfast_jobs{queue="mail",state="enqueued"} 1.0' in found.body
    counted = b'holdfast_request_seconds_count{route="enqueue",status="201"} 1.0'
    assert counted in found.body
