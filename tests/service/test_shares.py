"""Shared places: what one caller takes of them leaves the rest for others (P19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.service.asgi import Client
from tests.service.firecrawl import Badges, badge

from holdfast.service import pages
from holdfast.service.app import application
from holdfast.service.firecrawl.routes import mount
from holdfast.service.rights import Right
from holdfast.service.service import Service
from holdfast.service.settings import Limits
from holdfast.store import Page
from holdfast.stores import open_store
from holdfast.testing import Faults

CALLERS = (
    badge("acme-1", "acme", Right.WORK, Right.READ, Right.PRODUCE),
    badge("acme-2", "acme", Right.WORK, Right.READ),
    badge("globex", "globex", Right.WORK, Right.READ, Right.PRODUCE),
    badge("any", None, Right.WORK, Right.READ),
    badge("other", None, Right.WORK, Right.READ),
    badge("platform", None),
)


class Desk:
    def __init__(self, service: Service, faults: Faults) -> None:
        self.service = service
        self.faults = faults
        self.app = application(service, mounts=[pages.dashboard, mount], owns_store=False)

    def of(self, name: str) -> Client:
        caller = next(one for one in CALLERS if one.name == name)
        named = {} if caller.tenant else {"holdfast-tenant": "acme"}
        return Client(self.app, {"badge": name, **named})


@asynccontextmanager
async def desk(**limits: Any) -> AsyncIterator[Desk]:
    faults = Faults(open_store("memory://"))
    service = Service(faults.store, Badges(*CALLERS), Limits(**limits))
    await service.store.open()
    try:
        yield Desk(service, faults)
    finally:
        service.close()
        await service.store.close()


async def until(true: Callable[[], bool]) -> None:
    """Turns of the loop, not seconds."""
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)


PLACES = {
    "waiting": ("POST", "/v1/claim", {"wait": 30}),
    "streams": ("GET", "/v1/events/stream", None),
}


@pytest.mark.parametrize("kind", PLACES)
async def test_a_tenant_gets_a_share_of_the_places_and_others_the_rest(kind: str) -> None:
    """All tokens of the tenant together; the refusal names the limit."""
    method, path, body = PLACES[kind]
    async with desk(**{kind: 8, "share": 0.25}) as at, AsyncExitStack() as stack:
        taken = getattr(at.service, kind)
        for number, name in enumerate(("acme-1", "acme-2"), 1):
            await stack.enter_async_context(at.of(name).open(method, path, body))
            await until(lambda: taken.taken == number)  # noqa: B023

        refused = [await at.of(name).call(method, path, body) for name in ("acme-1", "acme-2")]
        for number, name in enumerate(("globex", "globex", "any", "any", "other", "platform"), 3):
            await stack.enter_async_context(at.of(name).open(method, path, body))
            await until(lambda: taken.taken == number)  # noqa: B023
        full = await at.of("platform").call(method, path, body)

    assert [one.status for one in refused] == [429, 429]
    assert [kind in one.json["detail"] for one in refused] == [True, True]
    assert "2 of 8" in refused[0].json["detail"]
    assert (full.status, kind in full.json["detail"]) == (503, True)
    assert taken.taken == 0


async def test_a_token_that_is_for_no_tenant_has_a_share_of_its_own() -> None:
    """It cannot get more by naming other tenants."""
    async with desk(waiting=8, share=0.25) as at, AsyncExitStack() as stack:
        for number, tenant in enumerate(("a", "b"), 1):
            client = at.of("any").with_headers(holdfast_tenant=tenant)
            await stack.enter_async_context(client.open("POST", "/v1/claim", {"wait": 30}))
            await until(lambda: at.service.waiters == number)  # noqa: B023

        client = at.of("any").with_headers(holdfast_tenant="c")
        assert (await client.post("/v1/claim", {"wait": 30})).status == 429


async def test_the_places_of_requests_under_way_are_shared_too() -> None:
    """A slow body or a slow answer takes one as well; it is given back at its end."""
    async with desk(under_way=8, share=0.25) as at:
        async with AsyncExitStack() as stack:
            for number in (1, 2):
                talk = at.of("acme-1").open("POST", "/v1/claim", {"wait": 30})
                await stack.enter_async_context(talk)
                await until(lambda: at.service.waiters == number)  # noqa: B023
            refused = await at.of("acme-2").get("/v1/queues")
            served = await at.of("globex").get("/v1/queues")
        again = await at.of("acme-2").get("/v1/queues")

    assert (refused.status, "under_way" in refused.json["detail"]) == (429, True)
    assert (served.status, again.status) == (200, 200)
    assert at.service.under_way.taken == 0


@pytest.mark.parametrize(
    "path", ["/v1/jobs?tag=x", "/v1/dead", "/ui/jobs", "/queue/jobs/team/acme"]
)
async def test_a_tenant_s_slow_searches_do_not_stand_before_others(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a few under way; its next ones wait for these, and nobody else does."""
    async with desk(reads=2) as at:
        gate, searching, pass_on = asyncio.Event(), 0, at.faults.pass_on

        async def slowly(verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal searching
            if verb == "find" and args[0].select.tenant == "acme":
                searching += 1
                await gate.wait()
                return Page([], None)
            return await pass_on(verb, args, kwargs)

        monkeypatch.setattr(at.faults, "pass_on", slowly)
        slow = [asyncio.ensure_future(at.of("acme-1").get(path)) for _ in range(6)]
        await until(lambda: searching == 2)
        other = await at.of("globex").get("/v1/jobs")
        for _ in range(100):
            await asyncio.sleep(0)
        assert searching == 2
        gate.set()
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*slow)

    assert other.status == 200
    assert {one.status for one in answers} == {200}
    assert searching == 6


async def test_live_pages_of_a_tenant_leave_places_for_others() -> None:
    """The dashboard's streams are shared as well."""
    async with desk(streams=8, share=0.25) as at, AsyncExitStack() as stack:
        for _ in range(2):
            talk = await stack.enter_async_context(at.of("acme-1").open("GET", "/ui/live"))
            assert (await talk.start())[0] == 200
        refused = await at.of("acme-2").get("/ui/live")
        talk = await stack.enter_async_context(at.of("globex").open("GET", "/ui/live"))
        served, _ = await talk.start()

    assert (refused.status, b"streams" in refused.body) == (429, True)
    assert served == 200
    assert at.service.streams.taken == 0
