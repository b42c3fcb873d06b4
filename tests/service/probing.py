"""Calls that try what a token can do: by a route, a verb of the store, a form or the Firecrawl
protocol, on a service that is made for one token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from tests.dashboard.visitor import Visitor
from tests.service.asgi import Answer, Client

from holdfast.core.clock import SECOND
from holdfast.core.cron import Timing
from holdfast.core.job import Envelope, NewJob, Reason, Rules, State
from holdfast.core.journal import Edge, Entry, EntryKind, Signal
from holdfast.core.lifecycle import Transition
from holdfast.core.schedule import Definition, name_of
from holdfast.core.schedule import encode as encode_schedule
from holdfast.core.scope import Scope, ScopeKind, encode
from holdfast.core.spec import JobSpec
from holdfast.scopes import ScopeHandle
from holdfast.service.app import application
from holdfast.service.firecrawl.routes import mount as firecrawl
from holdfast.service.pages import dashboard
from holdfast.service.rights import Caller, Right, Unauthenticated, rights
from holdfast.service.service import Service
from holdfast.store import Claim, Extension, Find, Put, Ref, Selection
from holdfast.stores import open_store
from holdfast.stores.remote import wire
from holdfast.webhooks.handle import WebhookHandle

HOUR = 3600 * SECOND
OWN, OTHER = "acme", "globex"


def _of_one(*granted: Right, **more: Any) -> Caller:
    return Caller(name="one", tenant=OWN, rights=rights(granted, OWN), **more)


def _of_all(*granted: Right) -> Caller:
    return Caller(name="all", tenant=None, rights=rights(granted))


TOKENS: dict[str, Caller | None] = {
    "none": None,
    "`produce`": _of_one(Right.PRODUCE),
    "`work`": _of_one(Right.WORK),
    "`read`": _of_one(Right.READ),
    "`operate`": _of_one(Right.OPERATE),
    "`admin`": _of_one(Right.ADMIN),
    "some queues": _of_one(*Right, queues=("mail",)),
    "`read`, all": _of_all(Right.READ),
    "`operate`, all": _of_all(Right.OPERATE),
    "`platform`, all": _of_all(Right.PLATFORM),
    "`admin`, all": _of_all(Right.ADMIN),
}
"""By the head of their column."""


class Known:
    """One token, `it`; None is known to nobody."""

    def __init__(self, caller: Caller | None) -> None:
        self._caller = caller

    async def caller(self, request: Any) -> Caller:
        if self._caller is None or not request.headers.get("authorization"):
            raise Unauthenticated(why="there is no token")
        return self._caller


class Target(msgspec.Struct, frozen=True):
    tenant: str
    queue: str

    @property
    def id(self) -> str:
        return f"{self.tenant}-{self.queue}"

    @property
    def line(self) -> Scope:
        return Scope(self.tenant, ScopeKind.QUEUE, self.queue)

    @property
    def whole(self) -> Scope:
        return Scope(self.tenant)


RECEIVER = "https://receiver.example/hook"
MINE, BESIDE, THEIRS = Target(OWN, "mail"), Target(OWN, "bank"), Target(OTHER, "mail")


class Place:
    """A fresh service whose store has jobs of each target: waiting, and dead."""

    def __init__(self, service: Service, caller: Caller | None) -> None:
        self.service = service
        self.store = service.store
        self.app = application(service, mounts=[firecrawl, dashboard], owns_store=False)
        self.token = None if caller is None else "it"

    def unbound(self) -> Client:
        headers = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        return Client(self.app, headers)

    def client(self, target: Target) -> Client:
        return self.unbound().with_headers(holdfast_tenant=target.tenant)

    async def packed(self, target: Target, verb: str, value: Any) -> Answer:
        sent = wire.encode(value)
        return await self.client(target).post(f"/v1/store/{verb}", sent, content_type=wire.MEDIA)


@asynccontextmanager
async def place(caller: Caller | None) -> AsyncIterator[Place]:
    service = Service(open_store("memory://"), Known(caller))
    await service.store.open()
    for target in (MINE, BESIDE, THEIRS):
        await service.store.enqueue([new(target, f"dead-{target.id}")])
        [lease] = await service.store.claim(
            Claim(worker="w", nonce=f"n{target.id}", limit=1, lease_us=HOUR)
        )
        dead = Transition(
            tenant=target.tenant, id=lease.job.id, token=lease.token, to=State.FAILED,
            reason=Reason.PERMANENT, error="x",
        )  # fmt: skip
        await service.store.ack([dead])
    await service.store.settings([Put("type/send", b'{"queue": "mail"}', 0)])
    for target in (MINE, BESIDE, THEIRS):
        job = JobSpec(type="send", codec="json", version=1, body=b"{}", queue=target.queue)
        schedule = Definition(revision=1, timing=Timing(every_us=HOUR), job=job)
        name = name_of(target.tenant, target.id)
        await service.store.settings([Put(name, encode_schedule(schedule), 0)])
        await WebhookHandle(service.store, target.tenant, target.id).set(url=RECEIVER)
    await service.store.enqueue([new(target, target.id) for target in (MINE, BESIDE, THEIRS)])
    try:
        yield Place(service, caller)
    finally:
        service.close()
        await service.store.close()


def new(target: Target, id: str, codec: str = "json") -> NewJob:
    return NewJob(
        tenant=target.tenant, id=id, queue=target.queue, rules=Rules(),
        envelope=Envelope("send", codec, 1, b"{}"),
    )  # fmt: skip


def joined(target: Target, id: str) -> NewJob:
    """A new job whose end a stored one awaits."""
    return msgspec.structs.replace(new(target, "new"), edges=(Edge(id),))


# -- probes: whether it was done -------------------------------------------------------------------

Probe = Callable[[Place, Target], Awaitable[bool]]


def done(answer: Answer) -> bool:
    assert answer.status < 500, answer
    assert answer.status in (200, 201, 303, 401, 403, 404), answer
    if answer.status == 303:
        return "login" not in answer.headers["location"]
    return answer.status in (200, 201)


def native(method: str, path: str, body: Any = None) -> Probe:
    """A call of a route; the path and the body may name parts of the target."""

    async def probe(at: Place, target: Target) -> bool:
        where = path.format(queue=target.queue, id=target.id)
        said = None
        if body is not None:
            text = json.dumps(body).replace("QUEUE", target.queue).replace("OWN", target.id)
            said = json.loads(text)
        return done(await at.client(target).call(method, where, said))

    return probe


def verb(name: str, value: Callable[[Target], Any], *, bound: bool = True) -> Probe:
    """A verb of the store; `bound` names the tenant by header, too."""

    async def probe(at: Place, target: Target) -> bool:
        client = at.client(target) if bound else at.unbound()
        sent = wire.encode(value(target))
        return done(await client.post(f"/v1/store/{name}", sent, content_type=wire.MEDIA))

    return probe


def team(method: str, path: str, body: Any = None) -> Probe:
    """A call of the Firecrawl wire, for the target's tenant as a team."""

    async def probe(at: Place, target: Target) -> bool:
        where = path.format(tenant=target.tenant)
        said = None if body is None else json.loads(json.dumps(body).replace("TEAM", target.tenant))
        return done(await at.unbound().call(method, where, said))

    return probe


