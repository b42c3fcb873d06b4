"""Tenants apart: thousands of random calls of three tenants, none of which shows or changes what is
another's.

All of them use the same ids, queues, groups and slots, and each other's; what they write bears
their own mark. A mark of somebody else's in an answer is a leak, whatever the route.
"""

from __future__ import annotations

import base64
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client
from tests.service.calls import LEASE_S, Made, Pick, made
from tests.service.minted import mint, tokens
from tests.service.source_calls import source_state

from holdfast import App, Context, Flow
from holdfast.config import Config
from holdfast.core.schedule import under
from holdfast.core.scope import TENANT_KINDS
from holdfast.core.shadow import ShadowRead
from holdfast.core.source import decode as decode_source
from holdfast.listings import configured
from holdfast.service.app import application
from holdfast.service.auth.claims import ALL_TENANTS
from holdfast.service.endpoint import Route
from holdfast.service.firecrawl import LINES, mount
from holdfast.service.firecrawl.endpoint import Line
from holdfast.service.routes import ROUTES
from holdfast.service.service import Service
from holdfast.sources import Item
from holdfast.sources.handle import SourceHandle
from holdfast.sources.stored import Stored
from holdfast.store import Find, Selection, Store
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain
from holdfast.webhooks.definition import PREFIXES
from holdfast.webhooks.definition import under as hooks_under

CALLS = int(os.environ.get("HOLDFAST_FUZZ_CALLS", "8000"))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", "3"))
BURST = 10
"""Calls of one tenant, after which the others are looked at."""

TENANTS = ("acme", "globex", "initech")
CONTENT = {tenant: f"zq{number}content{number}qz" for number, tenant in enumerate(TENANTS)}
"""What a tenant's payloads, notes, results and reasons say; nobody else can know it."""
SECRET = {tenant: f"zq{number}secret{number}qz" for number, tenant in enumerate(TENANTS)}
"""What is in the names of some jobs, queues, groups and slots that no other tenant ever says."""
KNOWN = {tenant: f"zq{number}known{number}qz" for number, tenant in enumerate(TENANTS)}
"""The same of names that the others say too."""
EVERY_ROUTE: tuple[Route | Line, ...] = (*ROUTES, *LINES)
SHARED_IDS = [f"j{number}" for number in range(10)]
LATER = SHARED_IDS[8:]
"""Jobs that nobody claims for hours, so that they can be changed."""
SCOPED = ("read", "produce", "work", "operate", "admin")


def hidden(tenant: str) -> list[bytes]:
    """A mark as it is, and as it looks inside of base64."""
    mark = CONTENT[tenant].encode()
    coded = [base64.b64encode(b"." * shift + mark)[4:-4] for shift in range(3)]
    return [mark, *coded]


HIDDEN = {tenant: hidden(tenant) for tenant in TENANTS}


class Caller(msgspec.Struct, frozen=True):
    """A token, and for whom it acts; None is any tenant, that the header names."""

    token: str | None
    tenant: str | None
    valid: bool = True


def callers_of(tenant: str) -> list[Caller]:
    """All kinds of tokens that a tenant may come with, and some that it made up."""
    every = " ".join(SCOPED)
    good = [mint(tid=tenant, sub=f"{tenant}-user", scope=scope) for scope in (*SCOPED, every)]
    good += [mint(tid=tenant, sub="user", scope=every)] * 4
    good.append(mint(tid=tenant, sub="user", scope=every, queues=["q0"], types=["mail"]))
    other = TENANTS[TENANTS.index(tenant) - 1]
    bad = [
        None,
        "garbage",
        mint(tid=other, scope=every, exp=time.time() - 60),
        mint(tid=other, scope=every, number=1),
        mint(tid=other, tenantId=tenant, scope=every),
        mint(tid=tenant, scope="read", **{ALL_TENANTS: True}),  # type: ignore[arg-type]
    ]
    return [
        *(Caller(token, tenant) for token in good),
        *(Caller(token, tenant, valid=False) for token in bad),
    ]


