"""What the platform set on a tenant, and the tenant's own tokens: by the native routes, by the
store's verbs, and by the dashboard.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.dashboard.visitor import Visitor
from tests.service.asgi import Answer, Client

from holdfast.core.errors import ConfigError
from holdfast.core.rate import rate
from holdfast.core.scope import Ceiling, Pause, Scope, ScopeSettings, decode, encode
from holdfast.scopes import ScopeHandle
from holdfast.service.app import application
from holdfast.service.auth.keys import KeyEntry, hash_of, new_key, read_keys
from holdfast.service.pages import dashboard
from holdfast.service.rights import Caller, Right, Unauthenticated, rights
from holdfast.service.service import Service
from holdfast.store import Put
from holdfast.stores import open_store
from holdfast.stores.remote import wire

CALLERS = {
    "root": Caller(name="root", tenant=None, rights=rights([Right.ADMIN])),
    "platform": Caller(name="platform", tenant=None, rights=rights([Right.PLATFORM])),
    "operator of all": Caller(name="ops", tenant=None, rights=rights([Right.OPERATE])),
    "operator": Caller(name="ann", tenant="acme", rights=rights([Right.OPERATE], "acme")),
    "admin": Caller(name="amy", tenant="acme", rights=rights([Right.ADMIN], "acme")),
    "forged": Caller(name="eve", tenant="acme", rights=frozenset(Right)),
}
PLATFORMS = ("root", "platform")
TENANTS = tuple(name for name in CALLERS if name not in PLATFORMS)

SET = ScopeSettings(
    max_running=10,
    rate=rate("10/s"),
    weight=2,
    max_queued=100,
    max_bytes=1000,
    ceiling=Ceiling(max_running=10, rate=rate("10/s")),
)
SCOPE = Scope("acme")


class Tokens:
    """Each token is the name of its caller."""

    async def caller(self, request: Any) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in CALLERS:
            raise Unauthenticated(why="there is no such token")
        return CALLERS[token]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """The platform has set caps, weight and ceilings of acme."""
    found = Service(open_store("memory://"), Tokens())
    await found.store.open()
    await found.store.settings([Put(SCOPE.name, encode(SET), 0)])
    yield found
    found.close()
    await found.store.close()


def client_of(service: Service, token: str) -> Client:
    app = application(service, mounts=[dashboard], owns_store=False)
    return Client(app, {"authorization": f"Bearer {token}", "holdfast-tenant": "acme"})


async def stored(service: Service) -> ScopeSettings:
    found = await service.store.settings(under=SCOPE.name)
    return decode(SCOPE.name, found[0].value) if found else ScopeSettings()


async def put(service: Service, token: str, **changes: Any) -> Answer:
    """As a client of its own could: the whole value, at the present version."""
    state = await ScopeHandle(service.store, SCOPE).get()
    fields = {name: getattr(state.settings, name) for name in ScopeSettings.__struct_fields__}
    value = None if changes.pop("gone", False) else encode(ScopeSettings(**{**fields, **changes}))
    body = wire.encode(wire.Puts([Put(SCOPE.name, value, state.version)], None))
    client = client_of(service, token)
    return await client.post("/v1/store/put", body, content_type=wire.MEDIA)


LIFTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a higher weight": ({"weight": 100}, {"weight": 100}),
    "the usual weight": ({"weight": 1}, {"weight": 1}),
    "no cap of jobs": ({"max_queued": None}, {"max_queued": None}),
    "a higher cap": ({"max_queued": 101}, {"max_queued": 101}),
    "no cap of bytes": ({"max_bytes": None}, {"max_bytes": None}),
    "no ceiling": ({"ceiling": None}, {"ceiling": None}),
    "a higher ceiling": (
        {"ceiling": {"max_running": 99}},
        {"ceiling": Ceiling(max_running=99, rate=rate("10/s"))},
    ),
    "more running": ({"max_running": 11}, {"max_running": 11}),
    "a faster rate": ({"rate": "11/s"}, {"rate": rate("11/s")}),
    "a larger burst": ({"burst": 11}, {"rate": rate("10/s", 11)}),
}


@pytest.mark.parametrize("lift", LIFTS)
@pytest.mark.parametrize("token", TENANTS)
async def test_a_tenants_token_lifts_nothing_that_the_platform_set(
    service: Service, token: str, lift: str
) -> None:
    """P19: by neither way; the refusal names the field."""
    body, value = LIFTS[lift]
    told = await client_of(service, token).patch("/v1/scopes/tenant", body)
    sent = await put(service, token, **value)

    field = next(iter(value))
    assert (told.status, told.json["field"]) in ((403, field), (422, field)), told
    assert sent.status == told.status, sent
    assert msgspec.msgpack.decode(sent.body)["facts"]["field"] == field
    assert await stored(service) == SET


@pytest.mark.parametrize("token", TENANTS)
async def test_a_tenant_that_takes_its_settings_away_keeps_what_the_platform_set(
    service: Service, token: str
) -> None:
    """A put without a value would take everything."""
    answer = await put(service, token, gone=True)

    assert answer.status == 403, answer
    assert await stored(service) == SET


@pytest.mark.parametrize("token", TENANTS)
async def test_a_tenant_sets_its_own_limits_below_the_ceiling(service: Service, token: str) -> None:
    """And gets the ceiling back where it takes its own away, by either way."""
    client = client_of(service, token)
    low = await client.patch("/v1/scopes/tenant", {"max_running": 3, "rate": "5/s"})
    assert (low.status, low.json["settings"]["max_running"]) == (200, 3)
    back = await client.patch("/v1/scopes/tenant", {"max_running": None, "rate": None})
    assert back.json["settings"]["max_running"] == 10
    assert await stored(service) == SET

    assert (await put(service, token, max_running=3)).status == 200
    assert (await stored(service)).max_running == 3
    assert (await put(service, token, max_running=None)).status == 200
    assert await stored(service) == SET


@pytest.mark.parametrize("token", PLATFORMS)
async def test_the_platform_sets_and_lifts(service: Service, token: str) -> None:
    """With the right to platform, or that to admin every tenant."""
    client = client_of(service, token)
    body = {"weight": 5, "max_queued": None, "ceiling": {"max_running": 50}}
    done = await client.patch("/v1/scopes/tenant", body)

    assert done.status == 200, done
    found = await stored(service)
    assert (found.weight, found.max_queued, found.max_running) == (5, None, 50)
    assert (await client.patch("/v1/scopes/tenant", {"ceiling": None})).status == 200
    assert (await stored(service)).max_running is None


async def test_a_ceiling_that_is_put_alone_holds(service: Service) -> None:
    """Also by the store's verb, where the client says all of it: claims look at the limit."""
    sent = await put(service, "root", max_running=None, rate=None, ceiling=Ceiling(max_running=4))

    assert sent.status == 200, sent
    found = await stored(service)
    assert (found.max_running, found.rate) == (4, None)
    assert (await put(service, "root", max_running=5)).status == 422