pushed = team(
    "POST",
    "/queue/push",
    {"teamId": "TEAM", "job": {"id": "j", "data": 1, "priority": 0, "listenable": False}},
)


def page(path: str, **fields: str) -> Probe:
    """A form of the dashboard."""

    async def probe(at: Place, target: Target) -> bool:
        where = path.format(tenant=target.tenant, queue=target.queue, id=target.id)
        return done(await Visitor(Client(at.app), at.token).send(where, **fields))

    return probe


async def seen_by_list(at: Place, target: Target) -> bool:
    answer = await at.client(target).get("/v1/jobs")
    return done(answer) and target.id.encode() in answer.body


async def seen_by_find(at: Place, target: Target) -> bool:
    find = Find(select=Selection(tenant=target.tenant))
    answer = await at.packed(target, "find", find)
    return done(answer) and target.id.encode() in answer.body


async def seen_by_events(at: Place, target: Target) -> bool:
    answer = await at.client(target).get("/v1/events?after=0&limit=1000")
    return done(answer) and target.id.encode() in answer.body


async def worked(at: Place, target: Target) -> bool:
    client = at.client(target)
    answer = await client.post("/v1/claim", {"queues": [target.queue]})
    if not done(answer):
        return False
    [lease] = answer.json["leases"]
    ack = {"id": lease["job"]["id"], "token": lease["token"], "outcome": "complete"}
    return "error" not in (await client.post("/v1/ack", {"acks": [ack]})).json["acks"][0]


