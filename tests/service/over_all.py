"""A service whose platform has limits, and tokens of every kind, for tests of who may do what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.service.asgi import Answer, Client

from holdfast.core.clock import SECOND
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.rate import rate
from holdfast.core.scope import PLATFORM, Pause, Scope, ScopeKind, ScopeSettings, encode
from holdfast.service.app import application
from holdfast.service.firecrawl.routes import mount as firecrawl
from holdfast.service.pages import dashboard
from holdfast.service.rights import Caller, Right, Unauthenticated, rights
from holdfast.service.service import Service
from holdfast.store import Claim, Put
from holdfast.stores import open_store
from holdfast.stores.remote import wire

ACME = "acme"
HOUR = 3600 * SECOND


def caller(name: str, tenant: str | None, *granted: Right, **more: Any) -> Caller:
    return Caller(name=name, tenant=tenant, rights=rights(granted, tenant), **more)


CALLERS = {
    "root": caller("root", None, Right.ADMIN),
    "platform": caller("platform", None, Right.PLATFORM),
    "operator of all": caller("operator of all", None, Right.OPERATE, Right.WORK, Right.PRODUCE),
    "reader of all": caller("reader of all", None, Right.READ),
    "admin": caller("admin", ACME, Right.ADMIN),
    "operator": caller("operator", ACME, Right.OPERATE),
    "worker": caller("worker", ACME, Right.WORK),
    "producer": caller("producer", ACME, Right.PRODUCE),
    "narrow": caller("narrow", ACME, Right.ADMIN, queues=("mail",)),
    "forged": Caller(name="forged", tenant=ACME, rights=frozenset(Right)),
    "mail of all": caller("mail of all", None, Right.ADMIN, queues=("mail",)),
    "send of all": caller("send of all", None, Right.ADMIN, types=("send",)),
}
NARROW = ("mail of all", "send of all")
PLATFORMS = ("root", "platform")
OTHERS = tuple(name for name in CALLERS if name not in (*PLATFORMS, *NARROW))
OF_ALL = ("operator of all", "reader of all")

SCOPES = {
    "": PLATFORM,
    "/queues/mail": Scope("", ScopeKind.QUEUE, "mail"),
    "/types/send": Scope("", ScopeKind.TYPE, "send"),
}
"""By the end of their route."""
SET = ScopeSettings(max_running=1, rate=rate("4321/s", 1), paused=Pause("SECRET", "SECRETARY"))

each_scope = pytest.mark.parametrize("path", SCOPES, ids=lambda path: path or "store")
each_other = pytest.mark.parametrize("token", OTHERS)
each_caller = pytest.mark.parametrize("token", [*OTHERS, *PLATFORMS])


class Tokens:
    """Each token is the name of its caller."""

    async def caller(self, request: Any) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in CALLERS:
            raise Unauthenticated(why="there is no such token")
        return CALLERS[token]


@asynccontextmanager
async def limited() -> AsyncIterator[Service]:
    """A service on which every scope of the platform is limited and paused; globex runs a job, acme
    waits.
    """
    found = Service(open_store("memory://"), Tokens())
    store = found.store
    await store.open()
    await store.settings([Put("type/send", b'{"queue": "mail"}', 0)])
    await store.enqueue([new("globex", "SECRET-job")])
    await store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=HOUR))
    await store.enqueue([new(ACME, "mine")])
    for scope in (*SCOPES.values(), Scope(ACME)):
        await store.settings([Put(scope.name, encode(SET), 0)])
    try:
        yield found
    finally:
        found.close()
        await store.close()


def new(tenant: str, id: str) -> NewJob:
    envelope = Envelope("send", "json", 1, b"{}")
    return NewJob(tenant=tenant, id=id, queue="mail", rules=Rules(), envelope=envelope)


def client_of(service: Service, token: str, *, bound: bool = False) -> Client:
    app = application(service, mounts=[firecrawl, dashboard], owns_store=False)
    headers = {"authorization": f"Bearer {token}"}
    return Client(app, headers | ({"holdfast-tenant": ACME} if bound else {}))


async def packed(client: Client, verb: str, value: Any) -> Answer:
    return await client.post(f"/v1/store/{verb}", wire.encode(value), content_type=wire.MEDIA)


async def state(service: Service) -> Any:
    """All that the calls of this file could change."""
    store = service.store
    return await store.settings(under="scope/"), await store.hold(under="slot/")


def told_nothing(answer: Answer) -> None:
    assert 400 <= answer.status < 500, answer
    for secret in (b"SECRET", b"globex", b'"count":4321'):
        assert secret not in answer.body, answer
