"""The pages over every kind of store: they know only the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dashboard.visitor import Visitor, seeded, tidy
from tests.servers.kinds import Missing, Servers
from tests.service.asgi import Client

from holdfast import operate
from holdfast.dashboard import feed
from holdfast.dashboard.feed import Feed, past
from holdfast.dashboard.words import link
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.pages import dashboard
from holdfast.service.service import Service
from holdfast.store_clock import StoreClock
from holdfast.stores import open_store

KINDS = ["memory", "sqlite", "postgres15", "redis"]


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """A store of each kind, empty."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    try:
        return servers.get(request.param).lend("dashboard")
    except Missing as missing:
        missing.end_test()


async def test_the_pages_show_what_the_store_keeps(store_url: str) -> None:
    """The first look knows what happened before it; acts come to pass; the log is stepped back."""
    service = Service(open_store(store_url), NoAuth())
    await service.store.migrate()
    await service.store.open()
    try:
        app = application(service, mounts=[dashboard], owns_store=False)
        jobs = await seeded(Client(app, {"holdfast-tenant": "acme"}))
        visitor = Visitor(Client(app), None)

        overview = tidy(await visitor.page("/"))
        assert "failed 1" in overview
        assert "1 failed for good" in overview
        for path in ("/ui/queues", "/ui/jobs?queue=mail", "/ui/dead", "/ui/workers"):
            assert "</main>" in await visitor.page(path)
        for id in list(jobs.values())[:-1]:
            assert "Timeline" in await visitor.page(link("jobs", "acme", id))
        path = link("jobs", "acme", jobs["failed"])
        new = (await visitor.send(f"{path}/replay")).headers["location"]
        assert jobs["failed"] in await visitor.page(new)
        snapshot = await Feed(service.store, StoreClock(service.store), (None, None)).look()
        assert snapshot.samples.total("failed", snapshot.now) == 1
        assert snapshot.samples.total("done", snapshot.now) == 1
    finally:
        service.close()
        await service.store.close()


async def test_the_limits_that_the_store_keeps_are_shown(store_url: str) -> None:
    """Those of all tenants, and those that tiers give; where it keeps none, the pages say so."""
    service = Service(open_store(store_url), NoAuth())
    await service.store.migrate()
    await service.store.open()
    try:
        app = application(service, mounts=[dashboard], owns_store=False)
        await seeded(Client(app, {"holdfast-tenant": "acme"}))
        visitor, kept = Visitor(Client(app), None), service.store.capabilities
        acme, platform = operate.scope(service.store, "acme"), operate.platform(service.store)
        await acme.set(max_running=50, max_queued=900)
        if kept.platform:
            path = "/ui/platform/limit?kind=queue&name=mail"
            await visitor.page("/ui/platform")  # Its cookie is that of the form.
            assert (await visitor.send(path, version="0", max_running="7")).status == 303
        if kept.tiers:
            await platform.tier("pro").set(weight=3, queue={"rate": "5/s"})
            await acme.set(tier="pro")

        page = tidy(await visitor.page("/ui/platform"))
        row = tidy(await visitor.page("/ui/queues/acme/mail"))

        assert ("queue mail 1 1 of 7 7 none" in page) is kept.platform
        assert ("all tenants: at most 7 running" in row) is kept.platform
        assert ("pro 1 weight 3 5/s" in page) is kept.tiers
        assert ("5/s (tier pro) tenant: at most 50 running (own) , weight 3 (tier pro)" in row) is (
            kept.tiers
        )
        assert "at most 900 waiting" in row
    finally:
        service.close()
        await service.store.close()


async def test_the_log_is_stepped_back_in_windows(
    service: Service, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, each event once, and no more than was asked for."""
    await api.post("/v1/jobs/batch", {"jobs": [{"type": "mail"}] * 500})
    end = (await service.store.events(None, -1, 0)).cursor
    monkeypatch.setattr(feed, "PAGE_MAX", 50)

    whole = await past(service.store, None, end, 0)
    monkeypatch.setattr(feed, "BACKFILL", 100)
    part = await past(service.store, None, end, 0)

    assert [event.cursor for event in whole] == list(range(1, 501))
    assert part == whole[-100:]


async def test_stepping_back_ends_at_an_instant(
    service: Service, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is older than the charts is not read."""
    await api.post("/v1/jobs/batch", {"jobs": [{"type": "mail"}] * 500})
    end = (await service.store.events(None, -1, 0)).cursor
    [last] = (await service.store.events(None, end - 1, 1)).events
    monkeypatch.setattr(feed, "BACKFILL", 400)

    found = await past(service.store, None, end, last.at + 1)

    assert len(found) == 400