class World:
    """A service with three tenants, and what is known of it."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service = service
        self.store: Store = service.store
        self.client = Client(application(service, mounts=[mount], owns_store=False))
        self.chance = random.Random(seed)
        self.callers = {tenant: callers_of(tenant) for tenant in TENANTS}
        self.admin = mint(sub="ops", scope="admin", **{ALL_TENANTS: True})  # type: ignore[arg-type]
        self.leases = ["x"]
        self.claims = ["x"]
        self.flows: dict[str, list[str]] = {}
        self.blobs: dict[str, str] = {}
        self.statuses: dict[str, Counter[int]] = {}

    def pick(self, tenant: str) -> Pick:
        """Names of everybody's; marks of this tenant."""
        pick = Pick([*[tenant] * 4, *TENANTS], self.chance)
        pick.mark = CONTENT[tenant]
        known = [*KNOWN.values(), SECRET[tenant]]
        every = [id for ids in self.flows.values() for id in ids]
        pick.ids = [*SHARED_IDS, *known, *every]
        pick.flows = [*every, *self.flows[tenant] * 6]
        pick.blobs = [*self.blobs.values(), *[self.blobs[tenant]] * 4]
        pick.queues = ["q0", "q1", *known]
        pick.groups = ["g0", "g1", *known]
        pick.leases, pick.claims = self.leases[-60:], self.claims[-24:]
        return pick

    async def furnish(self, tenant: str) -> None:
        """Jobs in every state, limits, a pause and slots, all with the tenant's marks."""
        mark, known, secret = CONTENT[tenant], KNOWN[tenant], SECRET[tenant]
        token = mint(sub=f"{tenant}-user", tid=tenant)
        mine = self.client.with_headers(authorization=f"Bearer {token}")
        media = {"content_type": "application/octet-stream"}
        put = await mine.post("/v1/blobs", mark.encode(), **media)
        blob = self.blobs[tenant] = put.json["id"]
        for number, id in enumerate((*SHARED_IDS, known, secret)):
            part = {known: known, secret: secret}.get(id)
            queue, group = part or "q0", part or "g0"
            job: dict[str, Any] = {"type": "mail", "id": id, "queue": queue, "group": group}
            job |= {"key": f"k-{id}", "delay": 36_000 if id in LATER else 0}
            raw = base64.b64encode(mark.encode()).decode()
            body = {"payload_base64": raw} if number % 3 == 0 else {"payload": [mark, blob]}
            assert (await mine.post("/v1/jobs", {**job, **body, "tags": [mark]})).status == 201
        claim = {"worker": mark, "limit": 8, "lease": LEASE_S}
        leases = (await mine.post("/v1/claim", claim)).json["leases"]
        assert len(leases) == 8  # Four of them stay.
        self.leases += [lease["token"] for lease in leases]
        acks: list[dict[str, Any]] = [
            {"outcome": "fail", "retry": False, "error": mark},
            {"outcome": "fail", "retry": False, "error": mark},
            {"outcome": "fail", "error": mark},
            {"outcome": "complete"},
        ]
        for lease, ack in zip(leases, acks, strict=False):
            sent = {"id": lease["job"]["id"], "token": lease["token"], **ack}
            assert "error" not in (await mine.post("/v1/ack", {"acks": [sent]})).json["acks"][0]
        for number in range(8):
            popped: dict[str, Any] = {
                "id": str(number),
                "data": mark,
                "priority": 0,
                "listenable": False,
            }
            push = {"teamId": tenant, "job": popped, "crawlId": secret}
            assert (await mine.post("/queue/push", push)).status == 200
            self._learn(await mine.post(f"/queue/pop/{tenant}", {"workerId": mark}))
        scopes = ("tenant", "queue/q0", "queue/q1", "group/g0", f"group/{secret}")
        for scope in scopes:
            slot = {"seconds": LEASE_S, "note": mark}
            path = f"/v1/scopes/{scope}"
            assert (await mine.put(f"{path}/slots/{secret}", slot)).status == 200
            assert (await mine.patch(path, {"max_running": 50})).status == 200
        assert (await mine.post("/v1/scopes/queue/q1/pause", {"reason": mark})).status == 200
        schedule = {"type": "mail", "queue": "q0", "payload": mark, "every": 36_000}
        for name in ("q0", "q1", "g0", known, secret):
            assert (await mine.put(f"/v1/schedules/{name}", schedule)).status == 201
        hook = {"url": "https://receiver.example/hook", "types": [mark]}
        for name in ("q0", "g0", known, secret):
            assert (await mine.put(f"/v1/webhooks/{name}", hook)).status == 201

        for name in ("q0", "q1", "g0", known, secret):
            source = Stored(self.store, tenant, name)
            await source.create(decode_source(name, source_state("q0")).plan)
            handle = SourceHandle(self.store, tenant, name)
            await handle.push([Item(id, 1, mark) for id in (*SHARED_IDS, secret)])
        await self._start(tenant)

    async def _start(self, tenant: str) -> None:
        """A flow that runs, and some that were canceled."""
        app = App(self.store)
        await app.open()  # The world closes the store.

        @app.job(name="mail", queue="q0")
        async def mail(ctx: Context, text: str) -> None: ...

        for number in range(4):
            flow = Flow(CONTENT[tenant], key=f"{tenant} {number}")
            flow.add(mail(text=CONTENT[tenant]), after=flow.add(mail(text=CONTENT[tenant])))
            run = await app.tenant(tenant).start(flow)
            self.flows.setdefault(tenant, []).append(run.id)
            if number:
                await run.cancel()
        await drain(app, tenants=[tenant], queues=["holdfast.flows"])

    async def state(self, tenant: str) -> Any:
        """All that the store has of a tenant."""
        jobs = await self.store.find(Find(select=Selection(tenant=tenant), limit=1000))
        events = await self.store.events(tenant, 0, 1000)
        every = await self.store.hold(under="slot/")
        slots = [one for one in every if f"{len(tenant)}:{tenant}/" in one.name]
        counts = [await self.store.count(tenant, by=kind) for kind in TENANT_KINDS]
        settings = await configured(self.store, tenant)
        schedules = await self.store.settings(under=under(tenant))
        sources = (await self.store.shadow(ShadowRead(tenant=tenant))).sources
        shadows = [
            (await self.store.shadow(ShadowRead(tenant=tenant, source=one.source, after=""))).rows
            for one in sources
        ]
        hooks = [await self.store.settings(under=hooks_under(tenant, one)) for one in PREFIXES]
        found = jobs.jobs, events.events, slots, counts, settings, schedules, sources, shadows
        return *found, hooks

    async def burst(self, tenant: str) -> list[str]:
        """Some calls of one tenant; what they did, for whoever has to look into it."""
        done = []
        for _ in range(BURST):
            route = self.chance.choice(EVERY_ROUTE)
            caller, headers = self._caller(tenant, route)
            said = made(route, self.pick(tenant))
            answer = await self._call(route, said, {**said.headers, **headers})
            done.append(f"{route.name} {said.text!r} -> {answer}")
            self.statuses.setdefault(route.name, Counter())[answer.status] += 1
            self._check(tenant, caller, said, answer, done[-1])
            self._learn(answer)
        return done

    def _caller(self, tenant: str, route: Route | Line) -> tuple[Caller, dict[str, str]]:
        """Who calls, and its headers. A service's token comes where it is held to a tenant."""
        held = isinstance(route, Route) and route.tenant is not False
        if held and self.chance.random() < 0.1:
            headers = {"authorization": f"Bearer {self.admin}", "holdfast-tenant": tenant}
            return Caller(self.admin, None), headers
        caller = self.chance.choice(self.callers[tenant])
        headers = {} if caller.token is None else {"authorization": f"Bearer {caller.token}"}
        if self.chance.random() < 0.15:
            headers["holdfast-tenant"] = self.chance.choice(TENANTS)
        return caller, headers

    async def _call(self, route: Route | Line, said: Made, headers: dict[str, str]) -> Answer:
        if isinstance(route, Line) or not route.streams:
            return await self.client.call(route.method, said.path, said.body, **headers)
        async with self.client.open(route.method, said.path, None, **headers) as talk:
            status, found = await talk.start()
            if status != 200:
                parts = [part async for part in talk.parts()]
                return Answer(status, found, b"".join(parts))
            page = await self.client.get(said.path.replace("/stream", ""), **headers)
            return Answer(status, found, await _told(talk, len(page.json["events"])))

    def _check(self, tenant: str, caller: Caller, said: Made, answer: Answer, what: str) -> None:
        assert answer.status < 500, what
        for other in TENANTS:
            if other == tenant:
                continue
            assert not any(mark in answer.body for mark in HIDDEN[other]), what
            assert SECRET[other].encode() not in answer.body, what
            if other.encode() not in said.text:
                assert other.encode() not in answer.body, what
        if not caller.valid:
            assert answer.status in (200, 401, 403), what

    def _learn(self, answer: Answer) -> None:
        """Tokens of leases and keys of claims, for others to try."""
        if answer.status == 200 and b'"queueKey"' in answer.body:
            self.claims.append(answer.json["queueKey"])
        if answer.status == 200 and b'"leases"' in answer.body and b'"token"' in answer.body:
            self.leases += [lease["token"] for lease in answer.json["leases"]]


