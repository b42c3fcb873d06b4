"""One look a second for everybody: told once, to many, and only while somebody looks."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest
from tests.dashboard.visitor import Visit
from tests.service.asgi import Client, Talk

from holdfast.core.clock import SECOND
from holdfast.core.job import Event, EventKind
from holdfast.dashboard import feed, html, live
from holdfast.dashboard.feed import Feed
from holdfast.dashboard.host import Host, TooManyReaders, Viewer
from holdfast.dashboard.live import Hub
from holdfast.dashboard.samples import SPAN_S, Level, Samples
from holdfast.dashboard.words import link
from holdfast.service.service import Service
from holdfast.store_clock import StoreClock

KEY = (None, None)


async def _told(talk: Talk, event: str) -> dict[str, Any]:
    """The data of the next message of a kind."""
    rest = b""
    async for part in talk.parts():
        rest += part
        found = re.search(rb"event: %s\nid: \d+\ndata: (.*)\n\n" % event.encode(), rest)
        if found:
            return dict(msgspec.json.decode(found[1]))
    raise AssertionError("the stream ended")


async def _who(*_: object) -> Viewer:
    raise AssertionError("nobody asks")


def _hub(service: Service) -> Hub:
    host = Host(
        store=service.store, clock=service.store_clock, codecs=service.codecs, who=_who,
        status_of=lambda _: 500, closing=lambda: service.closing,
    )  # fmt: skip
    return Hub(host, html.overview)


async def test_a_change_is_told_by_the_page_of_its_job(
    visit: Visit, api: Client, jobs: dict[str, str]
) -> None:
    """With the next tick."""
    cookie = visit("reader").cookie()
    async with Client(api.app).open("GET", "/ui/live", **cookie) as talk:
        status, headers = await talk.start()
        assert (status, headers["content-type"].split(";")[0]) == (200, "text/event-stream")
        await _told(talk, "tick")
        await api.post(f"/v1/jobs/{jobs['enqueued']}/cancel")

        told = await _told(talk, "tick")

    assert link("jobs", "acme", jobs["enqueued"]) in told["jobs"]
    assert told["any"]


async def test_the_overview_comes_as_html(visit: Visit, api: Client, jobs: dict[str, str]) -> None:
    """The same that its page shows."""
    cookie = visit("reader").cookie()
    async with Client(api.app).open("GET", "/ui/live?topic=overview", **cookie) as talk:
        await talk.start()
        told = await _told(talk, "overview")

    assert "Throughput" in told["html"]
    assert "Busiest queues" in told["html"]


async def test_a_tenant_is_told_nothing_of_others(
    visit: Visit, api: Client, jobs: dict[str, str]
) -> None:
    """Its ticks are its own."""
    async with Client(api.app).open("GET", "/ui/live", **visit("acme").cookie()) as talk:
        await talk.start()
        await _told(talk, "tick")
        await api.post("/v1/jobs", {"type": "mail"}, holdfast_tenant="globex")

        told = await _told(talk, "tick")

    assert (told["jobs"], told["any"]) == ([], False)


async def test_a_token_for_some_queues_is_told_nothing_of_others(
    visit: Visit, api: Client, jobs: dict[str, str]
) -> None:
    """What happens in them is not news to it."""
    async with Client(api.app).open("GET", "/ui/live", **visit("mailer").cookie()) as talk:
        await talk.start()
        await _told(talk, "tick")
        await api.post(f"/v1/jobs/{jobs['enqueued']}/cancel")
        await api.post(f"/v1/jobs/{jobs['processing']}/cancel")

        told = await _told(talk, "tick")

    assert told["jobs"] == [link("jobs", "acme", jobs["processing"])]


async def test_nobody_looks_when_nobody_reads(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And readers of the same share one look, written once."""
    monkeypatch.setattr(live, "TICK_S", 0.001)
    looks = 0
    hub = _hub(service)
    look = Feed.look

    async def counted(self: Feed) -> Any:
        nonlocal looks
        looks += 1
        return await look(self)

    monkeypatch.setattr(Feed, "look", counted)
    readers = [hub.follow(KEY, "") for _ in range(5)]
    heard = [[await anext(one) for _ in range(3)] for one in readers]
    assert all(one[0].startswith(b"retry") for one in heard)
    assert hub.readers == 5
    for one in readers:
        await one.aclose()  # type: ignore[attr-defined]
    task = hub.channel(KEY)._task
    assert task is not None
    async with asyncio.timeout(5):
        await task

    assert hub.readers == 0
    assert looks < 5 * 3


