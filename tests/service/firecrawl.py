"""A service with the Firecrawl wire on a store whose clock the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from tests.servers.engines import Engines
from tests.service.asgi import Answer, Client

from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.firecrawl.routes import mounting
from holdfast.service.firecrawl.wire import Settings
from holdfast.service.rights import Caller, Right
from holdfast.service.service import Auth, Service
from holdfast.stores import open_store
from holdfast.testing import ManualClock

KINDS = ("memory", "foundationdb")
"""Stores that the wire is tried over: the reference, and the one it was first made for."""
CLAIM_S = 300.0
JSON_MEDIA = "application/json"


class Bench:
    """Speaks the wire as Firecrawl's client does: JSON is announced on every call."""

    def __init__(self, service: Service, clock: ManualClock, settings: Settings) -> None:
        self.service = service
        self.store = service.store
        self.clock = clock
        app = application(service, mounts=[mounting(settings)], owns_store=False)
        self.client = Client(app, {"content-type": JSON_MEDIA})

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        """What a call that must work gives."""
        answer = await self.call(method, path, body)
        assert answer.status == 200, answer
        return answer.json

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.client.call(method, path, body, **headers)

    async def push(self, id: str, *, team: str = "team", data: Any = None, **more: Any) -> None:
        crawl, timeout = more.pop("crawl", None), more.pop("timeout", None)
        job = {"id": id, "data": data, "priority": 0, "listenable": False, **more}
        body = {"teamId": team, "job": job, "timeout": timeout, "crawlId": crawl}
        assert await self.ok("POST", "/queue/push", body) == {"success": True}

    async def pop(self, team: str = "team", *blocked: str, worker: str = "w") -> Any:
        body = {"workerId": worker, "blockedCrawlIds": list(blocked)}
        return await self.ok("POST", f"/queue/pop/{team}", body)

    async def popped(self, team: str = "team", *blocked: str) -> str | None:
        found = await self.pop(team, *blocked)
        return None if found is None else str(found["job"]["id"])

    async def complete(self, key: str) -> bool:
        return bool((await self.ok("POST", "/queue/complete", {"queueKey": key}))["success"])

    async def release(self, id: str) -> None:
        assert await self.ok("POST", "/queue/release", {"jobId": id}) == {"success": True}

    async def count(self, path: str) -> int:
        return int((await self.ok("GET", path))["count"])

    async def ids(self, path: str) -> list[str]:
        found = await self.ok("GET", path)
        [ids] = found.values()
        return list(ids)

    async def cleaned(self, what: str) -> int:
        return int((await self.ok("POST", f"/cleanup/{what}", b""))["cleaned"])

    async def correction(self, what: str) -> int:
        return int((await self.ok("POST", f"/reconcile/{what}", b""))["correction"])


class Badges:
    """Tells callers apart by a header, so that a test may be anybody."""

    def __init__(self, *callers: Caller) -> None:
        self._callers = {caller.name: caller for caller in callers}

    async def caller(self, request: Request) -> Caller:
        return self._callers[request.headers["badge"]]


def badge(name: str, tenant: str | None, *rights: Right, **more: Any) -> Caller:
    return Caller(name=name, tenant=tenant, rights=frozenset(rights or Right), **more)


@asynccontextmanager
async def benched(
    auth: Auth | None = None, settings: Settings | None = None, kind: str = "memory"
) -> AsyncIterator[Bench]:
    clock = ManualClock()
    made = open_store("memory://", clock) if kind == "memory" else Engines().store("jobs", clock)
    service = Service(made, auth or NoAuth())
    await service.store.open()
    try:
        yield Bench(service, clock, settings or Settings(claim_s=CLAIM_S))
    finally:
        service.close()
        await service.store.close()
