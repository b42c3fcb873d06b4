"""What lasts is asked about again: a removed key ends streams, live pages and long polls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.dashboard.visitor import Visitor
from tests.service.asgi import Client, Talk
from tests.service.test_auth_keys import entry, write

from holdfast.core.job import Envelope, NewJob, Rules, State
from holdfast.service.app import application
from holdfast.service.auth.keys import Keys, new_key
from holdfast.service.pages import dashboard
from holdfast.service.service import Service
from holdfast.store import Find, Ref, Selection, Watch
from holdfast.stores import open_store
from holdfast.stores.remote import wire

KEY = new_key()
MINUTE = 60.0
RIGHTS = ["read", "work"]


class Ticks:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Place:
    """A service with one key, and a way to take that away and let a minute pass."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.clock = Ticks()
        write(path, entry(KEY, rights=RIGHTS))
        keys = Keys(str(path), self.clock)
        self.service = Service(open_store("memory://"), keys, clock=self.clock)
        self.app = application(self.service, mounts=[dashboard], owns_store=False)
        self.client = Client(self.app, {"authorization": f"Bearer {KEY}"})

    async def enqueue(self, id: str) -> None:
        """From elsewhere: rings the store's bell, so that nobody who waits sleeps on."""
        job = NewJob(
            tenant="acme", id=id, queue="q", rules=Rules(),
            envelope=Envelope("send", "json", 1, b"{}"),
        )  # fmt: skip
        await self.service.store.enqueue([job])

    def pass_a_minute(self) -> None:
        self.clock.now += MINUTE

    def remove_the_key(self) -> None:
        write(self._path)
        self.pass_a_minute()

    def narrow_the_key(self) -> None:
        write(self._path, entry(KEY, rights=RIGHTS, queues=["other"]))
        self.pass_a_minute()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    found = Place(tmp_path / "keys.json")
    await found.service.store.open()
    yield found
    found.service.close()
    await found.service.store.close()


async def rest(talk: Talk) -> bytes:
    """All that still comes, until the end."""
    async with asyncio.timeout(10):
        return b"".join([part async for part in talk.parts()])


async def until(talk: Talk, word: bytes) -> None:
    async with asyncio.timeout(10):
        async for part in talk.parts():
            if word in part:
                return
    raise AssertionError(f"the stream ended before {word!r}")


@pytest.mark.parametrize("change", ["remove_the_key", "narrow_the_key"])
async def test_a_stream_of_events_ends_with_its_key(place: Place, change: str) -> None:
    """Within a minute; what happens after that is not told."""
    async with place.client.open("GET", "/v1/events/stream?after=0") as talk:
        await talk.start()
        await place.enqueue("first")
        await until(talk, b"first")
        place.pass_a_minute()
        await place.enqueue("second")
        await until(talk, b"second")  # It was asked, and the key held.

        getattr(place, change)()
        await place.enqueue("secret")

        assert b"secret" not in await rest(talk)


async def test_a_live_page_ends_with_its_key(place: Place) -> None:
    """Its reader comes again, and is led to the login."""
    cookie = Visitor(place.client, KEY).cookie()
    async with Client(place.app).open("GET", "/ui/live", **cookie) as talk:
        await talk.start()
        await until(talk, b"event: tick")
        place.remove_the_key()

        await place.enqueue("secret")
        assert b"secret" not in await rest(talk)

    assert (await Client(place.app).get("/ui/live", **cookie)).status == 303


async def test_a_long_poll_hands_nothing_to_a_removed_key(place: Place) -> None:
    """What was claimed for it goes back, with its attempt."""
    body = {"queues": ["q"], "wait": 20}
    async with place.client.open("POST", "/v1/claim", body) as talk:
        answer = asyncio.create_task(talk.answer())
        await waiting(place)
        place.remove_the_key()
        await place.enqueue("one")

        async with asyncio.timeout(10):
            told = await answer

    assert told.status == 401, told
    page = await place.service.store.find(Find(select=Selection(tenant="acme")))
    assert [(job.id, job.state, job.attempt) for job in page.jobs] == [("one", State.ENQUEUED, 0)]


async def test_a_wait_for_a_result_tells_nothing_to_a_removed_key(place: Place) -> None:
    """Though the job has ended meanwhile."""
    await place.enqueue("one")
    async with place.client.open("GET", "/v1/jobs/one/result?wait=20") as talk:
        answer = asyncio.create_task(talk.answer())
        await waiting(place)
        place.remove_the_key()
        await place.service.store.cancel([Ref("acme", "one")])
        async with asyncio.timeout(10):
            told = await answer

    assert told.status == 401, told


async def test_a_remote_workers_sleep_ends_with_its_key(place: Place) -> None:
    """The store's own verbs wait, too."""
    sent = wire.encode(wire.Sleep(Watch(), 20.0))
    opened = place.client.open("POST", "/v1/store/wait", sent, content_type=wire.MEDIA)
    async with opened as talk:
        answer = asyncio.create_task(talk.answer())
        await waiting(place)
        place.remove_the_key()
        await place.enqueue("one")
        async with asyncio.timeout(10):
            told = await answer

    assert told.status == 401, told


async def waiting(place: Place) -> None:
    """Until a call waits in the service, and has gone to sleep in the store."""
    for turn in range(1000):
        await asyncio.sleep(0)
        if place.service.waiters and turn > 50:
            return
    raise AssertionError("no call waits")
