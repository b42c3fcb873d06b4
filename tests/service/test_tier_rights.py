"""Who may read and change tiers and defaults: the platform, in all queues and types; nobody else.

They say what every tenant has, so they are tried by every way: routes, settings by their names, and
what a tenant may set of its own scopes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.service.over_all import OTHERS, PLATFORMS, client_of, limited, packed

from holdfast import operate
from holdfast.core.tiers import Defaults, encode, name_of
from holdfast.service.service import Service
from holdfast.store import Put
from holdfast.stores.remote import wire


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with limited() as found:
        await operate.platform(found.store).tier("pro").set(max_running=7)
        yield found


async def tiers(service: Service) -> dict[str, Defaults]:
    return {one.tier: one.defaults for one in await operate.platform(service.store).tiers()}


@pytest.mark.parametrize("token", [*OTHERS, "mail of all"])
async def test_others_neither_read_nor_change_them(service: Service, token: str) -> None:
    """P7, P19: by the routes of tiers."""
    client, before = client_of(service, token), await tiers(service)
    for method, path, body in (
        ("GET", "/v1/platform/tiers", None),
        ("GET", "/v1/platform/tiers/pro", None),
        ("GET", "/v1/platform/defaults", None),
        ("PATCH", "/v1/platform/tiers/pro", {"max_running": 1}),
        ("PATCH", "/v1/platform/defaults", {"max_running": 1}),
        ("DELETE", "/v1/platform/tiers/pro", None),
    ):
        answer = await client.call(method, path, body)
        assert answer.status in (400, 403), (token, method, path, answer)
        assert b"pro" not in answer.body.replace(path.encode(), b"")
    assert await tiers(service) == before


@pytest.mark.parametrize("token", [*OTHERS, "mail of all"])
async def test_others_do_not_reach_them_by_name(service: Service, token: str) -> None:
    """P19: by the verb of the remote store."""
    client, before = client_of(service, token), await tiers(service)
    for put in (
        Put(name_of("pro"), encode(Defaults(max_running=1)), 1),
        Put(name_of("pro"), None, 1),
        Put(name_of(""), encode(Defaults(max_running=1)), 0),
    ):
        assert (await packed(client, "put", wire.Puts([put]))).status == 403, (token, put)
        listing = wire.Puts([], wire.Under("tier/"))
        assert b"max_running" not in (await packed(client, "put", listing)).body
    for under in ("tier/", "tier/p", ""):
        assert (
            name_of("pro").encode()
            not in (await packed(client, "settings", wire.Under(under))).body
        )
    assert await tiers(service) == before


async def test_a_tenant_does_not_choose_its_tier(service: Service) -> None:
    """P19: neither its admin nor its operator."""
    for token in ("admin", "operator"):
        answer = await client_of(service, token).patch("/v1/scopes/tenant", {"tier": "pro"})
        assert answer.status == 403
        assert b"PLATFORM_ONLY" in answer.body


@pytest.mark.parametrize("token", PLATFORMS)
async def test_the_platform_changes_them(service: Service, token: str) -> None:
    """And a tenant is told what counts for it: here its own limit is below that of its tier."""
    client = client_of(service, token)
    changed = await client.patch("/v1/platform/tiers/pro", {"max_running": 9})
    put = await client.patch("/v1/scopes/tenant", {"tier": "pro"}, holdfast_tenant="acme")
    told = await client_of(service, "operator").get("/v1/scopes/tenant/effective")

    assert (changed.status, put.status, told.status) == (200, 200, 200)
    assert told.json["effective"]["max_running"] == {"value": 1, "layer": "own"}