async def test_readers_are_bounded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next is told to come later."""
    monkeypatch.setattr(live, "READERS_MAX", 1)
    hub = _hub(service)
    first = hub.follow(KEY, "")
    await anext(first)

    with pytest.raises(TooManyReaders):
        hub.follow(KEY, "")
    await first.aclose()  # type: ignore[attr-defined]


async def test_a_slow_reader_keeps_the_newest_messages() -> None:
    """And no more than a few: memory does not grow."""
    reader = live.Reader("")
    for number in range(10):
        reader.put(b"%d" % number)

    kept = [await reader.next(1) for _ in range(live.ARREARS_MAX)]

    assert kept == [b"7", b"8", b"9"]


async def test_readers_are_let_go_at_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process does not wait for its live pages."""
    monkeypatch.setattr(live, "TICK_S", 0.001)
    reader = _hub(service).follow(KEY, "")
    await anext(reader)

    service.close()

    async with asyncio.timeout(5):
        heard = [message async for message in reader]
    assert len(heard) <= live.ARREARS_MAX + 1


# -- samples ---------------------------------------------------------------------------------------


def _event(kind: EventKind, at: int) -> Event:
    return Event(1, at, kind, "acme", "id", "mail", "mail", 1, 1)


def test_rates_are_of_the_last_seconds() -> None:
    """Smoothed over a few; what is long past is forgotten."""
    samples, now = Samples(), 1_000_000 * SECOND
    done = [_event(EventKind.COMPLETED, now - SECOND) for _ in range(10)]

    samples.happened(done)

    points = samples.rate("done", now)
    assert len(points) == SPAN_S
    assert points[-1] == 2.0
    assert points[-2] == 0.0
    assert samples.total("done", now) == 10
    samples.stands(now + 2 * SPAN_S * SECOND, Level(0, 0, 0.0))
    assert samples.total("done", now) == 0


def test_a_level_is_unknown_while_nobody_looked() -> None:
    """A line is drawn only over what was seen."""
    samples, now = Samples(), 1_000_000 * SECOND
    samples.stands(now - 100 * SECOND, Level(7, 0, 0.0))
    samples.stands(now, Level(9, 0, 0.0))

    points = samples.level("waiting", now)

    assert points[0] is None
    assert points[-101] == 7
    assert points[-50] is None
    assert points[-1] == 9


async def test_a_first_look_knows_the_minutes_before(
    service: Service, api: Client, jobs: dict[str, str]
) -> None:
    """From the event log."""
    snapshot = await Feed(service.store, StoreClock(service.store), KEY).look()

    assert snapshot.samples.total("arrived", snapshot.now) == 5
    assert snapshot.samples.total("done", snapshot.now) == 1
    assert [event.job_id for event in snapshot.samples.recent] == [jobs["failed"]]


async def test_a_flood_of_news_is_estimated(
    service: Service, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads so much and no more, and goes on at the end."""
    monkeypatch.setattr(feed, "PAGES_MAX", 1)
    monkeypatch.setattr(feed, "PAGE_MAX", 100)
    here = Feed(service.store, StoreClock(service.store), KEY)
    await here.look()
    await api.post("/v1/jobs/batch", {"jobs": [{"type": "mail"}] * 400})

    snapshot = await here.look()
    after = await here.look()

    assert snapshot.more
    assert snapshot.samples.total("arrived", snapshot.now) == pytest.approx(400)
    assert not after.any
