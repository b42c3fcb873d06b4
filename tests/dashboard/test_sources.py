"""The page of sources: what it shows to whom, and its buttons."""

from __future__ import annotations

from typing import Any

from tests.dashboard.visitor import Visit

from holdfast import App, Context
from holdfast.core.source import Item, Page
from holdfast.service.service import Service
from holdfast.sources.handle import SourceHandle
from holdfast.sources.stored import Stored
from holdfast.testing.contract.shadowing import PLAN

MARKUP = "<img src=x>"
ACT = "/ui/sources/acme/parts"


async def furnish(service: Service) -> SourceHandle:
    """A source of acme with two objects, and one of globex."""
    for tenant, name in (("acme", "parts"), ("globex", "theirs")):
        await Stored(service.store, tenant, name).create(PLAN)
    handle = SourceHandle(service.store, "acme", "parts")
    await handle.push([Item("1", 1, MARKUP), Item("2", 1, None)])
    return handle


async def test_the_page_shows_the_sources_of_a_tenant(visit: Visit, service: Service) -> None:
    """With what they hold and have told; names of others are not shown."""
    empty = await visit("reader").page("/ui/sources?tenant=acme")
    assert "There are no sources" in empty
    await furnish(service)

    text = await visit("reader").page("/ui/sources?tenant=acme")

    assert "parts" in text
    assert "2 created, 0 updated, 0 deleted" in text
    assert "theirs" not in text
    assert "Poll now" not in text


async def test_the_platform_sees_which_tenants_have_sources(visit: Visit, service: Service) -> None:
    """Those that are polled, by the schedules of their polls."""
    app = App(service.store, tenant="acme")

    @app.source("orders", every=300)
    async def orders(ctx: Context, cursor: Any) -> Page:
        return Page([])

    @orders.changed
    async def told(ctx: Context, change: Any) -> None: ...

    await app.open()
    try:
        await app.register_schedules()
        await app.register_sources()
        assert "orders" in await visit("reader").page("/ui/sources")
        assert "orders" in await visit("acme").page("/ui/sources")
    finally:
        await app.close()


async def test_an_operator_pauses_resumes_polls_and_lists(visit: Visit, service: Service) -> None:
    """With a reason, which the page shows as text."""
    handle = await furnish(service)
    operator = visit("operator")

    assert (await operator.send(f"{ACT}/pause")).status == 422
    assert (await operator.send(f"{ACT}/pause", reason=MARKUP)).status == 303
    paused = await operator.page("/ui/sources?tenant=acme&did=source_paused")
    assert "&lt;img src=x&gt;, by " in paused
    assert MARKUP not in paused
    assert "The source is paused" in paused
    assert (await operator.send(f"{ACT}/resume")).status == 303
    assert (await handle.status()).state != "paused"
    for act in ("poll", "list"):
        made = await operator.send(f"{ACT}/{act}")
        assert made.status == 303
        assert PLAN.poll.type in await operator.page(made.headers["location"])
    assert (await operator.send("/ui/sources/acme/none/poll")).status == 404


async def test_nobody_sees_or_stops_another_tenants_sources(visit: Visit, service: Service) -> None:
    """Nor does a token for some queues or types, because changes may be of any."""
    await furnish(service)
    anna = visit("acme")

    assert "theirs" not in await anna.page("/ui/sources")
    assert (await anna.get("/ui/sources?tenant=globex")).status == 403
    assert (await anna.send("/ui/sources/globex/theirs/pause", reason="x")).status == 403
    for name in ("mailer", "postman", "sender"):
        assert (await visit(name).get("/ui/sources?tenant=acme")).status == 403
        assert (await visit(name).send(f"{ACT}/pause", reason="x")).status == 403
        assert "/ui/sources" not in await visit(name).page("/ui/jobs")
    assert (await visit("producer").send(f"{ACT}/poll")).status == 403
