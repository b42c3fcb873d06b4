"""Requests as an honest client would send them, for every route; `attack.py` spoils them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import uuid_utils

from holdfast.core.clock import SECOND
from holdfast.core.job import Envelope, NewJob, Rules, State
from holdfast.core.lifecycle import Transition
from holdfast.core.retry import Backoff, RetryPolicy
from holdfast.core.scope import TENANT_KINDS, Scope, ScopeKind, ScopeSettings, encode
from holdfast.service.firecrawl.routes import LINES
from holdfast.service.routes import ROUTES
from holdfast.store import Act, Change, Claim, Extension, Find, Put, Ref, Selection, Take, Watch
from holdfast.stores.remote import wire

LEASE_US = 5 * SECOND


class Request(NamedTuple):
    """One call; `packed` bodies travel as msgpack, others as JSON."""

    method: str
    path: str
    query: dict[str, Any]
    body: Any
    packed: bool = False


class Memory:
    """What an attacker knows: its tenant, and ids, tokens and keys that are real."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.made = [str(uuid_utils.uuid7()) for _ in range(40)]
        """Ids as our own library makes them, used again and again."""
        self.ids: list[str] = ["j0", "innocent"]
        self.leases: list[tuple[str, str]] = [("j0", "nonce.1")]
        self.keys: list[str] = ["x"]

    def learn(self, value: Any) -> None:
        """Picks ids and tokens out of an answer."""
        if isinstance(value, list):
            for one in value[:20]:
                self.learn(one)
        if not isinstance(value, dict):
            return
        job, token = value.get("job"), value.get("token")
        if isinstance(job, dict) and isinstance(token, str):
            self._keep(self.leases, (str(job.get("id")), token))
        if isinstance(value.get("queueKey"), str):
            self._keep(self.keys, value["queueKey"])
        if isinstance(value.get("id"), str):
            self._keep(self.ids, value["id"])
        for inner in value.values():
            if isinstance(inner, dict | list):
                self.learn(inner)

    def _keep(self, known: list[Any], one: Any) -> None:
        known.append(one)
        del known[:-50]


Maker = Callable[[random.Random, Memory], Any]


def _some(rng: random.Random, *words: str) -> str:
    return rng.choice(words)


def _id(rng: random.Random, memory: Memory) -> str:
    return rng.choice(memory.ids) if rng.random() < 0.7 else f"j{rng.randrange(200)}"


def _queue(rng: random.Random) -> str:
    return f"q{rng.randrange(20)}"


def _job(rng: random.Random, memory: Memory) -> dict[str, Any]:
    job: dict[str, Any] = {"type": _some(rng, "send", "noop"), "payload": {"to": "a", "n": [1, 2]}}
    more: dict[str, Any] = {
        "id": f"j{rng.randrange(200)}",
        "queue": _queue(rng),
        "priority": rng.randrange(-3, 4),
        "delay": rng.choice((0, 0.5, 30)),
        "key": f"k{rng.randrange(20)}",
        "key_for": 60,
        "group": f"g{rng.randrange(10)}",
        "ttl": rng.choice((1, 60)),
        "tags": ["a", "b"],
        "max_attempts": rng.choice((1, 3)),
        "retry": {"kind": "list", "delays_s": [0.1, 1]},
        "timeout": 5,
        "keep": rng.choice((0, 60)),
        "keep_failed": 60,
        "run_at": "2030-01-01T00:00:00Z",
    }
    for name in rng.sample(list(more), rng.randrange(6)):
        job[name] = more[name]
    return job


def _ack(rng: random.Random, memory: Memory) -> dict[str, Any]:
    id, token = rng.choice(memory.leases)
    ack: dict[str, Any] = {"id": id, "token": token}
    ack["outcome"] = _some(rng, "complete", "fail", "release", "snooze")
    if ack["outcome"] == "complete":
        ack["result"] = {"ok": True}
    if ack["outcome"] in ("fail", "snooze"):
        ack |= {"error": "no"} if ack["outcome"] == "fail" else {"after": 0.5}
    return ack


def _extend(rng: random.Random, memory: Memory) -> dict[str, Any]:
    id, token = rng.choice(memory.leases)
    return {"id": id, "token": token, "lease": 5, "progress": "half"}


