"""Who may act on which scope: every token, verb and scope, by the native routes and by the store's
verbs. The rule is one (`Caller.check_scope`); the ways in are two.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client
from tests.service.firecrawl import Badges, badge

from holdfast.core.clock import SECOND
from holdfast.core.job import Envelope, NewJob, Rules, State
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Pause, Scope, ScopeKind, ScopeSettings, encode
from holdfast.service.app import application
from holdfast.service.rights import Caller
from holdfast.service.service import Service
from holdfast.store import Extension, Put, Take
from holdfast.stores import open_store
from holdfast.stores.remote import wire
from holdfast.worker_registry import present_workers

ACME, GLOBEX = "acme", "globex"
HOUR = 3600 * SECOND

CALLERS: dict[str, Caller] = {
    "whole": badge("whole", ACME),
    "narrow": badge("narrow", ACME, queues=("mail",)),
    "wide": badge("wide", None),
    "narrow of all": badge("narrow of all", None, queues=("mail",)),
}
SCOPES: dict[str, Scope] = {
    "tenant": Scope(ACME),
    "mail": Scope(ACME, ScopeKind.QUEUE, "mail"),
    "bank": Scope(ACME, ScopeKind.QUEUE, "bank"),
    "group": Scope(ACME, ScopeKind.GROUP, "g"),
    "another tenant": Scope(GLOBEX),
    "its mail": Scope(GLOBEX, ScopeKind.QUEUE, "mail"),
}
LOOKS = ("get", "slots", "counts")
VERBS = ("set", "pause", "resume", "push", "remove", *LOOKS)


def may(token: str, verb: str, scope: str) -> bool:
    """The rule, said a second time: by names, not by code that could be wrong in the same way."""
    if token in ("whole", "narrow") and scope in ("another tenant", "its mail"):
        return False
    if token in ("whole", "wide") or scope in ("mail", "its mail"):
        return True
    return verb == "get" and scope != "bank"


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """Every scope has a job, a slot with a secret, a limit and a pause."""
    found = Service(open_store("memory://"), Badges(*CALLERS.values()))
    await found.store.open()
    jobs = [
        NewJob(
            tenant=scope.tenant, id=name, queue=scope.part or "other", rules=Rules(),
            envelope=Envelope("send", "json", 1, b"{}"),
            group=scope.part if scope.kind is ScopeKind.GROUP else None,
        )
        for name, scope in SCOPES.items()
    ]  # fmt: skip
    await found.store.enqueue(jobs)
    for name, scope in SCOPES.items():
        settings = ScopeSettings(max_running=7, paused=Pause(f"SECRET {name}", "ann"))
        await found.store.settings([Put(scope.name, encode(settings), 0)])
        await found.store.hold([Take(scope.slot("old"), "old", HOUR, f"SECRET {name}")])
    yield found
    found.close()
    await found.store.close()


async def version(service: Service, scope: Scope) -> int:
    [found] = [s for s in await service.store.settings(under=scope.name) if s.name == scope.name]
    return found.version


async def native(client: Client, verb: str, scope: Scope) -> Answer:
    headers = {"holdfast_tenant": scope.tenant}
    path = f"/v1/scopes/{scope.kind}" + (f"/{scope.part}" if scope.part else "")
    calls: dict[str, tuple[str, str, Any]] = {
        "get": ("GET", path, None),
        "slots": ("GET", f"{path}/slots", None),
        "counts": ("GET", f"{path}/counts", None),
        "set": ("PATCH", path, {"max_running": 5}),
        "pause": ("POST", f"{path}/pause", {"reason": "mine"}),
        "resume": ("POST", f"{path}/resume", None),
        "push": ("PUT", f"{path}/slots/new", {"seconds": 60}),
        "remove": ("DELETE", f"{path}/slots/old", None),
    }
    method, where, body = calls[verb]
    return await client.call(method, where, body, **headers)


async def packed(client: Client, verb: str, scope: Scope, at: int) -> Answer:
    settings = {
        "set": ScopeSettings(max_running=5, paused=Pause("kept", "ann")),
        "pause": ScopeSettings(max_running=7, paused=Pause("mine", "ann")),
        "resume": ScopeSettings(max_running=7),
    }
    takes = {
        "push": Take(scope.slot("new"), "new", HOUR),
        "remove": Take(scope.slot("old"), "old", 0),
    }
    if verb in settings:
        where, body = "put", wire.Puts([Put(scope.name, encode(settings[verb]), at)], None)
    elif verb in takes:
        where, body = "hold", wire.Takes([takes[verb]], None)  # type: ignore[assignment]
    elif verb == "get":
        where, body = "settings", wire.Under(scope.name)  # type: ignore[assignment]
    elif verb == "slots":
        where, body = "holds", wire.Under(scope.slots)  # type: ignore[assignment]
    else:
        where = "count"
        body = wire.Counting(tenant=scope.tenant, by=scope.kind, part=scope.part)  # type: ignore[assignment]
    sent = wire.encode(body)
    return await client.post(f"/v1/store/{where}", sent, content_type=wire.MEDIA)


async def state(service: Service) -> Any:
    """All that acts on scopes change."""
    store = service.store
    return await store.settings(under=""), [
        (one.name, one.note) for one in await store.hold(under="")
    ]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("token", CALLERS)
@pytest.mark.parametrize("way", ["native", "store"])
async def test_a_token_acts_on_the_scopes_it_is_for_by_either_way(
    service: Service, way: str, token: str, scope: str
) -> None:
    """P7, P19: a token for some queues may not touch its tenant, its groups or other queues."""
    client = Client(application(service, owns_store=False), {"badge": token})
    for verb in VERBS:
        before, named = await state(service), SCOPES[scope]
        if way == "native":
            answer = await native(client, verb, named)
        else:
            answer = await packed(client, verb, named, await version(service, named))

        if may(token, verb, scope):
            assert answer.status == 200, (verb, answer)
            assert (await state(service) != before) is (verb not in LOOKS), verb
            continue
        assert await state(service) == before, verb
        if answer.status == 200:  # A list without what it may not see.
            assert verb in LOOKS, verb
            assert f"SECRET {scope}".encode() not in answer.body, verb
        else:
            assert answer.status == 403, (verb, answer)


async def test_lists_of_every_scope_leave_out_what_a_narrow_token_is_not_for(
    service: Service,
) -> None:
    """By prefix, as the store's verbs list them, and by the native list."""
    for token in ("narrow", "narrow of all"):
        client = Client(application(service, owns_store=False), {"badge": token})
        for where, under in (("settings", "scope/queue/4:acme/"), ("holds", "slot/queue/4:acme/")):
            sent = wire.encode(wire.Under(under))
            answer = await client.post(f"/v1/store/{where}", sent, content_type=wire.MEDIA)
            assert b"SECRET mail" in answer.body
            assert b"SECRET bank" not in answer.body
        listed = await client.get("/v1/scopes", holdfast_tenant=ACME)
        assert b"SECRET mail" in listed.body
        assert b"SECRET bank" not in listed.body
        assert (await client.get("/v1/groups", holdfast_tenant=ACME)).status == 403


