"""Webhooks through a service: who may set them, read their secrets, and make or send deliveries."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.errors import InvalidInput, StoreError, TenantFull
from holdfast.core.job import By, Event, EventKind, NewJob
from holdfast.service.rights import Caller, Right, rights
from holdfast.store import Claim, Put
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, MAIL
from holdfast.webhooks.definition import (
    CURSOR_PREFIX,
    PREFIX,
    QUEUE,
    SECRET_PREFIX,
    Secrets,
    Webhook,
    decode,
    encode,
    name_of,
)
from holdfast.webhooks.delivery import of_event, of_gap, of_ping
from holdfast.webhooks.handle import WebhookHandle

URL = "https://receiver.example/hook"
SECRET = "whsec_of-the-tests-alone"
WORK, OPERATE, PRODUCE = Right.WORK, Right.OPERATE, Right.PRODUCE
CALLERS = (
    Caller(name="root", tenant=None, rights=frozenset(Right)),
    Caller(name="acme", tenant=ACME, rights=frozenset(Right)),
    Caller(name="globex", tenant=GLOBEX, rights=frozenset(Right)),
    Caller(name="mailer", tenant=ACME, rights=frozenset(Right), queues=(MAIL,)),
    Caller(name="typed", tenant=ACME, rights=frozenset(Right), types=("send",)),
    Caller(name="worker", tenant=ACME, rights=rights([WORK, Right.READ])),
    Caller(name="operator", tenant=ACME, rights=rights([OPERATE])),
    Caller(name="producer", tenant=ACME, rights=rights([PRODUCE, Right.READ])),
    Caller(name="sender", tenant=ACME, rights=rights([WORK, OPERATE])),
    Caller(name="pinger", tenant=ACME, rights=rights([PRODUCE, OPERATE])),
    Caller(name="reader", tenant=None, rights=rights([Right.READ])),
)


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("webhooks", auth=Tokens(*CALLERS))


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(StoreError, match="not allowed"):
        await call


async def billing(opened: Opened, place: Place) -> WebhookHandle:
    """A webhook of acme, made through the service."""
    handle = WebhookHandle(await opened(place, "acme"), ACME, "billing")
    await handle.set(url=URL, secret=SECRET, by=By("ann", "new shop"))
    return handle


def wish(nonce: str, queues: tuple[str, ...] | None = (QUEUE,)) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=10, lease_us=LEASE, queues=queues)


HOOK = Webhook(id="x", url=URL, made_by="x", made_at=1)
PAID = Event(1, 0, EventKind.COMPLETED, ACME, "paid", MAIL, "send", 1, 1)


async def test_a_change_is_signed_with_the_name_of_the_token(place: Place, opened: Opened) -> None:
    """Whoever has a token cannot write the list of changes as they like."""
    hook = await billing(opened, place)
    await hook.set(attempts=3, by=By("bob"))
    forged = msgspec.structs.replace(HOOK, made_by="boss", edits=())
    acme, version = await opened(place, "acme"), (await hook.get()).version
    await acme.settings([Put(name_of(ACME, "billing"), encode(forged), version)])

    definition = (await hook.get()).definition
    assert definition is not None
    assert definition.made_by == "ann (acme)"
    authors = [edit.author for edit in definition.edits]
    assert authors == ["acme (acme)", "bob (acme)", "ann (acme)"]


async def test_secrets_are_read_only_by_those_who_send(place: Place, opened: Opened) -> None:
    """By name, or by a prefix; also not by who may read the settings of every tenant."""
    await billing(opened, place)
    names = (name_of(ACME, "billing", SECRET_PREFIX), f"{SECRET_PREFIX}4:acme/")
    for name in names:
        [setting] = await (await opened(place, "sender")).settings(under=name)
        assert decode(Secrets, setting.value).keys[0].secret == SECRET
        for caller in ("worker", "operator", "reader", "globex", "mailer", "typed"):
            await refused((await opened(place, caller)).settings(under=name))
    for prefix in ("webhook", "webhook-", SECRET_PREFIX, ""):
        for caller in ("acme", "operator", "reader"):
            await refused((await opened(place, caller)).settings(under=prefix))
    [shown] = await (await opened(place, "reader")).settings(under=PREFIX)
    assert SECRET.encode() not in shown.value


async def test_deliveries_are_claimed_only_by_those_who_may_send(
    place: Place, opened: Opened
) -> None:
    """A worker without the right leaves them to others, with their attempts."""
    root, worker = await opened(place, "root"), await opened(place, "worker")
    await root.enqueue([of_event(HOOK, "billing", PAID)])

    assert await worker.claim(wish("a")) == []
    assert await worker.claim(wish("b", queues=(MAIL, QUEUE))) == []
    [lease] = await (await opened(place, "sender")).claim(wish("c"))
    assert lease.job.attempt == 1
    await root.enqueue([of_event(HOOK, "billing", msgspec.structs.replace(PAID, cursor=2))])
    assert await worker.claim(wish("d", queues=None)) == []


def _forged() -> dict[str, NewJob]:
    ping = of_ping(HOOK, "billing", ACME, "n", 1)
    told = msgspec.json.decode(ping.envelope.body)
    more = msgspec.json.encode({**told, "event": {**told["event"], "job_id": "paid"}})
    kind = msgspec.json.encode({**told, "event": {**told["event"], "kind": "completed"}})

    def with_body(body: bytes) -> NewJob:
        envelope = msgspec.structs.replace(ping.envelope, body=body)
        return msgspec.structs.replace(ping, envelope=envelope)

    return {
        "an event": of_event(HOOK, "billing", PAID),
        "a gap": of_gap(HOOK, "billing", ACME, 1, 1),
        "a ping with more": with_body(more),
        "a ping of another kind": with_body(kind),
        "no payload": with_body(b"\xff"),
        "another group": msgspec.structs.replace(ping, group="other"),
        "another type": msgspec.structs.replace(
            ping, envelope=msgspec.structs.replace(ping.envelope, type="send")
        ),
        "many attempts": msgspec.structs.replace(
            ping, rules=msgspec.structs.replace(ping.rules, max_attempts=1000)
        ),
    }


@pytest.mark.parametrize("name", _forged())
async def test_a_delivery_cannot_be_forged(place: Place, opened: Opened, name: str) -> None:
    """A receiver would believe it: the webhook's secret signs it."""
    for caller in ("acme", "pinger", "producer"):
        await refused((await opened(place, caller)).enqueue([_forged()[name]]))

    assert (await (await opened(place, "root")).count(ACME)) == []


