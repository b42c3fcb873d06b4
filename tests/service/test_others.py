"""P7: who is for one tenant learns nothing of others, also not by counts of what is shared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.dashboard.visitor import Visitor
from tests.service.asgi import Client

from holdfast.core.clock import SECOND
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.scope import Explanation, Scope, ScopeKind, ScopeSettings, encode
from holdfast.service.app import application
from holdfast.service.pages import dashboard
from holdfast.service.rights import Caller, Right, Unauthenticated, rights
from holdfast.service.service import Service
from holdfast.store import Claim, Put, Ref, Take
from holdfast.stores import open_store
from holdfast.stores.remote import wire
from holdfast.worker_registry import PREFIX, Present

HOUR = 3600 * SECOND
CALLERS = {
    "acme": Caller(name="a", tenant="acme", rights=rights([Right.ADMIN], "acme")),
    "mailer": Caller(name="m", tenant="acme", rights=rights([Right.READ]), queues=("mail",)),
    "root": Caller(name="r", tenant=None, rights=rights([Right.ADMIN])),
}


class Tokens:
    async def caller(self, request: Any) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in CALLERS:
            raise Unauthenticated(why="there is no such token")
        return CALLERS[token]


def job(tenant: str, id: str, **more: Any) -> NewJob:
    envelope = Envelope("send", "json", 1, b"{}")
    usual = {"queue": "mail", "rules": Rules(), "envelope": envelope}
    return NewJob(tenant=tenant, id=id, **{**usual, **more})


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """A worker for all is busy with globex; another serves initech alone. Acme has one job."""
    found = Service(open_store("memory://"), Tokens())
    store = found.store
    await store.open()
    await store.enqueue([job("globex", f"g{n}") for n in range(9)])
    await store.claim(Claim(worker="all", nonce="n", limit=7, lease_us=HOUR))
    await store.enqueue([job("acme", "mine")])
    await present(found, "all", None, running=7)
    await present(found, "theirs", ("initech",), running=3)
    yield found
    found.close()
    await store.close()


async def present(service: Service, name: str, tenants: Any, running: int) -> None:
    note = Present(
        pid=424242424, tenants=tenants, queues=None, types=("send",), concurrency=10,
        running=running, held=running, why="memory at 77 %",
    )  # fmt: skip
    text = msgspec.json.encode(note).decode()
    await service.store.hold([Take(f"{PREFIX}{name}", name, HOUR, text)])


def client_of(service: Service, token: str) -> Client:
    app = application(service, mounts=[dashboard], owns_store=False)
    return Client(app, {"authorization": f"Bearer {token}", "holdfast-tenant": "acme"})


async def test_a_tenants_load_counts_its_own_running_jobs(service: Service) -> None:
    """Not the busy places of workers that it shares with others."""
    client = client_of(service, "acme")
    before = (await client.get("/v1/load")).json
    await service.store.claim(
        Claim(worker="all", nonce="m", limit=1, lease_us=HOUR, tenants=("acme",))
    )
    after = (await client.get("/v1/load")).json

    assert (before["running"], before["busy"], before["workers"]) == (0, 0.0, 1)
    assert (after["running"], after["busy"]) == (1, 0.1)
    every = (await client_of(service, "root").get("/v1/load")).json
    assert every["running"] == 7


async def test_an_explanation_counts_no_other_tenants_nor_their_workers(service: Service) -> None:
    """By the native route, and by the store's verb."""
    root, acme = client_of(service, "root"), client_of(service, "acme")
    sent = wire.encode(Ref("acme", "mine"))
    for client, counted in ((root, 2), (acme, None)):
        told = (await client.get("/v1/jobs/mine/explain")).json
        packed = await client.post("/v1/store/explain", sent, content_type=wire.MEDIA)
        raw = msgspec.msgpack.decode(packed.body, type=Explanation)
        assert told.get("tenants") == counted
        assert raw.tenants == counted

    await service.store.hold([Take(f"{PREFIX}all", "all", 0)])
    words = (await acme.get("/v1/jobs/mine/explain")).json["gates"]
    assert [gate["words"] for gate in words if gate["kind"] == "no_worker"] == [
        "no worker is present"
    ]


async def test_a_narrow_token_is_told_no_job_of_another_queue(service: Service) -> None:
    """An ordered group goes across queues; what stands before the job is not named."""
    store = service.store
    group = Scope("acme", ScopeKind.GROUP, "g")
    await store.settings([Put(group.name, encode(ScopeSettings(ordered=True)), 0)])
    await store.enqueue([job("acme", "buried", queue="bank", group="g")])
    await store.enqueue([job("acme", "seen", group="g")])

    narrow, whole = client_of(service, "mailer"), client_of(service, "acme")
    sent = wire.encode(Ref("acme", "seen"))
    for path, body in (("/v1/jobs/seen/explain", None), ("/v1/store/explain", sent)):
        method, media = ("GET", {}) if body is None else ("POST", {"content_type": wire.MEDIA})
        told = await narrow.call(method, path, body, **media)
        assert told.status == 200
        assert b"order" in told.body
        assert b"buried" not in told.body
        assert b"buried" in (await whole.call(method, path, body, **media)).body
    app = application(service, mounts=[dashboard], owns_store=False)
    page = await Visitor(Client(app), "mailer").page("/ui/jobs/acme/seen")
    assert "another job comes first" in page
    assert "buried" not in page


async def test_the_pages_of_a_tenant_show_nothing_of_others(service: Service) -> None:
    """The list of workers and the overview: neither how busy shared workers are, nor why."""
    app = application(service, mounts=[dashboard], owns_store=False)
    acme, root = Visitor(Client(app), "acme"), Visitor(Client(app), "root")

    page, front = await acme.page("/ui/workers"), await acme.page("/")
    for shown in (page, front):
        for word in (
            "7 of 10",
            "7 of 20",
            "3 of 10",
            "10 of 20",
            "424242424",
            "memory at 77",
            "theirs",
        ):
            assert word not in shown
    assert "all" in page
    assert "7 of 10" in await root.page("/ui/workers")
    assert "10 of 20 places busy" in await root.page("/")


async def test_a_job_page_of_a_tenant_counts_no_other_tenants(service: Service) -> None:
    """The same explanation, on a page."""
    await service.store.hold([Take(f"{PREFIX}all", "all", 0)])
    app = application(service, mounts=[dashboard], owns_store=False)

    shown = await Visitor(Client(app), "acme").page("/ui/jobs/acme/mine")

    assert "no worker is present" in shown
    assert "1 workers" not in shown
