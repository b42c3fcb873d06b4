"""What a token can try: each act of docs/security.md, as a call for each way in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from tests.dashboard.visitor import Visitor
from tests.service.asgi import Answer, Client
from tests.service.probing import (
    HOUR,
    Place,
    Probe,
    Target,
    done,
    joined,
    native,
    new,
    page,
    paused,
    pushed,
    put,
    read_packed,
    read_running,
    read_running_packed,
    remembered,
    remembered_packed,
    seen_by_events,
    seen_by_find,
    seen_by_list,
    signaled,
    team,
    verb,
    worked,
    worked_packed,
)
from tests.service.webhook_probes import WEBHOOK_ACTS

from holdfast.core import tiers
from holdfast.core.flow import HEAD, Head, own_envelope
from holdfast.core.flow import QUEUE as FLOWS
from holdfast.core.job import Envelope, NewJob
from holdfast.core.scope import PLATFORM, Pause, Scope, ScopeKind
from holdfast.scopes import ScopeHandle
from holdfast.store import Act, Change, Put, Ref, Selection, Take
from holdfast.stores.remote import wire
from holdfast.tiers import TierHandle


def line(target: Target) -> Scope:
    return target.line


def whole(target: Target) -> Scope:
    return target.whole


def _change(target: Target) -> Change:
    select = Selection(tenant=target.tenant, ids=(target.id,), queues=(target.queue,))
    return Change(select=select, act=Act.DELETE)


def over_all(target: Target) -> Scope:
    return Scope("", ScopeKind.QUEUE, target.queue)


def store_wide(target: Target) -> Scope:
    return PLATFORM


def of_type(target: Target) -> Scope:
    return Scope("", ScopeKind.TYPE, "send")


def tiered(probe: Probe) -> Probe:
    """The probe, after the platform has made a tier."""

    async def act(at: Place, target: Target) -> bool:
        await TierHandle(at.store, "pro").set(weight=2)
        return await probe(at, target)

    return act


def put_tier(tier: str) -> Probe:
    """Writes a tier, or the defaults, by its name."""
    put = Put(tiers.name_of(tier), tiers.encode(tiers.Defaults(weight=3)), 0)
    return verb("put", lambda t: wire.Puts([put], None), bound=False)


SECRET = "the provider is down"


def told(probe: Callable[[Place, Target], Awaitable[Answer]]) -> Probe:
    """Whether the answer has the reason of a pause of the platform."""

    async def act(at: Place, target: Target) -> bool:
        await ScopeHandle(at.store, over_all(target)).pause(SECRET, "ann")
        answer = await probe(at, target)
        return done(answer) and SECRET.encode() in answer.body

    return act


async def explained(at: Place, target: Target) -> Answer:
    return await at.client(target).get(f"/v1/jobs/{target.id}/explain")


async def explained_packed(at: Place, target: Target) -> Answer:
    return await at.packed(target, "explain", Ref(target.tenant, target.id))


async def seen_on_a_page(at: Place, target: Target) -> Answer:
    path = f"/ui/jobs/{target.tenant}/{target.id}"
    return await Visitor(Client(at.app), at.token).get(path)


async def tiers_on_a_page(at: Place, target: Target) -> bool:
    return done(await Visitor(Client(at.app), at.token).get("/ui/platform"))


async def logged(at: Place, target: Target) -> Answer:
    reading = wire.Reading(tenant=None, after=0, limit=1000)
    sent = wire.encode(reading)
    return await at.unbound().post("/v1/store/events", sent, content_type=wire.MEDIA)


def everywhere(method: str, act: str = "", body: Any = None) -> tuple[Probe, ...]:
    """A call for the store, for a queue and for a type over all tenants."""
    paths = ("", "/queues/{queue}", "/types/send")
    return tuple(native(method, f"/v1/platform{path}{act}", body) for path in paths)


def head_of_flow(target: Target) -> NewJob:
    return msgspec.structs.replace(
        new(target, "flow"),
        queue=FLOWS,
        envelope=own_envelope(HEAD, Head(name="x", nodes=1)),
    )


def pledge(target: Target) -> NewJob:
    return msgspec.structs.replace(
        new(target, "pledge"), envelope=Envelope("send", "refs", 1, b'{"args": {}, "refs": {}}')
    )


PLATFORM_ACTS: dict[str, tuple[Probe, ...]] = {
    "read what limits all tenants together": (
        native("GET", "/v1/platform/scopes"),
        *everywhere("GET"),
        *everywhere("GET", "/counts"),
        *(
            verb("settings", lambda t, of=of: wire.Under(of(t).name), bound=False)  # type: ignore[misc]
            for of in (store_wide, over_all, of_type)
        ),
        verb("count", lambda t: wire.Counting(tenant="", part=t.queue), bound=False),
        verb("count", lambda t: wire.Counting(tenant=None, by=ScopeKind.TYPE), bound=False),
    ),
    "set a limit of all tenants together, pause it, resume it": (
        *everywhere("PATCH", "", {"max_running": 5}),
        *everywhere("POST", "/pause", {"reason": "x"}),
        *everywhere("POST", "/resume"),
        put(store_wide, bound=False, max_running=5),
        put(over_all, bound=False, max_running=5),
        put(of_type, bound=False, paused=Pause("x", "me")),
        page("/ui/platform/limit?kind=queue&name={queue}", max_running="5", version="0"),
        page("/ui/platform/pause?kind=type&name=send", reason="x"),
        page("/ui/platform/resume?kind=platform"),
    ),
    "learn who uses up a limit of all tenants together": (
        told(explained),
        told(explained_packed),
        told(seen_on_a_page),
    ),
    "read tiers and defaults": (
        native("GET", "/v1/platform/tiers"),
        tiered(native("GET", "/v1/platform/tiers/pro")),
        native("GET", "/v1/platform/defaults"),
        tiered(verb("settings", lambda t: wire.Under(tiers.PREFIX), bound=False)),
        tiers_on_a_page,
    ),
    "set tiers and defaults, put a tenant into a tier": (
        native("PATCH", "/v1/platform/defaults", {"max_running": 5}),
        native("PATCH", "/v1/platform/tiers/pro", {"max_running": 5}),
        tiered(native("DELETE", "/v1/platform/tiers/pro")),
        tiered(native("PATCH", "/v1/scopes/tenant", {"tier": "pro"})),
        tiered(put(whole, tier="pro")),
        put_tier(""),
        put_tier("pro"),
    ),
    "read the events of these limits": (told(logged),),
}


SCHEDULE = "/v1/schedules/{id}"
QUEUE_PATH = "/v1/scopes/queue/{queue}"
ACTS: dict[str, tuple[Probe, ...]] = {
    "enqueue a job": (
        native("POST", "/v1/jobs", {"type": "send", "queue": "QUEUE"}),
        native("POST", "/v1/jobs/batch", {"jobs": [{"type": "send", "queue": "QUEUE"}]}),
        verb("enqueue", lambda t: wire.NewJobs([new(t, "new")])),
        verb("enqueue", lambda t: wire.NewJobs([new(t, "new"), new(t, "next")], whole=True)),
    ),
    "enqueue a pickled job": (verb("enqueue", lambda t: wire.NewJobs([new(t, "new", "pickle")])),),
    "start a flow, or a job with results of others": (
        native(
            "POST",
            "/v1/flows",
            {"name": "x", "nodes": [{"name": "a", "type": "send", "queue": "QUEUE"}]},
        ),
        verb("enqueue", lambda t: wire.NewJobs([head_of_flow(t)])),
        verb("enqueue", lambda t: wire.NewJobs([pledge(t)])),
    ),
    "enqueue a job whose end another job awaits": (
        native(
            "POST",
            "/v1/jobs",
            {"type": "send", "queue": "QUEUE", "edges": [{"target": "OWN"}]},
        ),
        verb("enqueue", lambda t: wire.NewJobs([joined(t, t.id)])),
    ),
    "let a job of another queue await a new one": (
        native("POST", "/v1/jobs", {"type": "send", "queue": "mail", "edges": [{"target": "OWN"}]}),
        native(
            "POST",
            "/v1/jobs/batch",
            {"jobs": [{"type": "send", "queue": "mail", "edges": [{"target": "OWN"}]}]},
        ),
        verb("enqueue", lambda t: wire.NewJobs([joined(Target(t.tenant, "mail"), t.id)])),
        verb(
            "enqueue",
            lambda t: wire.NewJobs([joined(Target(t.tenant, "mail"), t.id)], whole=True),
        ),
    ),
    "send a signal to a job": (
        native("POST", "/v1/jobs/{id}/signal", {"name": "ok", "value": 1}),
        signaled,
    ),
    "cancel a job": (native("POST", "/v1/jobs/{id}/cancel"),),
    "claim and settle a job": (worked, worked_packed),
    "write what a job remembers": (remembered, remembered_packed),
    "hold a slot of a queue": (
        native("PUT", QUEUE_PATH + "/slots/s", {"seconds": 60}),
        verb("hold", lambda t: wire.Takes([Take(t.line.slot("s"), "s", HOUR)], None)),
    ),
    "hold a slot of a tenant": (
        native("PUT", "/v1/scopes/tenant/slots/s", {"seconds": 60}),
        verb("hold", lambda t: wire.Takes([Take(t.whole.slot("s"), "s", HOUR)], None)),
    ),
    "read a job, its result, its events": (
        native("GET", "/v1/jobs/{id}"),
        native("GET", "/v1/jobs/{id}/result"),
        native("GET", "/v1/jobs/{id}/explain"),
        seen_by_list,
        seen_by_find,
        seen_by_events,
        verb("explain", lambda t: Ref(t.tenant, t.id)),
    ),
    "read what a job remembers, its errors and its log": (
        native("GET", "/v1/jobs/{id}/journal"),
        read_packed,
    ),
    "read the steps and signals of a running job": (read_running, read_running_packed),
    "count a queue": (native("GET", QUEUE_PATH + "/counts"),),
    "count a tenant and its groups": (
        native("GET", "/v1/scopes/tenant/counts"),
        native("GET", "/v1/groups"),
        verb("count", lambda t: wire.Counting(tenant=t.tenant, by=ScopeKind.TENANT)),
    ),
    "read the limits of a tenant": (
        native("GET", "/v1/scopes/tenant"),
        verb("settings", lambda t: wire.Under(t.whole.name)),
    ),
    "replay or delete a job": (
        native("POST", "/v1/jobs/dead-{id}/replay"),
        native("POST", "/v1/jobs/dead-{id}/replay", {}),
        native("DELETE", "/v1/jobs/{id}"),
        verb("change", _change),
        page("/ui/jobs/{tenant}/dead-{id}/replay"),
    ),
    "read a schedule": (native("GET", SCHEDULE),),
    "make, change or delete a schedule": (
        native("PUT", SCHEDULE, {"every": 60}),
        native("PUT", f"{SCHEDULE}-new", {"every": 60, "type": "send", "queue": "QUEUE"}),
        native("DELETE", SCHEDULE),
    ),
    "pause, resume or run a schedule": (
        native("POST", f"{SCHEDULE}/pause", {"reason": "x"}),
        native("POST", f"{SCHEDULE}/resume"),
        native("POST", f"{SCHEDULE}/run-now"),
        page("/ui/schedules/{tenant}/{id}/pause", reason="x"),
        page("/ui/schedules/{tenant}/{id}/run"),
    ),
    **WEBHOOK_ACTS,
    "set a limit of a queue, pause it, resume it": (
        native("PATCH", QUEUE_PATH, {"max_running": 5}),
        native("POST", QUEUE_PATH + "/pause", {"reason": "x"}),
        native("POST", QUEUE_PATH + "/resume"),
        put(line, max_running=5),
        put(line, paused=Pause("x", "me")),
        page("/ui/queues/{tenant}/{queue}/pause", reason="x"),
    ),
    "set a limit of a tenant, pause it, resume it": (
        native("PATCH", "/v1/scopes/tenant", {"max_running": 5}),
        native("POST", "/v1/scopes/tenant/pause", {"reason": "x"}),
        native("POST", "/v1/scopes/tenant/resume"),
        put(whole, max_running=5),
    ),
    "set weight, caps and ceilings": (
        native("PATCH", "/v1/scopes/tenant", {"weight": 5}),
        native("PATCH", "/v1/scopes/tenant", {"max_queued": 5}),
        native("PATCH", "/v1/scopes/tenant", {"max_bytes": 5}),
        native("PATCH", "/v1/scopes/tenant", {"ceiling": {"max_running": 5}}),
        put(whole, weight=5),
    ),
    "resume what the platform paused": (
        paused(native("POST", "/v1/scopes/tenant/resume"), whole),
        paused(native("POST", QUEUE_PATH + "/resume"), line),
        paused(put(whole, paused=None), whole),
        paused(page("/ui/queues/{tenant}/{queue}/resume"), line),
    ),
    "list flows": (native("GET", "/v1/flows"),),
    **PLATFORM_ACTS,
    "list tenants and workers": (native("GET", "/v1/tenants"), native("GET", "/v1/workers")),
    "read the metrics": (native("GET", "/metrics"),),
    "do the upkeep": (
        verb("expired", lambda t: wire.Limit(1)),
        verb("prune", lambda t: wire.Pruning(1, HOUR)),
        verb("recount", lambda t: wire.Counting(tenant=t.tenant)),
        verb("lapse", lambda t: []),
    ),
    "read and set what is no scope's": (
        verb("settings", lambda t: wire.Under(""), bound=False),
        verb("put", lambda t: wire.Puts([Put("other/x", b"x", 0)], None), bound=False),
        verb("hold", lambda t: wire.Takes([Take("leader", "me", HOUR)], None), bound=False),
    ),
    "push to a team of the Firecrawl protocol": (pushed,),
    "pop from a team of the Firecrawl protocol": (
        team("POST", "/queue/pop/{tenant}", {"workerId": "w", "blockedCrawlIds": []}),
        team("POST", "/active/push", {"teamId": "TEAM", "jobId": "j", "timeout": 1000}),
    ),
    "count and list a team of the Firecrawl protocol": (
        team("GET", "/queue/count/team/{tenant}"),
        team("GET", "/queue/jobs/team/{tenant}"),
        team("GET", "/active/jobs/{tenant}"),
    ),
    "reconcile a team of the Firecrawl protocol": (team("POST", "/reconcile/team/queue/{tenant}"),),
    "probe whether it is alive and ready": (
        native("GET", "/healthz"),
        native("GET", "/readyz"),
        native("GET", "/health"),
        native("GET", "/v1/store"),
    ),
}