def _claim(rng: random.Random, memory: Memory) -> dict[str, Any]:
    claim: dict[str, Any] = {"worker": "w", "limit": rng.choice((1, 5)), "lease": 3}
    claim |= {"queues": [_queue(rng)]} if rng.random() < 0.3 else {}
    return claim | ({"wait": 0.2} if rng.random() < 0.2 else {})


BODIES: dict[str, Maker] = {
    "enqueue": _job,
    "enqueue_many": lambda rng, memory: {"jobs": [_job(rng, memory) for _ in range(5)]},
    "claim": _claim,
    "ack": lambda rng, memory: {"acks": [_ack(rng, memory), _ack(rng, memory)]},
    "extend": lambda rng, memory: {"leases": [_extend(rng, memory)]},
    "pause_tenant": lambda rng, memory: {"reason": "because"},
    "pause_part": lambda rng, memory: {"reason": "because"},
    "change_tenant_scope": lambda rng, memory: {"max_running": 50, "rate": "500/s"},
    "change_part_scope": lambda rng, memory: {"max_running": 9, "groups": {"max_running": 2}},
    "push_tenant_slot": lambda rng, memory: {"seconds": 2, "note": "n"},
    "push_part_slot": lambda rng, memory: {"seconds": 2},
}
"""By the name of the route in the native API."""
QUERIES: dict[str, dict[str, Any]] = {
    "find": {"state": "enqueued", "queue": "q1", "limit": 10, "after": "1", "tag": "a"},
    "dead": {"limit": 10, "reason": "MAX_ATTEMPTS"},
    "replay_dead": {"limit": 5},
    "purge_dead": {"limit": 5},
    "events": {"after": 0, "limit": 20},
    "follow": {"after": 0},
    "result": {"wait": 0.1},
    "groups": {"limit": 5, "after": "g"},
    "load": {"queue": "q1"},
}


JOURNEY = frozenset({"enqueue", "enqueue_many", "claim", "ack", "extend"})
"""Most calls are of these: only what is stored can do harm later."""
_NATIVE = [one for one in ROUTES if not one.hidden]
_OFTEN = [one for one in _NATIVE if one.name in JOURNEY]


def native(rng: random.Random, memory: Memory) -> Request:
    """A call of the native API."""
    route = rng.choice(_OFTEN if rng.random() < 0.5 else _NATIVE)
    path = route.path
    names = {
        "{id}": _id(rng, memory),
        "{kind}": _some(rng, "queue", "group"),
        "{name}": _queue(rng),
        "{slot}": "s1",
    }
    for place, name in names.items():
        path = path.replace(place, name)
    body = BODIES[route.name](rng, memory) if route.name in BODIES else None
    query = QUERIES.get(route.name, {})
    return Request(route.method, path, {k: v for k, v in query.items() if rng.random() < 0.5}, body)


# -- the store's verbs -----------------------------------------------------------------------------


def _new(rng: random.Random, memory: Memory) -> NewJob:
    rules = Rules(
        max_attempts=rng.choice((1, 3)),
        retry=RetryPolicy(kind=Backoff.LIST, delays_s=(0.1, 2.0)),
        keep_us=rng.choice((0, 60 * SECOND)),
    )
    if rng.random() < 0.5:  # As most are: nothing but an id and a payload.
        envelope, id = Envelope("send", "json", 1, b'{"to": "a"}'), rng.choice(memory.made)
        return NewJob(
            tenant=memory.tenant, id=id, queue="q1", envelope=envelope, rules=Rules(), fresh=True
        )
    return NewJob(
        tenant=memory.tenant,
        id=rng.choice((f"s{rng.randrange(200)}", rng.choice(memory.made))),
        queue=_queue(rng),
        envelope=Envelope("send", "json", 1, b'{"to": "a"}'),
        rules=rules,
        key=rng.choice((None, f"k{rng.randrange(9)}")),
        group=rng.choice((None, f"g{rng.randrange(9)}")),
        fresh=rng.random() < 0.5,
    )


def _transition(rng: random.Random, memory: Memory) -> Transition:
    id, token = rng.choice(memory.leases)
    to = rng.choice((State.COMPLETED, State.FAILED, State.RETRYING, State.ENQUEUED))
    return Transition(
        tenant=memory.tenant, id=id, token=token, to=to, result=b'{"a": 1}', error="no"
    )


