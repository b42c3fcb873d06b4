"""Event streams: a reader that was cut off anywhere loses nothing without being told (P14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.service.asgi import Client

from holdfast.core.bounds import PRUNE_MAX
from holdfast.core.clock import SECOND
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.service import Service
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import ACME, job


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Of a service whose log begins in the middle: the first three of six facts are pruned."""
    clock = ManualClock()
    store = open_store("memory://", clock)
    service = Service(store, NoAuth())
    await store.open()
    await store.enqueue([job(id) for id in "abc"])
    clock.advance(60)
    await store.enqueue([job(id) for id in "def"])
    await store.prune(PRUNE_MAX, 30 * SECOND)
    yield Client(application(service, owns_store=False), {"holdfast-tenant": ACME})
    service.close()
    await store.close()


async def read(client: Client, path: str, facts: int, **headers: str) -> list[tuple[str, str]]:
    """(event, id) of so many facts; then the reader is cut off."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(5), client.open("GET", path, **headers) as talk:
        assert (await talk.start())[0] == 200
        text = ""
        async for part in talk.parts():
            text += part.decode().replace("\r", "")
            *whole, text = text.split("\n\n")
            for one in whole:
                lines = dict(line.split(": ", 1) for line in one.splitlines() if ": " in line)
                if "event" in lines:
                    found.append((lines["event"], lines["id"]))
            if len(found) >= facts:
                return found[:facts]
    raise AssertionError(found)


async def test_a_reader_that_is_cut_off_after_a_gap_goes_on_before_the_page(
    client: Client,
) -> None:
    """P14: the gap tells what was lost; what comes behind it is not lost with it."""
    whole = await read(client, "/v1/events/stream?after=1", 4)
    [gap] = await read(client, "/v1/events/stream?after=1", 1)

    rest = await read(client, "/v1/events/stream", 3, last_event_id=gap[1])

    assert [name for name, _ in whole] == ["gap", "enqueued", "enqueued", "enqueued"]
    assert gap == whole[0]
    assert [one for one in rest if one[0] != "gap"][:3] == whole[1:]


async def test_a_gap_before_nothing_ends_where_the_log_ends(client: Client) -> None:
    """P14: a reader that comes again is not told of the same gap for ever."""
    [gap] = await read(client, "/v1/events/stream?after=1&job=a", 1)

    page = await client.get(f"/v1/events?after={gap[1]}")

    assert gap[0] == "gap"
    assert "lost" not in page.json