async def _told(talk: Any, events: int) -> bytes:
    """As many events of a stream; it would go on for ever."""
    found = b""
    if events:
        async for part in talk.parts():
            found += part
            if found.count(b"event: ") >= events:
                break
    return found


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Its clock stands still: nothing changes but by a call."""
    config = Config(blobs="memory://")
    service = Service(open_store("memory://", ManualClock()), tokens(), config=config)
    await service.store.open()
    found = World(service, SEED)
    for tenant in TENANTS:
        await found.furnish(tenant)
    yield found
    service.close()
    await service.store.close()


async def test_no_call_shows_or_changes_what_is_another_tenants(world: World) -> None:
    """Every route, every kind of token, everybody's names; nothing is a fault of ours either."""
    states = {tenant: await world.state(tenant) for tenant in TENANTS}
    for _ in range(CALLS // BURST):
        actor = world.chance.choice(TENANTS)
        done = await world.burst(actor)
        for tenant in TENANTS:
            now = await world.state(tenant)
            if tenant != actor:
                assert now == states[tenant], f"{tenant} was changed by {actor}:\n" + "\n".join(
                    done
                )
            states[tenant] = now

    # It was not all refusals: every route that is for one tenant did what it is for.
    for route in EVERY_ROUTE:
        if isinstance(route, Line) or route.tenant is not False:
            assert {200, 201} & world.statuses[route.name].keys(), route.name
