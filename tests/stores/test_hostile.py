"""What one caller sends over HTTP fails its own call alone, on every store (P19)."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client

from holdfast.core.bounds import GROUP_MAX, ID_MAX, KEY_MAX, QUEUE_MAX, TENANT_MAX, TYPE_MAX
from holdfast.core.clock import Clock
from holdfast.core.job import NewJob, State
from holdfast.core.lifecycle import Transition
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.firecrawl.routes import mount
from holdfast.service.service import Service
from holdfast.store import Extension, Put, Store, Take
from holdfast.stores.remote import wire
from holdfast.testing.contract.builders import ACME, GLOBEX, job

Make = Callable[[str, Clock | None], Store]
BESIDE = 3
"""Innocent calls that travel with each hostile one."""
_numbers = count()
TOKENS = (
    "n." + "9" * 25,
    "n~." + "9" * 25,
    "n." + "9" * 19,
    f"n~.{2**63 - 1}",
    f"n.{2**63}",
    f"n~.{2**53}",
    f"n~.{2**53 + 1}",
    "n.0000000000000000000000001",
    "n~.1",
    "~.1",
    ".1",
    ".",
    "n.-1",
    "n.1e5",
    "n.٣",
)
"""Those that are shaped as ours too closely, and others."""


def wide(length: int, seed: int = 1) -> str:
    """A name of characters that take four bytes each, and cannot be compressed."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x20000, 0x2A6D0)) for _ in range(length))


class Desk:
    """A service over one store, and an innocent tenant beside whoever calls."""

    def __init__(self, client: Client, *, durable: bool) -> None:
        self.client = client
        self.durable = durable

    async def packed(self, verb: str, value: Any) -> Answer:
        path = f"{wire.PATH}/{verb}"
        return await self.client.post(path, wire.encode(value), content_type=wire.MEDIA)

    async def put_jobs(self, jobs: list[NewJob]) -> Answer:
        return await self.packed("enqueue", wire.NewJobs(jobs))

    async def beside(self, hostile: Any, innocent: Callable[[], Any]) -> Answer:
        """The answer to the hostile call; those that travel with it must be served."""
        before = [asyncio.ensure_future(innocent()) for _ in range(BESIDE)]
        answer: Answer = (await asyncio.gather(hostile, *before))[0]
        assert answer.status < 500, answer
        return answer

    async def enqueue(self) -> None:
        """An innocent enqueue, alone in its call."""
        id = f"i{next(_numbers)}"
        made = await self.client.post("/v1/jobs", {"type": "t", "id": id}, holdfast_tenant=GLOBEX)
        assert made.status == 201, made

    async def claim(self, number: int) -> list[Any]:
        for _ in range(number):
            await self.enqueue()
        found = await self.client.post("/v1/claim", {"limit": number}, holdfast_tenant=GLOBEX)
        return list(found.json["leases"])

    async def refused(self, token: str, act: str, leases: Sequence[Any]) -> Answer:
        """A call with this token, beside innocent ones with their own."""
        waiting = iter(leases)

        async def innocent() -> None:
            lease = next(waiting)
            held = {"id": lease["job"]["id"], "token": lease["token"]}
            if act.endswith("extend"):
                told = await self.client.post(
                    "/v1/extend", {"leases": [held]}, holdfast_tenant=GLOBEX
                )
                assert "until" in told.json["leases"][0], told
            else:
                ack = {"acks": [{**held, "outcome": "complete"}]}
                told = await self.client.post("/v1/ack", ack, holdfast_tenant=GLOBEX)
                assert told.json["acks"][0].get("state") == "completed", told

        return await self.beside(self._act(token, act), innocent)

    async def _act(self, token: str, act: str) -> Answer:
        if act == "store_ack":
            done = Transition(tenant=ACME, id="a", token=token, to=State.COMPLETED)
            return await self.packed("ack", [done])
        if act == "store_extend":
            longer = Extension(tenant=ACME, id="a", token=token, lease_us=10**6)
            return await self.packed("extend", [longer])
        if act == "firecrawl":
            key = base64.b64encode(msgspec.json.encode([ACME, "a", token, "j"])).decode()
            return await self.client.post("/queue/complete", {"queueKey": key})
        held = {"id": "a", "token": token}
        named = {"holdfast_tenant": ACME}
        if act == "extend":
            return await self.client.post("/v1/extend", {"leases": [held]}, **named)
        ack = {"acks": [{**held, "outcome": "complete"}]}
        return await self.client.post("/v1/ack", ack, **named)


@asynccontextmanager
async def served(make: Make) -> AsyncIterator[Desk]:
    store = make("jobs", None)
    await store.open()
    service = Service(store, NoAuth())
    try:
        client = Client(application(service, mounts=[mount], owns_store=False))
        yield Desk(client, durable=store.capabilities.durable)
    finally:
        service.close()
        await store.close()