async def remembered(at: Place, target: Target) -> bool:
    """By a heartbeat and an ack of its lease; a made-up token writes nothing."""
    client = at.client(target)
    answer = await client.post("/v1/claim", {"queues": [target.queue]})
    entry = {"kind": "step", "name": "s", "value": 1}
    if not done(answer):
        made_up = {"id": target.id, "token": "x", "entries": [entry]}
        refused = await client.post("/v1/extend", {"leases": [made_up]})
        assert not done(refused) or "error" in refused.json["leases"][0]
        return False
    [lease] = answer.json["leases"]
    held = {"id": lease["job"]["id"], "token": lease["token"], "entries": [entry]}
    kept = (await client.post("/v1/extend", {"leases": [held]})).json["leases"][0]
    ended = {**held, "outcome": "release", "entries": [{**entry, "name": "t"}]}
    acked = (await client.post("/v1/ack", {"acks": [ended]})).json["acks"][0]
    assert len(await _stored(at, target)) == 2
    return "error" not in kept and "error" not in acked


async def remembered_packed(at: Place, target: Target) -> bool:
    wish = Claim(
        worker="w", nonce="x" * 20, limit=1, lease_us=HOUR, tenants=(target.tenant,),
        queues=(target.queue,),
    )  # fmt: skip
    answer = await at.packed(target, "claim", wish)
    if not done(answer):
        return False
    [lease] = wire.CLAIM.told.decode(answer.body)
    held = Extension(
        tenant=target.tenant, id=target.id, token=lease.token, lease_us=HOUR,
        entries=(Entry(EntryKind.STEP, "s", b"1"),),
    )  # fmt: skip
    kept = await at.packed(target, "extend", [held])
    return done(kept) and len(await _stored(at, target)) == 1


async def _stored(at: Place, target: Target) -> list[Entry]:
    select = Selection(tenant=target.tenant, ids=(target.id,))
    page = await at.store.find(Find(select=select, limit=1, journals=True))
    return [entry for journal in page.journals.values() for entry in journal.entries]


async def signaled(at: Place, target: Target) -> bool:
    """By the verb, whose items have answers of their own."""
    sent = wire.Signals([Signal(target.tenant, target.id, "ok", b"1")])
    answer = await at.packed(target, "signal", sent)
    said = done(answer) and wire.SIGNAL.told.decode(answer.body)[0].stored
    assert said == bool(await _stored(at, target))
    return said


async def read_packed(at: Place, target: Target) -> bool:
    """The journal of the target, which has a signal."""
    await at.store.signal([Signal(target.tenant, target.id, "ok", b'"SECRET"')])
    find = Find(select=Selection(tenant=target.tenant), limit=5, journals=True)
    answer = await at.packed(target, "find", find)
    return done(answer) and b"SECRET" in answer.body


async def read_running(at: Place, target: Target) -> bool:
    """What the target remembers while it runs."""
    await run(at, target)
    answer = await at.client(target).get(f"/v1/jobs/{target.id}/remembered")
    return done(answer) and b"SECRET" in answer.body


async def read_running_packed(at: Place, target: Target) -> bool:
    await run(at, target)
    answer = await at.packed(target, "remembered", Ref(target.tenant, target.id))
    return done(answer) and b"SECRET" in answer.body


async def run(at: Place, target: Target) -> None:
    """Lets somebody else claim the target, which has a signal."""
    await at.store.signal([Signal(target.tenant, target.id, "ok", b'"SECRET"')])
    wish = Claim(
        worker="other", nonce="y" * 20, limit=1, lease_us=HOUR, tenants=(target.tenant,),
        queues=(target.queue,),
    )  # fmt: skip
    assert [lease.job.id for lease in await at.store.claim(wish)] == [target.id]


async def worked_packed(at: Place, target: Target) -> bool:
    wish = Claim(
        worker="w", nonce="x" * 20, limit=1, lease_us=HOUR, tenants=(target.tenant,),
        queues=(target.queue,),
    )  # fmt: skip
    return done(await at.packed(target, "claim", wish))


def put(scope: Callable[[Target], Scope], *, bound: bool = True, **settings: Any) -> Probe:
    """Over what is set, at its present version; `bound` names the tenant by header, too."""

    async def probe(at: Place, target: Target) -> bool:
        named = scope(target)
        state = await ScopeHandle(at.store, named).get()
        value = encode(msgspec.structs.replace(state.settings, **settings))
        puts = wire.Puts([Put(named.name, value, state.version)], None)
        client = at.client(target) if bound else at.unbound()
        sent = wire.encode(puts)
        return done(await client.post("/v1/store/put", sent, content_type=wire.MEDIA))

    return probe


def paused(probe: Probe, scope: Callable[[Target], Scope]) -> Probe:
    """The probe, after the platform has paused the scope."""

    async def act(at: Place, target: Target) -> bool:
        await ScopeHandle(at.store, scope(target)).pause("overdue", "billing")
        return await probe(at, target)

    return act