# -- pauses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tenant", "queue/mail"])
@pytest.mark.parametrize("token", TENANTS)
async def test_a_tenant_does_not_resume_what_the_platform_paused(
    service: Service, token: str, kind: str
) -> None:
    """Nor pause over it, which would be the same; its own pause it ends as ever."""
    root, client = client_of(service, "root"), client_of(service, token)
    await root.post("/v1/jobs", {"type": "send", "queue": "mail"})
    await root.post(f"/v1/scopes/{kind}/pause", {"reason": "overdue"})

    for act in (("resume", None), ("pause", {"reason": "mine"})):
        refused = await client.post(f"/v1/scopes/{kind}/{act[0]}", act[1])
        assert (refused.status, refused.json["code"]) == (403, "PLATFORM_ONLY")
    if kind == "tenant":
        assert (await put(service, token, paused=None)).status == 403
        assert (await put(service, token, paused=Pause("mine", "me", platform=True))).status == 403
    state = (await client.get(f"/v1/scopes/{kind}")).json["settings"]
    assert state["paused"] == {"reason": "overdue", "author": "root", "platform": True}

    await root.post(f"/v1/scopes/{kind}/resume")
    assert (await client.post(f"/v1/scopes/{kind}/pause", {"reason": "mine"})).status == 200
    ended = await client.post(f"/v1/scopes/{kind}/resume")
    assert "paused" not in ended.json["settings"]


async def test_a_tenant_cannot_make_its_pause_the_platforms(service: Service) -> None:
    """By a value of its own: it is stored as what it is, and the tenant can end it."""
    assert (await put(service, "operator", paused=Pause("x", "ann", platform=True))).status == 200

    assert (await stored(service)).paused == Pause("x", "ann")
    assert (await put(service, "operator", paused=None)).status == 200


async def test_the_dashboard_keeps_to_it_too(service: Service) -> None:
    """Its forms act as the token does."""
    root = client_of(service, "root")
    await root.post("/v1/jobs", {"type": "send", "queue": "mail"})
    await root.post("/v1/scopes/queue/mail/pause", {"reason": "overdue"})
    app = application(service, mounts=[dashboard], owns_store=False)

    refused = await Visitor(Client(app), "operator").send("/ui/queues/acme/mail/resume")
    assert refused.status == 403
    assert "overdue" in refused.body.decode()
    assert (await Visitor(Client(app), "root").send("/ui/queues/acme/mail/resume")).status == 303


# -- who has the right -----------------------------------------------------------------------------


def test_a_key_of_one_tenant_with_the_right_to_platform_is_refused(tmp_path: Path) -> None:
    """It would be a mistake to believe that it has it."""
    entry = {"name": "x", "hash": hash_of(new_key()), "tenant": "acme", "rights": ["platform"]}
    path = tmp_path / "keys.json"
    path.write_text(json.dumps([entry]))
    with pytest.raises(ConfigError, match="over all tenants"):
        read_keys(path)
    path.write_text(json.dumps([{**entry, "tenant": "*"}]))
    [known] = read_keys(path).values()
    assert known.caller().platform


def test_a_tenants_admin_is_not_the_platform() -> None:
    """The right to admin includes it only over every tenant."""
    granted = ("admin",)
    mine = KeyEntry(name="x", hash="h", tenant="acme", rights=tuple(map(Right, granted)))
    every = KeyEntry(name="x", hash="h", tenant="*", rights=tuple(map(Right, granted)))

    assert Right.PLATFORM not in mine.caller().rights
    assert not mine.caller().platform
    assert every.caller().platform
