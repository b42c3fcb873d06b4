"""The remote store's own ways: what opening asks, bodies that are too large, callers that leave."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest
from tests.servers.service import Host, Inside, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast import App, Context, operate
from holdfast.core.errors import PayloadTooLarge, SchemaTooNew, StoreUnavailable
from holdfast.core.finding import Level
from holdfast.core.job import Completed, EventKind, Lease, State
from holdfast.core.lifecycle import decide
from holdfast.service.rights import Caller, Right
from holdfast.service.run import listen
from holdfast.service.settings import Limits
from holdfast.store import Claim, Watch
from holdfast.stores import open_store
from holdfast.stores.remote import wire
from holdfast.stores.remote.client import Sent
from holdfast.stores.remote.errors import Answer
from holdfast.stores.remote.options import Options
from holdfast.stores.remote.store import RemoteStore
from holdfast.testing.contract.builders import ACME, LEASE, finding, ids, job

BOUND_S = 20.0


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("life")


def wish(nonce: str) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=10, lease_us=LEASE)


async def test_capabilities_are_those_of_the_store_behind(place: Place, opened: Opened) -> None:
    """Except what the wire makes of it: a memory store is shared by way of its service."""
    behind = place.store.capabilities
    store = await opened(place)

    assert (behind.shared, behind.encodes) == (False, False)
    assert store.capabilities == msgspec.structs.replace(
        behind, shared=True, encodes=True, payload_max=place.service.payload_max
    )


async def test_a_service_that_speaks_a_newer_format_is_refused(place: Place) -> None:
    """Before any job is touched."""

    class Newer(Inside):
        async def send(self, sent: Sent) -> Answer:
            answer = await super().send(sent)
            hello = msgspec.msgpack.decode(answer.body, type=wire.Hello)
            newer = msgspec.structs.replace(hello, format=wire.FORMAT + 1)
            return msgspec.structs.replace(answer, body=wire.encode(newer))

    store = RemoteStore(Options(base="http://x"), lambda of: Newer(place, of))
    with pytest.raises(SchemaTooNew, match="upgrade holdfast"):
        await store.open()


async def test_nobody_there_is_told_within_the_time_out() -> None:
    """A port that nobody listens on."""
    store = open_store("http://127.0.0.1:1/?timeout_s=0.2")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await store.open()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.find(finding())


async def test_a_batch_larger_than_a_body_goes_in_parts(place: Place, opened: Opened) -> None:
    """Each item has its answer, in order; one that fits into no body is refused alone."""
    place.service.limits = Limits(body_max=20_000)
    store = await opened(place)
    sizes = [6000, 6000, 30_000, 6000, 6000, 10]

    answers = await store.enqueue([job(f"j{n}", body=b"x" * size) for n, size in enumerate(sizes)])

    assert [answer.id for answer in answers] == [f"j{n}" for n in range(6)]
    assert [answer.created for answer in answers] == [True, True, False, True, True, True]
    assert isinstance(answers[2].error, PayloadTooLarge)
    leases = await store.claim(wish("n"))
    assert ids(leases) == ["j0", "j1", "j3", "j4", "j5"]
    changes = [decide(Completed(b"r" * 9000), one.job, one.token, 0.0) for one in leases]
    assert {acked.state for acked in await store.ack(changes)} == {State.COMPLETED}


async def test_what_was_claimed_for_a_caller_that_left_goes_back(
    place: Place, opened: Opened
) -> None:
    """With its attempt, at once: not when the lease lapses."""

    class Left(Inside):
        async def _call(self, sent: Sent, left: asyncio.Event) -> Answer:
            if sent.path.endswith("/claim"):
                left.set()
            return await super()._call(sent, left)

    store = await opened(place)
    await store.enqueue([job("a")])
    gone = RemoteStore(Options(base="http://x"), lambda of: Left(place, of))
    await gone.open()

    assert await gone.claim(wish("n")) == []

    [lease] = await store.claim(wish("m"))
    assert lease.job.attempt == 1
    kinds = [event.kind for event in await place.events_behind()]
    assert kinds == [EventKind.ENQUEUED, EventKind.LEASED, EventKind.RELEASED, EventKind.LEASED]
    await gone.close()


async def test_waits_do_not_keep_others_from_the_service(place: Place) -> None:
    """More sleepers than connections; an enqueue goes past them, and those that poll look too."""
    store = open_store(f"{place.url}?pool=1&waits=3")
    await store.open()
    try:
        async with asyncio.timeout(BOUND_S):
            sleepers = [asyncio.create_task(store.wait(Watch(), 10.0)) for _ in range(6)]
            await store.enqueue([job("a")])
            await asyncio.gather(*sleepers)
    finally:
        await store.close()

    assert all(sleeper.done() for sleeper in sleepers)


async def test_a_job_handed_over_as_an_object_can_be_read_elsewhere(
    place: Place, opened: Opened
) -> None:
    """A memory store keeps objects for its own process; over the wire they are JSON."""
    app = App(place.store)

    @app.job()
    async def send(ctx: Context, to: str) -> None:
        return

    id = await asyncio.wrap_future(place.host.start(app.tenant(ACME).enqueue(send(to="ann"))))
    store = await opened(place)

    [found] = (await store.find(finding())).jobs
    [lease] = await store.claim(wish("n"))
    for seen in (found, lease.job):
        assert (seen.envelope.codec, seen.envelope.body) == ("json", b'{"to":"ann"}')
    assert id is not None


async def test_the_doctor_says_whose_token_it_is(own_host: Host) -> None:
    """And what endangers jobs; never the token itself."""
    caller = Caller(name="ops", tenant=None, rights=frozenset(Right))
    place = own_host.place("doctor", auth=Tokens(caller))
    found = await operate.examine(place.url.replace("http://", "http://:ops@"))

    by_what = {finding.what: finding for finding in found}
    assert "'ops' acts for any tenant" in by_what["token"].words
    assert by_what["durability"].level is Level.WARNING
    assert by_what["service"].words.startswith("answers in")
    assert all(finding.level is not Level.BAD for finding in found)


def test_answers_are_sent_without_delay() -> None:
    """asyncio sets TCP_NODELAY only on sockets that name their protocol; it is 40 ms a call."""
    with listen("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


async def test_a_lease_is_the_same_here_and_there(place: Place, opened: Opened) -> None:
    """Token, deadline and record, to the last field."""
    store = await opened(place)
    await store.enqueue([job("a", tags=("x",), group="g", key="k", priority=5)])

    [lease] = await store.claim(wish("secret"))

    assert isinstance(lease, Lease)
    behind = await asyncio.wrap_future(place.host.start(place.store.find(finding())))
    assert lease.job == behind.jobs[0]
    assert lease.token.startswith("secret")
