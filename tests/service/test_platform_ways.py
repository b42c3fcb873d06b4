"""The scopes of the platform by ways that are not meant for them, and what explanations tell.

The routes of tenants, holds, forms and pages of the dashboard, the Firecrawl protocol: none of them
leads to a scope of the platform, and nothing that they answer tells of other tenants (P7).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.dashboard.visitor import Visitor
from tests.service.asgi import Client
from tests.service.over_all import (
    ACME,
    HOUR,
    PLATFORMS,
    SCOPES,
    client_of,
    each_caller,
    each_other,
    each_scope,
    limited,
    new,
    packed,
    state,
    told_nothing,
)

from holdfast.core.scope import Scope
from holdfast.scopes import ScopeHandle
from holdfast.service.service import Service
from holdfast.store import Claim, Put, Ref, Take
from holdfast.stores.remote import wire


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with limited() as found:
        yield found


# -- other ways in ---------------------------------------------------------------------------------


@each_caller
async def test_the_routes_of_tenants_lead_to_no_scope_of_the_platform(
    service: Service, token: str
) -> None:
    """By its kind, or by an empty tenant."""
    before = await state(service)
    client = client_of(service, token)
    for kind in ("platform", "type"):
        for method, act, body in (
            ("GET", "", None), ("GET", "/counts", None), ("PATCH", "", {"max_running": 5}),
            ("POST", "/pause", {"reason": "x"}), ("POST", "/resume", None),
            ("PUT", "/slots/s", {"seconds": 60}),
        ):  # fmt: skip
            path = f"/v1/scopes/{kind}/send{act}"
            told_nothing(await client.call(method, path, body, holdfast_tenant=ACME))
    for tenant in ("", " ", "\t"):
        told_nothing(await client.get("/v1/scopes/queue/mail", holdfast_tenant=tenant))
        body = {"max_running": 5}
        told_nothing(await client.patch("/v1/scopes/queue/mail", body, holdfast_tenant=tenant))
    assert await state(service) == before


@each_scope
@each_caller
async def test_nobody_holds_slots_of_the_platform(service: Service, token: str, path: str) -> None:
    """It has none."""
    before = await state(service)
    client, scope = client_of(service, token), SCOPES[path]

    for length in (HOUR, 0):
        take = Take(scope.slot("s"), "s", length)
        told_nothing(await packed(client, "hold", wire.Takes([take], None)))
    assert await state(service) == before


@each_caller
async def test_a_form_of_the_dashboard_names_no_empty_tenant(service: Service, token: str) -> None:
    """A tilde alone is an empty segment."""
    before = await state(service)
    visitor = Visitor(Client(client_of(service, token).app), token)
    for act in ("pause", "resume"):
        told_nothing(await visitor.send(f"/ui/queues/~/mail/{act}", reason="x"))
    told_nothing(await visitor.get("/ui/queues/~/mail"))
    assert await state(service) == before


@each_other
async def test_pages_of_the_dashboard_show_no_limits_of_the_platform(
    service: Service, token: str
) -> None:
    """Neither as a queue of nobody, nor at a job."""
    own = await ScopeHandle(service.store, Scope(ACME)).get()
    await service.store.settings([Put(Scope(ACME).name, None, own.version)])
    visitor = Visitor(Client(client_of(service, token).app), token)
    for path in ("/", "/ui/queues", "/ui/queues/acme/mail", "/ui/jobs/acme/mine", "/ui/workers"):
        answer = await visitor.get(path)
        assert answer.status in (200, 403), answer
        for secret in (b"SECRETARY", b"4321/s"):
            assert secret not in answer.body, path


@pytest.mark.parametrize("token", PLATFORMS)
async def test_pages_of_the_dashboard_show_the_platform_its_own_limits(
    service: Service, token: str
) -> None:
    """At each queue that they hold back, and never as a queue of nobody."""
    await use_up(service)
    visitor = Visitor(Client(client_of(service, token).app), token)
    for path in ("/ui/queues", "/ui/queues?tenant=acme", "/ui/queues/acme/mail"):
        page = await visitor.page(path)
        assert "all tenants: at most 1 running" in page, path
        assert "SECRET" in page, path
        assert page.count('data-label="Tenant"') == (path.count("tenant=") or 2) * (
            path != "/ui/queues/acme/mail"
        )
    assert "held by globex: 2" in await visitor.page("/ui/jobs/acme/mine")


async def test_a_narrow_token_of_the_platform_sees_its_own_queue_only(service: Service) -> None:
    """The store's limit and a type's are about other queues, too."""
    await use_up(service)
    client = client_of(service, "mail of all", bound=True)
    gates = (await client.get("/v1/jobs/mine/explain")).json["gates"]
    row = await Visitor(Client(client.app), "mail of all").page("/ui/queues/acme/mail")

    limits = {gate["scope"]: gate for gate in gates if gate["kind"] == "limit"}
    assert limits["platform/queue/mail"]["holders"] == ["globex: 2"]
    for scope in ("platform/", "platform/type/send"):
        assert limits[scope]["words"] == "the platform's limit"
    assert "all tenants: at most 1 running, 1/d" in row
    assert "whole store" not in row


@pytest.mark.parametrize("team", ["", "~", "0:", "/", "%"])
@each_other
async def test_a_team_of_the_firecrawl_protocol_is_never_the_platform(
    service: Service, token: str, team: str
) -> None:
    """Its markers are slots of the team."""
    before = await service.store.settings(under="scope/")
    client = client_of(service, token)
    job = {"id": "j", "data": 1, "priority": 0, "listenable": False}
    marker = {"teamId": team, "jobId": "j", "timeout": 1000}
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/queue/push", {"teamId": team, "job": job}),
        ("POST", "/active/push", marker),
        ("DELETE", "/active/remove", marker),
    ]
    for method, path, body in calls:
        answer = await client.call(method, path, body)
        assert answer.status < 500, answer
        if not team:
            told_nothing(answer)
    assert await service.store.settings(under="scope/") == before
    for hold in await service.store.hold(under="slot/"):
        assert "/0:/" not in hold.name


# -- explain ---------------------------------------------------------------------------------------

HIDDEN = {"the platform's limit", "the platform's pause", "the platform's rate"}


@pytest.mark.parametrize("token", ["operator of all", "reader of all", "admin", "operator"])
async def test_an_explanation_names_the_platforms_gates_without_numbers(
    service: Service, token: str
) -> None:
    """P7: its kind and its scope, but neither holders nor reason, author or instant."""
    await use_up(service)
    client = client_of(service, token, bound=True)
    native = (await client.get("/v1/jobs/mine/explain")).json
    raw = await packed(client, "explain", Ref(ACME, "mine"))
    page = await Visitor(Client(client.app), token).page("/ui/jobs/acme/mine")

    gates = [gate for gate in native["gates"] if gate.get("scope", "").startswith("platform")]
    assert {gate["words"] for gate in gates} == HIDDEN
    scopes = {"platform/", "platform/queue/mail", "platform/type/send"}
    assert {gate["scope"] for gate in gates} == scopes
    assert len(gates) == 9
    for gate in gates:
        assert gate.keys() <= {"kind", "words", "scope", "until", "holders"}
        assert (gate.get("until"), list(gate.get("holders", ()))) == (None, [])
    packed_gates = [one for one in msgspec.msgpack.decode(raw.body)["gates"] if one["scope"]]
    assert [one["words"] for one in packed_gates if not one["scope"]["tenant"]] == [
        gate["words"] for gate in gates
    ]
    assert native.get("not_before") is None
    for text in (str(native), raw.body.decode("latin-1"), page):
        for secret in ("SECRET", "globex", "runs 2 job"):
            assert secret not in text


async def use_up(service: Service) -> None:
    """Each scope of the platform has its limit, its rate and its pause; acme itself has none."""
    for scope in (Scope(ACME), *SCOPES.values()):
        found = await ScopeHandle(service.store, scope).get()
        await service.store.settings([Put(scope.name, None, found.version)])
    for scope in SCOPES.values():
        await ScopeHandle(service.store, scope).set(rate="1/d")
    await service.store.enqueue([new("globex", "another")])
    claim = Claim(worker="w", nonce="m", limit=1, lease_us=HOUR, tenants=("globex",))
    assert len(await service.store.claim(claim)) == 1
    for scope in SCOPES.values():
        await ScopeHandle(service.store, scope).set(max_running=1)
        await ScopeHandle(service.store, scope).pause("SECRET", "SECRETARY")


@pytest.mark.parametrize("token", PLATFORMS)
async def test_the_platform_is_told_the_whole_gates(service: Service, token: str) -> None:
    """With the holders by tenant."""
    await use_up(service)
    client = client_of(service, token, bound=True)
    native = (await client.get("/v1/jobs/mine/explain")).json
    raw = await packed(client, "explain", Ref(ACME, "mine"))
    page = await Visitor(Client(client.app), token).page("/ui/jobs/acme/mine")

    limits = [gate for gate in native["gates"] if gate["kind"] == "limit"]
    assert [gate["holders"] for gate in limits] == [["globex: 2"]] * 3
    assert limits[1]["words"] == "queue mail of the platform runs 2 jobs, its limit is 1"
    assert native["not_before"] is not None
    for text in (str(native), raw.body.decode("latin-1"), page):
        assert "is paused by SECRETARY: SECRET" in text