async def test_a_narrow_tokens_worker_serves_no_other_queue(service: Service) -> None:
    """Or it could say that there is somebody to work where there is nobody."""
    client = Client(application(service, owns_store=False), {"badge": "narrow"})
    for queues, status in ((["bank"], 403), (None, 200), (["mail"], 200)):
        note = {
            "pid": 1, "tenants": None, "queues": queues, "types": [], "concurrency": 1,
            "running": 0, "held": 0,
        }  # fmt: skip
        sent = wire.encode(wire.Takes([Take("worker/w", "w", 60 * SECOND, json.dumps(note))], None))
        answer = await client.post("/v1/store/hold", sent, content_type=wire.MEDIA)
        assert answer.status == status, answer
    [found] = await present_workers(service.store, ACME)
    assert found.note.queues == ("mail",)


@pytest.mark.parametrize("way", ["native", "store"])
async def test_acks_of_a_narrow_token_find_no_job_of_another_queue(
    service: Service, way: str
) -> None:
    """P7 within a tenant: whether a job is there, and how it stands, is not told by a refusal."""
    client = Client(application(service, owns_store=False), {"badge": "narrow"})
    codes = {}
    for id in ("bank", "nowhere", "mail"):
        if way == "native":
            acks = [
                {"id": id, "token": "wrong", "outcome": "complete"},
                {"id": id, "token": "wrong", "outcome": "fail", "error": "x"},
            ]
            answers = (await client.post("/v1/ack", {"acks": acks})).json["acks"]
            body = {"leases": [{"id": id, "token": "wrong"}]}
            answers += (await client.post("/v1/extend", body)).json["leases"]
            codes[id] = {one["error"]["code"] for one in answers}
        else:
            change = Transition(tenant=ACME, id=id, token="wrong", to=State.COMPLETED)
            beat = Extension(tenant=ACME, id=id, token="wrong", lease_us=SECOND)
            codes[id] = set()
            for verb, one in (("ack", change), ("extend", beat)):
                for batch in ([one], [one, one]):
                    sent = wire.encode(batch)
                    told = await client.post(f"/v1/store/{verb}", sent, content_type=wire.MEDIA)
                    found = msgspec.msgpack.decode(told.body)
                    codes[id] |= {each["error"]["code"] for each in found}

    assert codes["bank"] == codes["nowhere"] == {"JOB_NOT_FOUND"}
    assert codes["mail"] == {"INVALID_LEASE_TOKEN"}
