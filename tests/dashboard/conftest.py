"""A service with the dashboard over a memory store, and tokens that are looked up in a table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from starlette.requests import Request
from tests.dashboard.visitor import Visit, Visitor, seeded
from tests.service.asgi import Client

from holdfast.dispatch import inner_of
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.pages import dashboard
from holdfast.service.rights import Caller, Right, Unauthenticated, rights
from holdfast.service.service import Service
from holdfast.stores import open_store

CALLERS = {
    "reader": Caller(name="rita", tenant=None, rights=rights([Right.READ])),
    "operator": Caller(name="olga", tenant=None, rights=rights([Right.OPERATE])),
    "acme": Caller(name="anna", tenant="acme", rights=rights([Right.OPERATE])),
    "producer": Caller(name="paul", tenant="acme", rights=rights([Right.READ, Right.PRODUCE])),
    "mailer": Caller(name="mia", tenant="acme", rights=rights([Right.OPERATE]), queues=("mail",)),
    "worker": Caller(name="walt", tenant="acme", rights=rights([Right.WORK])),
    "machine": Caller(name="m", tenant=None, rights=frozenset(Right)),
    "postman": Caller(name="pat", tenant=None, rights=frozenset(Right), queues=("mail",)),
    "sender": Caller(name="sue", tenant=None, rights=frozenset(Right), types=("send",)),
}


class Tokens:
    """Each token is the name of its caller."""

    async def caller(self, request: Request) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in CALLERS:
            raise Unauthenticated(why="there is no such token")
        return CALLERS[token]


async def _service(auth: Tokens | NoAuth) -> AsyncIterator[Service]:
    found = Service(open_store("memory://"), auth)
    await found.store.open()
    yield found
    found.close()
    await found.store.close()


@pytest.fixture
async def open_service() -> AsyncIterator[Service]:
    """Where everybody may everything."""
    async for found in _service(NoAuth()):
        yield found


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """Where a token is asked for."""
    async for found in _service(Tokens()):
        yield found


Lacking = Callable[..., None]
"""`lacking("tiers")` makes the service's store one without that capability."""


@pytest.fixture
def lacking(service: Service, monkeypatch: pytest.MonkeyPatch) -> Lacking:
    def lack(*names: str) -> None:
        inner = inner_of(service.store)
        less = msgspec.structs.replace(inner.capabilities, **dict.fromkeys(names, False))
        monkeypatch.setattr(inner, "capabilities", less)

    return lack


@pytest.fixture
def api(service: Service) -> Client:
    """The native API, for the tenant acme."""
    app = application(service, mounts=[dashboard], owns_store=False)
    return Client(app, {"holdfast-tenant": "acme", "authorization": "Bearer machine"})


@pytest.fixture
async def jobs(api: Client) -> dict[str, str]:
    """One job in each of some states, by state."""
    return await seeded(api)


@pytest.fixture
def visit(api: Client) -> Visit:
    """Browsers by their token."""
    return lambda token: Visitor(Client(api.app), token)
