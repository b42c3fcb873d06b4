"""A call for every route of the table: the plainest one, or one of many at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from tests.service.setting_calls import WEBHOOK_BODIES, put_setting, under_webhooks
from tests.service.source_calls import SOURCE_BODIES, asked, held_under, stepped

from holdfast.core.job import By, Envelope, NewJob, Rules, State
from holdfast.core.journal import Edge, Entry, EntryKind, Signal
from holdfast.core.lifecycle import Transition
from holdfast.core.schedule import under as schedules_under
from holdfast.core.scope import TENANT_KINDS, Scope, ScopeKind, ScopeSettings
from holdfast.service.endpoint import Route
from holdfast.service.firecrawl.endpoint import Line
from holdfast.store import Act, Change, Claim, Extension, Find, Put, Ref, Selection, Take, Watch
from holdfast.stores.remote import wire
from holdfast.worker_registry import PREFIX as WORKERS
from holdfast.worker_registry import Present

LEASE_S = 36_000.0
LEASE_US = int(LEASE_S) * 1_000_000


class Pick:
    """What a call may name; each first value is the plain one, taken where there is no chance."""

    def __init__(self, tenants: Sequence[str], chance: random.Random | None = None) -> None:
        self.tenants = list(tenants)
        self.chance = chance
        self.ids = ["one"]
        self.flows = ["one"]
        self.queues, self.groups, self.leases = ["default"], ["g"], ["x"]
        self.claims = ["x"]
        """Keys of jobs that were popped over the Firecrawl wire."""
        self.blobs = [f"blob-{0:032x}"]
        self.mark = "mark"
        """Is in all that the call writes."""

    def of(self, values: Sequence[Any]) -> Any:
        return values[0] if self.chance is None else self.chance.choice(values)

    def maybe(self, **fields: Any) -> dict[str, Any]:
        """Each of the fields, or not; none where there is no chance."""
        if self.chance is None:
            return {}
        return {name: value for name, value in fields.items() if self.chance.random() < 0.5}

    def id(self) -> str:
        return str(self.of(self.ids))

    def queue(self) -> str:
        return str(self.of(self.queues))

    def group(self) -> str:
        return str(self.of(self.groups))

    def lease(self) -> str:
        """A lease's token."""
        return str(self.of(self.leases))

    def tenant(self) -> str:
        return str(self.of(self.tenants))

    def scope(self) -> Scope:
        parts = {ScopeKind.TENANT: "", ScopeKind.QUEUE: self.queue(), ScopeKind.GROUP: self.group()}
        return Scope(self.tenant(), *self.of(list(parts.items())))


Make = Callable[[Pick], Any]


# -- bodies in JSON --------------------------------------------------------------------------------


def _job(p: Pick) -> dict[str, Any]:
    edges = [{"target": p.id(), "on_failure": "run"}]
    more = p.maybe(id=p.id(), group=p.group(), key=p.id(), delay=LEASE_S, tags=[p.mark])
    more |= p.maybe(edges=edges)
    return {"type": "mail", "queue": p.queue(), "payload": {"is": p.mark}, **more}


def _ack(p: Pick) -> dict[str, Any]:
    outcome = p.of(["complete", "fail", "release", "snooze", "park"])
    by_outcome: dict[str, dict[str, Any]] = {
        "snooze": {"after": 60},
        "park": {"awaits": f"signal:{p.mark}"},
        "complete": p.maybe(result=p.mark),
    }
    more = by_outcome.get(outcome, {})
    if outcome == "fail":
        more = {"error": p.mark, **p.maybe(retry=False)}
    noted = p.maybe(entries=[_entry(p)], log=[p.mark])
    return {"id": p.id(), "token": p.lease(), "outcome": outcome, **more, **noted}


def _entry(p: Pick) -> dict[str, Any]:
    return {"kind": p.of(["step", "position"]), "name": p.mark, "value": p.mark}


def _extend(p: Pick) -> dict[str, Any]:
    more = p.maybe(progress=p.mark, entries=[_entry(p)], log=[p.mark])
    return {"id": p.id(), "token": p.lease(), "lease": LEASE_S, **more}


def _claim(p: Pick) -> dict[str, Any]:
    more = p.maybe(limit=3, queues=[p.queue()], exclude_groups=[p.group()])
    return {"worker": p.mark, "lease": LEASE_S, **more}


