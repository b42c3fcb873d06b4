"""A job that comes over HTTP gets what its type says, where an app has published it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.service.asgi import Client
from tests.service.conftest import ACME

from holdfast import App, Context, JobRecord
from holdfast.service.service import Service


@pytest.fixture
async def app(service: Service) -> AsyncIterator[App]:
    """With a type, on the service's store."""
    app = App(service.store)

    @app.job(queue="mail", priority=3, max_attempts=7, timeout=30, retry="brisk", keep=60)
    async def send(ctx: Context, to: str) -> None: ...

    async with app:
        yield app


async def test_a_published_type_gives_its_queue_and_rules(client: Client, app: App) -> None:
    """One by one and in batches; what the request says wins."""
    batch = [{"type": "send"}, {"type": "send", "queue": "q", "max_attempts": 2, "timeout": 1}]
    one = (await client.post("/v1/jobs", {"type": "send"})).json
    two = (await client.post("/v1/jobs", {"type": "send", "delay": 5, "priority": 0})).json
    many = (await client.post("/v1/jobs/batch", {"jobs": batch})).json["jobs"]

    async def kept(made: dict[str, str]) -> JobRecord:
        return await app.tenant(ACME).get(made["id"])

    rules = app.registry.of_kind(next(iter(app.registry)).kind).rules
    plain, later, first, second = [await kept(made) for made in (one, two, *many)]
    assert (plain.queue, plain.priority, plain.rules) == ("mail", 3, rules)
    assert (later.queue, later.priority, later.rules) == ("mail", 0, rules)
    assert (first.queue, first.priority, first.rules) == ("mail", 3, rules)
    assert (second.queue, second.max_attempts, second.rules.timeout_us) == ("q", 2, 1_000_000)
    assert second.rules.retry == rules.retry


async def test_the_answer_says_when_no_app_knows_the_type(client: Client, app: App) -> None:
    """The job is kept all the same: its app may come later."""
    known = await client.post("/v1/jobs", {"type": "send"})
    unknown = await client.post("/v1/jobs", {"type": "sned"})
    batch = await client.post("/v1/jobs/batch", {"jobs": [{"type": "send"}, {"type": "sned"}]})

    assert (known.status, known.json["type_known"]) == (201, True)
    assert (unknown.status, unknown.json["type_known"]) == (201, False)
    assert [one["type_known"] for one in batch.json["jobs"]] == [True, False]
    assert (await app.tenant(ACME).get(unknown.json["id"])).queue == "default"