def hostile_jobs() -> dict[str, NewJob]:
    plain = job("h")
    sealed = msgspec.structs.replace
    many = job(wide(ID_MAX), tenant=wide(TENANT_MAX), queue=wide(QUEUE_MAX), type=wide(TYPE_MAX))
    return {
        "version": sealed(plain, envelope=sealed(plain.envelope, version=2**31)),
        "run_at": sealed(plain, run_at=2**53),
        "wide key": sealed(many, key=wide(KEY_MAX)),
        "wide group": sealed(many, group=wide(GROUP_MAX)),
        "far": sealed(plain, run_at=2**53 - 1, ttl_us=100 * 366 * 86_400_000_000),
    }


@pytest.mark.parametrize("name", hostile_jobs())
async def test_a_job_that_a_store_cannot_keep_fails_alone(make: Make, name: str) -> None:
    """Told by its field, or kept; who enqueues at the same time is served."""
    async with served(make) as desk:
        answer = await desk.beside(desk.put_jobs([hostile_jobs()[name]]), desk.enqueue)

        if answer.status != 200:
            told = msgspec.msgpack.decode(answer.body)
            assert (answer.status, told["code"]) == (422, "INVALID_INPUT")
            assert told["facts"]["field"] in ("version", "run_at", "key")
        assert len(await desk.claim(1)) == 1


@pytest.mark.parametrize("act", ["ack", "extend", "store_ack", "store_extend", "firecrawl"])
async def test_a_crafted_token_is_refused_alone(make: Make, act: str) -> None:
    """Whoever settles or renews at the same time is served."""
    async with served(make) as desk:
        await desk.put_jobs([job("a")])
        leases = await desk.claim(BESIDE * len(TOKENS))
        for number, token in enumerate(TOKENS):
            mine = leases[number * BESIDE :][:BESIDE]
            answer = await desk.refused(token, act, mine)
            assert answer.status in (200, 400, 409, 422), (token, answer)
        found = await desk.client.get("/v1/jobs/a", holdfast_tenant=ACME)
        assert found.json["state"] == "enqueued"


async def test_a_date_that_a_store_cannot_keep_is_refused_by_its_field(make: Make) -> None:
    """On the native way as well: the calendar is longer than what a store counts exactly."""
    async with served(make) as desk:
        for at in ("9999-12-31T23:59:59Z", "2255-06-05T23:47:34.740993Z", "0001-01-01T00:00:00Z"):
            enqueue = desk.client.post(
                "/v1/jobs", {"type": "t", "run_at": at}, holdfast_tenant=ACME
            )
            answer = await desk.beside(enqueue, desk.enqueue)
            assert (answer.status, answer.json["field"]) == (422, "run_at"), answer


async def test_names_of_settings_and_holds_are_bounded_in_bytes(make: Make) -> None:
    """A store's index has room for so many, whatever characters they are."""
    async with served(make) as desk:
        name = wide(768)
        put = await desk.packed("put", wire.Puts([Put(name, b"", 0)]))
        take = await desk.packed("hold", wire.Takes([Take(name, "w", 10**6)]))

        for answer in (put, take):
            assert answer.status == 422, answer
            assert msgspec.msgpack.decode(answer.body)["facts"]["field"] == "name"


async def test_nobody_outside_can_say_that_an_id_is_new(make: Make) -> None:
    """P12, P19: sent twice, in one call and in two, and for a job that has ended, it is one job;
    others work on, also after the store was opened anew.
    """
    fresh = msgspec.structs.replace(job("a"), fresh=True)
    async with served(make) as desk:
        for jobs in ([fresh], [fresh], [fresh, fresh], [fresh]):
            assert (await desk.put_jobs(jobs)).status == 200
        found = await desk.client.post("/v1/claim", {"limit": 10}, holdfast_tenant=ACME)
        [lease] = found.json["leases"]
        ack = {"acks": [{"id": "a", "token": lease["token"], "outcome": "complete"}]}
        await desk.client.post("/v1/ack", ack, holdfast_tenant=ACME)
        again = await desk.put_jobs([fresh])
        assert msgspec.msgpack.decode(again.body)[0]["created"] is False
        empty = await desk.client.post("/v1/claim", {"limit": 10}, holdfast_tenant=ACME)
        assert empty.json["leases"] == []
        assert len(await desk.claim(2)) == 2

    async with served(make) as desk:
        assert len(await desk.claim(2)) == 2
        listed = await desk.client.get("/v1/jobs", holdfast_tenant=ACME)
        ids = [one["id"] for one in listed.json["jobs"]]
        assert ids == ["a"] or not (desk.durable or ids)