def _limits(p: Pick) -> dict[str, Any]:
    return {"max_running": p.of([2, None, 50]), **p.maybe(rate="100/s", expect=0)}


def _slot(p: Pick) -> dict[str, Any]:
    return {"seconds": LEASE_S, "note": p.mark}


def _schedule(p: Pick) -> dict[str, Any]:
    more = p.maybe(overlap="cancel", missed="all", jitter=5)
    return {"every": 36_000, "type": "mail", "queue": p.queue(), "payload": p.mark, **more}


def _flow(p: Pick) -> dict[str, Any]:
    one = {"type": "mail", "queue": p.queue()}
    first = {"name": "a", **one, "args": {"is": p.mark}, **p.maybe(undo=one, group=p.group())}
    after = {"name": "b", **one, "args": {"is": {"$result": "a"}}, **p.maybe(key=p.id())}
    each = {"name": "c", **one, "map": {"over": "a", "item": "is"}}
    return {"name": p.mark, "nodes": [after, first, *p.of([[], [each]])], **p.maybe(key=p.mark)}


def _backfill(p: Pick) -> dict[str, Any]:
    first, last = "2025-12-30T00:00:00Z", "2025-12-31T00:00:00Z"
    return {"first": first, "last": last, **p.maybe(apply=True)}


OVER_ALL = ("platform", "platform_queue", "platform_type")
"""Names in the routes of the platform's scopes."""

JSON_BODIES: dict[str, Make] = {
    "signal": lambda p: {"name": p.mark, "value": {"is": p.mark}},
    "replay": lambda p: {},
    "reprioritise": lambda p: {"priority": 1},
    "reschedule": lambda p: {"delay": 1},
    "start_flow": _flow,
    "retry_flow": lambda p: p.maybe(mode=p.of(["all", "failed_only"])),
    "enqueue": _job,
    "enqueue_many": lambda p: {"jobs": [_job(p), _job(p)]},
    "claim": _claim,
    "ack": lambda p: {"acks": [_ack(p), _ack(p)]},
    "extend": lambda p: {"leases": [_extend(p), _extend(p)]},
    "change_tenant_scope": _limits,
    "change_part_scope": _limits,
    **{f"change_{name}_scope": _limits for name in OVER_ALL},
    **{f"pause_{name}": lambda p: {"reason": p.mark} for name in OVER_ALL},
    "change_defaults": lambda p: {"max_running": 1000},
    "change_tier": lambda p: {"weight": 2},
    "pause_tenant": lambda p: {"reason": p.mark},
    "pause_part": lambda p: {"reason": p.mark},
    "set_schedule": _schedule,
    "pause_schedule": lambda p: {"reason": p.mark},
    "backfill_schedule": _backfill,
    **WEBHOOK_BODIES,
    **SOURCE_BODIES,
    "push_tenant_slot": _slot,
    "push_part_slot": _slot,
}

# -- queries ---------------------------------------------------------------------------------------


def _filter(p: Pick) -> dict[str, Any]:
    return p.maybe(
        queue=p.queue(), group=p.group(), id=f"{p.id()},{p.id()}", key=p.id(), tag=p.mark
    )


QUERIES: dict[str, Make] = {
    "find": lambda p: {**_filter(p), **p.maybe(limit=1000, newest_first="false", cursor="5")},
    "dead": _filter,
    "replay_dead": _filter,
    "purge_dead": _filter,
    "flows": lambda p: p.maybe(name=p.mark, state="running,failed", limit=5),
    "flow_nodes": lambda p: p.maybe(after=p.of([0, 1]), limit=5),
    "groups": lambda p: p.maybe(after=p.group(), limit=5),
    "load": lambda p: p.maybe(queue=p.queue()),
    "events": lambda p: {"limit": 1000, **p.maybe(after=p.of([0, 3, 50]), job=p.id())},
    "journal": lambda p: p.maybe(full="true"),
    "follow": lambda p: {"after": 0, **p.maybe(job=p.id())},
}

# -- bodies in msgpack -----------------------------------------------------------------------------