async def test_a_ping_takes_the_right_to_operate(place: Place, opened: Opened) -> None:
    """And to enqueue, as any job."""
    await billing(opened, place)
    for caller in ("producer", "operator", "mailer"):
        store = await opened(place, caller)
        await refused(store.enqueue([of_ping(HOOK, "billing", ACME, caller, 1)]))

    made = await WebhookHandle(await opened(place, "pinger"), ACME, "billing").test()

    assert made.created


BAD: dict[str, tuple[str, bytes]] = {
    "no JSON": (PREFIX, b"x"),
    "a private address": (PREFIX, encode(msgspec.structs.replace(HOOK, url="http://10.0.0.1/"))),
    "a kind about settings": (
        PREFIX,
        encode(msgspec.structs.replace(HOOK, kinds=(EventKind.CONFIGURED,))),
    ),
    "a type of the library": (PREFIX, encode(msgspec.structs.replace(HOOK, types=("holdfast.x",)))),
    "too many attempts": (PREFIX, encode(msgspec.structs.replace(HOOK, attempts=10**6))),
    "a short secret": (SECRET_PREFIX, b'{"keys":[["short"]]}'),
    "no secret": (SECRET_PREFIX, b'{"keys":[]}'),
    "a position in words": (CURSOR_PREFIX, b'{"cursor":"x"}'),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_no_handle_would_write_is_refused(
    place: Place, opened: Opened, name: str
) -> None:
    """P19: nobody meets it later, and the error shows no secret."""
    prefix, value = BAD[name]
    acme = await opened(place, "acme")

    with pytest.raises(InvalidInput) as told:
        await acme.settings([Put(name_of(ACME, "odd", prefix), value, 0)])

    assert "short" not in str(told.value)


async def test_a_tenant_has_no_more_webhooks_through_a_service(
    place: Place, opened: Opened
) -> None:
    """The service counts, not the client; and nobody sets those of another tenant."""
    acme = await opened(place, "acme")
    for number in range(20):
        await acme.settings([Put(name_of(ACME, f"hook-{number}"), encode(HOOK), 0)])

    with pytest.raises(TenantFull):
        await acme.settings([Put(name_of(ACME, "more"), encode(HOOK), 0)])
    globex = await opened(place, "globex")
    for prefix in (PREFIX, SECRET_PREFIX, CURSOR_PREFIX):
        await refused(globex.settings([Put(name_of(ACME, "hook-0", prefix), None, 1)]))
    for caller in ("mailer", "typed"):
        store = await opened(place, caller)
        await refused(store.settings([Put(name_of(ACME, "hook-0"), None, 1)]))
