"""Services and apps over one store, with and without its keys."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from tests.service.asgi import Client

from holdfast import App, Context
from holdfast.core.clock import Clock
from holdfast.core.errors import KeyUnavailable
from holdfast.dispatch import Dispatcher
from holdfast.encryption import Keys, encrypted
from holdfast.service.app import application
from holdfast.service.pages import dashboard
from holdfast.service.rights import Caller, Right, Unauthenticated, rights
from holdfast.service.service import Service
from holdfast.store import Store
from holdfast.stores.memory.store import MemoryStore

KEYS = {"m1": b"k" * 32}
ACME = "acme"
SECRET = "a-word-that-is-secret"

CALLERS = {
    "root": Caller(name="root", tenant=None, rights=rights([Right.ADMIN])),
    "anna": Caller(name="anna", tenant=ACME, rights=rights([Right.ADMIN], ACME)),
}


class Tokens:
    """Each token is the name of its caller."""

    async def caller(self, request: Request) -> Caller:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in CALLERS:
            raise Unauthenticated(why="there is no such token")
        return CALLERS[token]


class Door:
    """A provider of keys that can be closed."""

    def __init__(self) -> None:
        self.open = True
        self.refused = asyncio.Event()

    async def __call__(self, tenant: str, key_id: str | None) -> tuple[str, bytes]:
        if not self.open:
            self.refused.set()
            raise KeyUnavailable(store="keys", why="the door is closed")
        return "k1", tenant.encode().ljust(32, b".")


class Lasting(MemoryStore):
    """A store that several apps open and close."""

    async def close(self) -> None: ...


class Vault:
    """A plain store in memory, and what stands in front of it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.plain: Store = Lasting(clock)
        self.services: list[Service] = []

    def store(self, keys: Any = None) -> Dispatcher:
        return encrypted(Dispatcher(self.plain), keys)

    def service(self, keys: Any = None, token: str = "root") -> Client:
        """A service with the dashboard, called with this token for the tenant ACME."""
        found = Service(self.store(keys), Tokens())
        self.services.append(found)
        headers = {"authorization": f"Bearer {token}", "holdfast-tenant": ACME}
        app = application(found, mounts=[dashboard], owns_store=False)
        return Client(app, headers)

    def app(self, keys: Any = KEYS, **options: Any) -> tuple[App, Any]:
        """An app, and its job that does what its argument says."""
        app = App(self.store(keys), tenant=ACME, **options)

        @app.job(max_attempts=1)
        async def act(ctx: Context, text: str) -> str:
            await ctx.step("seen", str, text)
            ctx.log(text)
            if text.startswith("fail"):
                raise ValueError(text)
            return text

        return app, act

    async def close(self) -> None:
        for service in self.services:
            service.close()


REQUIRED = Keys(KEYS, require=True)