def _new(p: Pick) -> NewJob:
    return NewJob(
        tenant=p.tenant(),
        id=p.id(),
        queue=p.queue(),
        envelope=Envelope("mail", "json", 1, msgspec.json.encode(p.mark)),
        rules=Rules(),
        **p.maybe(group=p.group(), key=p.id(), tags=(p.mark,), edges=(Edge(p.id()),)),
    )


def _select(p: Pick) -> Selection:
    return Selection(
        tenant=p.of([p.tenant(), None]),
        **p.maybe(ids=(p.id(), p.id()), queues=(p.queue(),), groups=(p.group(),)),
    )


def _settle(p: Pick) -> Transition:
    to = p.of([State.COMPLETED, State.FAILED, State.ENQUEUED])
    result = p.mark.encode() if to is State.COMPLETED else None
    return Transition(
        tenant=p.tenant(), id=p.id(), token=p.lease(), to=to, error=p.mark, result=result
    )


def _wished(p: Pick) -> Claim:
    tenants = p.of([(p.tenant(),), None, (p.tenant(), p.tenant())])
    nonce = f"{p.mark}-{id(object())}-{p.of(range(10**9))}"
    return Claim(
        worker=p.mark,
        nonce=nonce,
        limit=p.of([1, 5]),
        lease_us=LEASE_US,
        tenants=tenants,
        **p.maybe(queues=(p.queue(),)),
    )


def _note(p: Pick) -> str:
    tenants = p.of([(p.tenant(),), None])
    told = Present(1, tenants, None, ("mail",), 1, running=0, held=0, why=p.mark)
    return msgspec.json.encode(told).decode()


def _take(p: Pick) -> Take:
    slot = Take(p.scope().slot(p.id()), p.id(), p.of([LEASE_US, 0]), p.mark)
    worker = Take(WORKERS + p.id(), p.id(), LEASE_US, _note(p))
    return Take("upkeep", p.mark, LEASE_US) if p.of([0, 0, 0, 1]) else p.of([slot, worker])


def _put(p: Pick) -> Put:
    if p.of([0, 0, 0, 1]):
        return put_setting(p)
    value = msgspec.json.encode(ScopeSettings(max_running=p.of([5, 50])))
    fresh = Scope(p.tenant(), ScopeKind.QUEUE, f"new-{p.of(range(10**6))}").name
    names = [p.scope().name, p.scope().name, fresh, fresh, "other/name"]
    return Put(p.of(names), value, p.of([0, 0, 1, 2, 3]))


def _sleep(p: Pick, **more: Any) -> wire.Sleep:
    return wire.Sleep(Watch(**more), 0.0)


PACKED_BODIES: dict[str, Make] = {
    "store_enqueue": lambda p: wire.NewJobs([_new(p), _new(p)], **p.maybe(whole=True)),
    "store_claim": _wished,
    "store_extend": lambda p: [
        Extension(
            tenant=p.tenant(),
            id=p.id(),
            token=p.lease(),
            lease_us=LEASE_US,
            progress=p.mark,
            **p.maybe(entries=(Entry(EntryKind.STEP, p.mark, b'"x"'),)),
        )
    ],
    "store_signal": lambda p: wire.Signals(
        [Signal(p.tenant(), p.id(), p.mark, msgspec.json.encode(p.mark))],
        p.of([None, By("ann", p.mark)]),
    ),
    "store_ack": lambda p: [_settle(p), _settle(p)],
    "store_lapse": lambda p: [_settle(p)],
    "store_cancel": lambda p: wire.Refs(
        [Ref(p.tenant(), p.id()), Ref(p.tenant(), p.id())], p.of([None, By("ann", p.mark)])
    ),
    "store_change": lambda p: Change(
        select=_select(p), act=p.of([Act.REPRIORITISE, Act.REPLAY, Act.DELETE]), priority=3
    ),
    "store_expired": lambda p: wire.Limit(10),
    "store_prune": lambda p: wire.Pruning(10, LEASE_US),
    "store_find": lambda p: Find(
        select=_select(p), limit=p.of([1000, 100]), journals=p.of([False, True])
    ),
    "store_count": lambda p: wire.Counting(tenant=p.of([p.tenant(), None]), by=p.of(TENANT_KINDS)),
    "store_recount": lambda p: wire.Counting(tenant=p.tenant()),
    "store_explain": lambda p: Ref(p.tenant(), p.id()),
    "store_remembered": lambda p: Ref(p.tenant(), p.id()),
    "store_events": lambda p: wire.Reading(tenant=p.of([p.tenant(), None]), after=0, limit=1000),
    "store_settings": lambda p: wire.Under(
        p.of(
            [
                p.scope().name,
                "",
                "scope/",
                "schedule/",
                schedules_under(p.tenant()),
                under_webhooks(p),
            ]
        )
    ),
    "store_put": lambda p: wire.Puts(
        [_put(p)], p.of([None, None, wire.Under(p.scope().name), wire.Under("scope/")])
    ),
    "store_holds": lambda p: wire.Under(held_under(p)),
    "store_hold": lambda p: wire.Takes([_take(p)], p.of([None, wire.Under(held_under(p))])),
    "store_shadow": asked,
    "store_step": lambda p: stepped(p, _new(p)),
    "store_wait": lambda p: _sleep(p, tenants=p.of([(p.tenant(),), None])),
    "store_watch": lambda p: _sleep(p, job=Ref(p.tenant(), p.id())),
}


