"""`/v1/platform/tiers` and `/v1/platform/defaults`: what they take, answer and refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.service.asgi import Client

from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.service import Service
from holdfast.stores import open_store

PRO = "/v1/platform/tiers/pro"
DEFAULTS = "/v1/platform/defaults"
each_layer = pytest.mark.parametrize("path", [PRO, DEFAULTS])


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Names no tenant: these routes are about all of them."""
    service = Service(open_store("memory://"), NoAuth())
    await service.store.open()
    yield Client(application(service, owns_store=False))
    service.close()
    await service.store.close()


@each_layer
async def test_values_are_set_read_and_removed(client: Client, path: str) -> None:
    """Those that are not named stay."""
    set_ = {"max_running": 5, "queue": {"rate": "9/s"}, "ceiling": {"max_running": 8}}

    done = await client.patch(path, set_)
    less = await client.patch(path, {"max_running": None, "ceiling": None, "expect": 1})

    assert (done.status, done.json["version"]) == (200, 1)
    assert done.json["defaults"]["queue"]["rate"]["count"] == 9
    assert set(less.json["defaults"]) == {"queue"}
    assert (await client.get(path)).json == less.json
    assert (await client.patch(path, {"weight": 2, "expect": 1})).status == 409


@each_layer
@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("max_running", {"max_running": 0}),
        ("rate", {"rate": "100"}),
        ("burst", {"burst": 3}),
        ("weight", {"weight": 1001}),
        ("queue.rate", {"queue": {"rate": "100"}}),
        ("group.rate", {"group": {"rate": "0/s"}}),
        ("queue.max_running", {"queue": {"max_running": 0}}),
        ("ceiling.rate", {"ceiling": {"rate": "9/w"}}),
        ("max_running", {"max_running": 9, "ceiling": {"max_running": 8}}),
        ("max_runing", {"max_runing": 9}),
        ("body", {}),
    ],
    ids=str,
)
async def test_bad_values_are_refused_by_name(
    client: Client, path: str, field: str, body: dict[str, Any]
) -> None:
    """P15: and nothing is changed."""
    answer = await client.patch(path, body)

    assert (answer.status, answer.json["field"]) == (422, field), answer
    assert (await client.get("/v1/platform/tiers")).json["tiers"] == []


async def test_a_tier_in_use_is_not_deleted_and_an_unknown_one_not_given(client: Client) -> None:
    """With the number of its tenants, and the name that was meant."""
    await client.patch(PRO, {"max_running": 5})
    put = await client.patch("/v1/scopes/tenant", {"tier": "pro"}, holdfast_tenant="acme")

    used = await client.call("DELETE", PRO, None)
    unknown = await client.patch("/v1/scopes/tenant", {"tier": "prro"}, holdfast_tenant="globex")
    absent = await client.call("DELETE", "/v1/platform/tiers/prro", None)

    assert put.status == 200, put
    assert (used.status, used.json["field"]) == (422, "tier")
    assert "1 tenant is in 'pro'" in used.json["detail"]
    for refused in (unknown, absent):
        assert (refused.status, refused.json["field"]) == (422, "tier")
        assert "Did you mean 'pro'" in refused.json["detail"]
    [tier] = (await client.get("/v1/platform/tiers")).json["tiers"]
    assert (tier["tier"], tier["version"]) == ("pro", 1)


async def test_a_value_that_is_the_ceiling_says_so(client: Client) -> None:
    """The tenant sees why it has less than it set."""
    await client.patch(DEFAULTS, {"ceiling": {"max_running": 5}})
    await client.patch("/v1/scopes/tenant", {"max_running": 50}, holdfast_tenant="acme")

    found = (await client.get("/v1/scopes/tenant/effective", holdfast_tenant="acme")).json

    assert found["effective"]["max_running"] == {"value": 5, "layer": "platform", "ceiling": True}
    assert found["effective"]["weight"] == {"value": 1, "layer": "built-in"}