def _verbs(rng: random.Random, memory: Memory) -> dict[str, Any]:
    id, token = rng.choice(memory.leases)
    scope = Scope(memory.tenant, ScopeKind.QUEUE, _queue(rng))
    select = Selection(tenant=memory.tenant, queues=(_queue(rng),))
    value = encode(ScopeSettings(max_running=5))
    nonce = f"n{rng.randrange(50)}"
    return {
        "enqueue": [_new(rng, memory) for _ in range(rng.choice((1, 3)))],
        "claim": Claim(
            worker="w", nonce=nonce, limit=3, lease_us=LEASE_US, tenants=(memory.tenant,)
        ),
        "extend": [Extension(tenant=memory.tenant, id=id, token=token, lease_us=LEASE_US)],
        "ack": [_transition(rng, memory)],
        "cancel": [Ref(memory.tenant, _id(rng, memory))],
        "change": Change(select=select, act=rng.choice(list(Act)), limit=5),
        "find": Find(select=select, limit=10),
        "count": wire.Counting(tenant=memory.tenant, by=rng.choice(TENANT_KINDS), limit=10),
        "explain": Ref(memory.tenant, _id(rng, memory)),
        "events": wire.Reading(tenant=memory.tenant, after=0, limit=20),
        "settings": wire.Under(scope.name),
        "put": wire.Puts([Put(scope.name, value, rng.choice((0, 1, 2)))]),
        "holds": wire.Under("worker/"),
        "hold": wire.Takes([Take(scope.slot("s"), "w", 2 * SECOND, "n")]),
        "wait": wire.Sleep(Watch(tenants=(memory.tenant,)), 0.1),
        "watch": wire.Sleep(Watch(job=Ref(memory.tenant, id)), 0.1),
        "lapse": [_transition(rng, memory)],
        "expired": wire.Limit(5),
        "prune": wire.Pruning(5, 0),
        "recount": wire.Counting(tenant=None),
    }


def stored(rng: random.Random, memory: Memory) -> Request:
    """A call of the store's own verbs."""
    verbs = _verbs(rng, memory)
    name = rng.choice(sorted(JOURNEY & verbs.keys() if rng.random() < 0.5 else verbs.keys()))
    value = verbs[name]
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return Request("POST", f"{wire.PATH}/{name}", {}, plain, packed=True)


# -- the Firecrawl wire ----------------------------------------------------------------------------


def _push(rng: random.Random, memory: Memory) -> dict[str, Any]:
    job = {"id": f"f{rng.randrange(99)}", "data": {"url": "x"}, "priority": 1, "listenable": False}
    crawl = rng.choice((None, "c1", "c2"))
    return {
        "teamId": memory.tenant,
        "job": job,
        "timeout": rng.choice((1000, 60_000)),
        "crawlId": crawl,
    }


FIRECRAWL: dict[str, Maker] = {
    "/queue/push": _push,
    "/queue/pop/{team}": lambda rng, memory: {"workerId": "w", "blockedCrawlIds": ["c2"]},
    "/queue/complete": lambda rng, memory: {"queueKey": rng.choice(memory.keys)},
    "/queue/release": lambda rng, memory: {"jobId": f"f{rng.randrange(99)}"},
    "/active/push": lambda rng, memory: {"teamId": memory.tenant, "jobId": "f1", "timeout": 1000},
    "/active/remove": lambda rng, memory: {"teamId": memory.tenant, "jobId": "f1"},
    "/active/crawl/push": lambda rng, memory: {"crawlId": "c1", "jobId": "f1", "timeout": 1000},
    "/active/crawl/remove": lambda rng, memory: {"crawlId": "c1", "jobId": "f1"},
}


def firecrawl(rng: random.Random, memory: Memory) -> Request:
    """A call of the Firecrawl wire."""
    line = rng.choice(LINES)
    body = FIRECRAWL[line.path](rng, memory) if line.path in FIRECRAWL else None
    path = line.path.replace("{team}", memory.tenant).replace("{crawl}", "c1")
    return Request(line.method, path, {}, body)


FAMILIES = (native, native, stored, stored, firecrawl)