# -- the Firecrawl wire ----------------------------------------------------------------------------

HOURS_MS = int(LEASE_S) * 1000


def _push(p: Pick) -> dict[str, Any]:
    job = {"id": p.id(), "data": {"is": p.mark}, "priority": 1, "listenable": False}
    return {"teamId": p.tenant(), "job": job, **p.maybe(crawlId=p.group(), timeout=HOURS_MS)}


def _crawl_marker(p: Pick) -> dict[str, Any]:
    return {"crawlId": p.group(), "jobId": p.id(), "timeout": HOURS_MS}


def _team_marker(p: Pick) -> dict[str, Any]:
    return {"teamId": p.tenant(), "jobId": p.id(), "timeout": HOURS_MS}


FIRECRAWL_BODIES: dict[str, Make] = {
    "firecrawl_queue_push": _push,
    "firecrawl_queue_pop": lambda p: p.maybe(workerId=p.mark, blockedCrawlIds=[p.group()]),
    "firecrawl_queue_complete": lambda p: {"queueKey": p.of(p.claims)},
    "firecrawl_queue_release": lambda p: {"jobId": p.id()},
    "firecrawl_active_push": _team_marker,
    "firecrawl_active_remove": _team_marker,
    "firecrawl_active_crawl_push": _crawl_marker,
    "firecrawl_active_crawl_remove": _crawl_marker,
}


FLOWS = ("flow", "flow_nodes", "cancel_flow", "retry_flow")
"""Routes whose id is that of a flow."""


class Made(msgspec.Struct, frozen=True):
    path: str
    body: bytes | None
    headers: dict[str, str]

    @property
    def text(self) -> bytes:
        """All that the call says but its token."""
        said = f"{self.path} {self.headers}".encode()
        return said + (self.body or b"")


def made(route: Route | Line, p: Pick) -> Made:
    """A call of the route, good but for its token."""
    kind = "group" if route.name == "cancel_group" else p.of(["queue", "group"])
    parts = {
        "id": str(p.of(p.flows)) if route.name in FLOWS else p.id(),
        "kind": kind,
        "queue": p.queue(),
        "type": "mail",
        "name": p.queue() if kind == "queue" else p.group(),
        "slot": p.id(),
        "tier": "pro",
        "team": p.tenant(),
        "crawl": p.group(),
        "blob": str(p.of(p.blobs)),
    }
    path = route.path.format(**{name: quote(value, safe="") for name, value in parts.items()})
    if (asks := QUERIES.get(route.name)) and (query := asks(p)):
        path += "?" + "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    if make := PACKED_BODIES.get(route.name):
        return Made(path, wire.encode(make(p)), {"content-type": wire.MEDIA})
    if make := (JSON_BODIES | FIRECRAWL_BODIES).get(route.name):
        return Made(path, msgspec.json.encode(make(p)), {})
    if route.name == "put_blob":
        return Made(path, f"{p.mark}".encode(), {"content-type": "application/octet-stream"})
    return Made(path, None, {})


def needs_body(route: Route) -> bool:
    return route.body is not None or (route.hidden and route.method == "POST")
