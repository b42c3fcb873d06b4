"""`POST /v1/flows`: a client in any language starts the flow that the library would start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.service.asgi import Answer, Client
from tests.service.minted import mint, tokens

from holdfast import App, Context, Fail
from holdfast.core import bounds
from holdfast.core.job import State
from holdfast.core.scope import Scope
from holdfast.scopes import ScopeHandle
from holdfast.service.app import application
from holdfast.service.service import Service
from holdfast.service.settings import Limits
from holdfast.store import Find, Selection
from holdfast.stores import open_store
from holdfast.testing import drain

A, B, C = ({"name": name, "type": "add", "args": {"x": 1}} for name in "abc")
CYCLE = [{**A, "after": ["c"]}, {**B, "after": ["a"]}, {**C, "after": ["b"]}]


class Place:
    """A service over a store of its own, and an app that runs what is started there."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.service = Service(open_store("memory://"), tokens(), limits)
        self.app = App(self.service.store.inner)
        self.done: list[str] = []

        @self.app.job(queue="crawl")
        async def crawl(ctx: Context, site: str) -> list[str]:
            return [f"{site}/{number}" for number in range(3)]

        @self.app.job
        async def parse(ctx: Context, page: str) -> int:
            return len(page)

        @self.app.job
        async def add(ctx: Context, x: int, y: list[int] | None = None) -> int:
            return x + sum(y or [])

        @self.app.job
        async def drop(ctx: Context, pages: list[str]) -> None:
            self.done.append(f"dropped {len(pages)}")

        @self.app.job(max_attempts=1)
        async def breaks(ctx: Context) -> None:
            raise Fail("it breaks")

        @self.app.job
        async def notify(ctx: Context) -> None:
            self.done.append("notified")

    def client(self, **claims: Any) -> Client:
        token = mint(**{"tid": "acme", "sub": "ann", **claims})
        client = Client(application(self.service, owns_store=False))
        return client.with_headers(authorization=f"Bearer {token}")

    async def start(self, *nodes: Any, **fields: Any) -> Answer:
        return await self.client().post("/v1/flows", {"name": "x", "nodes": nodes, **fields})

    async def jobs(self) -> int:
        page = await self.service.store.find(Find(select=Selection(tenant="acme"), limit=1000))
        return len(page.jobs)


@pytest.fixture
async def here() -> AsyncIterator[Place]:
    place = Place()
    async with place.app:
        yield place
    place.service.close()


async def test_a_flow_in_json_runs_as_one_of_the_library(here: Place) -> None:
    """P17: with results, a map, a compensation and a last job, its nodes in any order."""
    report = {"name": "report", "type": "add", "args": {"x": 1, "y": {"$results": "parsed"}}}
    parsed = {"name": "parsed", "type": "parse", "map": {"over": "pages", "item": "page"}}
    pages = {"name": "pages", "type": "crawl", "args": {"site": "a"}}
    both = {"name": "both", "type": "add", "args": {"x": 0, "y": {"$results": ["report", "one"]}}}
    one = {"name": "one", "type": "add", "args": {"x": {"$result": "report"}}, "after": ["pages"]}
    undo = {"type": "drop", "args": {"pages": {"$result": "pages"}}}

    answer = await here.start(
        both, one, report, parsed, {**pages, "undo": undo}, **{"finally": [{"type": "notify"}]}
    )
    await drain(here.app)

    assert (answer.status, answer.json["created"]) == (201, True)
    flow = (await here.client().get(f"/v1/flows/{answer.json['id']}")).json
    assert (flow["state"], flow["total"]) == ("completed", 5)
    nodes = (await here.client().get(f"/v1/flows/{flow['id']}/nodes")).json["nodes"]
    last = (await here.client().get(f"/v1/jobs/{nodes[-1]['id']}")).json
    assert (nodes[-1]["type"], last["result"]) == ("add", 20)
    assert here.done == ["notified"]


async def test_what_undoes_a_node_gets_its_result(here: Place) -> None:
    """When a later node has failed."""
    undo = {"type": "drop", "args": {"pages": {"$result": "pages"}}}
    pages = {"name": "pages", "type": "crawl", "args": {"site": "a"}, "undo": undo}

    answer = await here.start(pages, {"name": "bad", "type": "breaks", "after": ["pages"]})
    await drain(here.app)

    flow = (await here.client().get(f"/v1/flows/{answer.json['id']}")).json
    assert (flow["state"], here.done) == ("failed", ["dropped 3"])


async def test_types_without_code_make_a_flow(here: Place) -> None:
    """The service knows no arguments; their bytes are stored as they came."""
    node = {"name": "a", "type": "of.others", "args": {"n": 1.50}, "queue": "q", "priority": 3}
    each = {"name": "b", "type": "too", "map": {"over": "a", "item": "one", "most": 5}}
    options = {"max_attempts": 9, "group": "g", "tags": ["t"], "delay": 60, "ttl": 600}

    answer = await here.start({**node, **options}, {**each, "queue": "q", "priority": 2})

    assert answer.json["unknown_types"] == ["of.others", "too"]
    job = (await here.client().get(f"/v1/jobs/{answer.json['id']}-0")).json
    assert (job["type"], job["queue"], job["priority"]) == ("of.others", "q", 3)
    assert (job["payload"], job["state"], job["max_attempts"]) == ({"n": 1.5}, "scheduled", 9)
    assert (job["group"], job["tags"]) == ("g", ["t"])
    made = (await here.client().get(f"/v1/jobs/{answer.json['id']}-1")).json["payload"]["args"]
    assert (made["spec"]["queue"], made["field"], made["most"]) == ("q", "one", 5)


@pytest.mark.parametrize("way", ["body", "header"])
async def test_a_start_with_a_key_is_safe_to_repeat(here: Place, way: str) -> None:
    """The second answer is 200 with the same id."""
    body: dict[str, Any] = {"name": "x", "nodes": [A, {**B, "after": ["a"]}]}
    client = here.client()
    if way == "body":
        body["key"] = "k"
    else:
        client = client.with_headers(**{"idempotency-key": "k"})

    first = await client.post("/v1/flows", body)
    jobs = await here.jobs()
    again = await client.post("/v1/flows", body)

    assert (first.status, again.status) == (201, 200)
    assert again.json == {"id": first.json["id"], "created": False}
    assert await here.jobs() == jobs


async def test_a_flow_of_several_calls_is_whole(here: Place) -> None:
    """More nodes than one call of the store takes."""
    nodes = [{"name": f"n{n}", "type": "add", "args": {"x": n}} for n in range(1500)]

    answer = await here.start(*nodes, {"name": "end", "type": "notify", "after": ["n7", "n1499"]})

    flow = (await here.client().get(f"/v1/flows/{answer.json['id']}")).json
    assert (answer.status, flow["total"], flow["state"]) == (201, 1501, "running")


WRONG: dict[str, tuple[list[Any], dict[str, Any], str, str]] = {
    "no nodes": ([], {}, "nodes", "length >= 1"),
    "a cycle": (CYCLE, {}, "flow", "has a cycle: a -> b -> c -> a"),
    "a node after itself": ([{**A, "after": ["a"]}], {}, "flow", "a cycle: a -> a"),
    "a cycle by a result": (
        [{**A, "args": {"x": {"$result": "b"}}}, {**B, "after": ["a"]}],
        {},
        "flow",
        "has a cycle: a -> b -> a",
    ),
    "an unknown node": (
        [{**A, "name": "pages"}, {**B, "after": ["pagse"]}],
        {},
        "node b: after",
        "the flow has no node 'pagse'. Did you mean 'pages'?",
    ),
    "a result of no node": (
        [{**A, "args": {"x": {"$result": "z"}}}],
        {},
        "node a: args.x",
        "no node 'z'",
    ),
    "a map over no node": (
        [{"name": "m", "type": "parse", "map": {"over": "z", "item": "page"}}],
        {},
        "node m: map.over",
        "no node 'z'",
    ),
    "two of a name": ([A, A], {}, "node a: name", "another node has it"),
    "an unknown option": ([{**A, "queu": "q"}], {}, "nodes[0].queu", "there is no such field"),
    "an unknown field": ([A], {"keys": 1}, "keys", "there is no such field. Did you mean 'key'?"),
    "an unknown condition": ([{**A, "on_failure": "no"}], {}, "nodes[0].on_failure", "'no'"),
    "an id": ([{**A, "id": "x"}], {}, "nodes[0].id", "there is no such field"),
    "a nested result": (
        [A, {**B, "args": {"x": [{"$result": "a"}]}}],
        {},
        "node b: args.x",
        "can only be the one key of a whole argument",
    ),
    "a result beside others": (
        [A, {**B, "args": {"x": {"$result": "a", "y": 1}}}],
        {},
        "node b: args.x",
        "the one key",
    ),
    "a result of a number": (
        [{**A, "args": {"x": {"$result": 1}}}],
        {},
        "node a: args.x",
        "must be the name of a node",
    ),
    "results of nothing": (
        [{**A, "args": {"x": {"$results": []}}}],
        {},
        "node a: args.x",
        "a list of names",
    ),
    "results of no map": (
        [A, {**B, "args": {"x": {"$results": "a"}}}],
        {},
        "node b: args.x",
        "'a' is no map; write '$result'",
    ),
    "a map that runs all the same": (
        [A, {**B, "args": {}, "map": {"over": "a", "item": "x"}, "on_failure": "run"}],
        {},
        "node b: on_failure",
        "without a list there is nothing to run",
    ),
    "a map with arguments": (
        [A, {**B, "map": {"over": "a", "item": "x"}}],
        {},
        "node b: args",
        "get only the item",
    ),
    "a map with a key": (
        [A, {**B, "args": {}, "key": "k", "map": {"over": "a", "item": "x"}}],
        {},
        "node b: key",
        "is not for the jobs of a map",
    ),
    "a reserved type": ([{**A, "type": "holdfast.flow"}], {}, "node a: type", "reserved"),
    "a reserved queue": ([{**A, "queue": "holdfast.ticks"}], {}, "node a: queue", "reserved"),
    "a reserved last job": (
        [A],
        {"finally": [{"type": "holdfast.guard"}]},
        "node finally[0]: type",
        "reserved",
    ),
    "a compensation with a key": (
        [{**A, "undo": {"type": "drop", "key": "k"}}],
        {},
        "nodes[0].undo.key",
        "there is no such field",
    ),
    "two times": (
        [{**A, "delay": 1, "run_at": "2030-01-01T00:00:00Z"}],
        {},
        "node a: delay",
        "not both",
    ),
    "a retry policy that is none": ([{**A, "retry": "often"}], {}, "node a: retry", "often"),
    "a tag of schedules": ([{**A, "tags": ["schedule:x"]}], {}, "node a: tags", "schedules"),
    "too many last jobs": ([A], {"finally": [{"type": "notify"}] * 21}, "finally", "<= 20"),
    "an argument that is too deep": (
        [{**A, "args": {"x": eval("[" * 150 + "]" * 150)}}],
        {},
        "node a: args.x",
        "nested",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_is_named_and_nothing_is_made(here: Place, name: str) -> None:
    """The field and the node."""
    nodes, fields, field, why = WRONG[name]

    answer = await here.start(*nodes, **fields)

    assert (answer.status, answer.json["field"]) == (422, field), answer.json
    assert why in answer.json["detail"]
    assert await here.jobs() == 0


async def test_an_argument_that_is_too_large_is_named(here: Place) -> None:
    """P15: by the limit of a payload."""
    answer = await here.start(A, {**B, "args": {"x": "x" * (256 * 1024)}})

    assert (answer.status, answer.json["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert answer.json["field"] == "node b: args.x"
    assert await here.jobs() == 0


async def test_too_many_nodes_are_refused(here: Place) -> None:
    """P15."""
    nodes = [{"name": str(n), "type": "add"} for n in range(bounds.FLOW_NODES_MAX + 1)]

    answer = await here.start(*nodes)

    assert (answer.status, answer.json["field"]) == (422, "nodes")


@pytest.mark.parametrize("where", ["after", "args", "finally"])
async def test_too_many_edges_are_refused(
    here: Place, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P15: however they are written, also as one node named often."""
    monkeypatch.setattr("holdfast.workflow.written.FLOW_EDGES_MAX", 5)
    many = ["a"] * 6
    told: dict[str, Any] = {"args": {"x": {"$results": many}}}

    answer = await {
        "after": lambda: here.start(A, {**B, "after": many}),
        "args": lambda: here.start(A, {**B, **told}),
        "finally": lambda: here.start(A, **{"finally": [{"type": "drop", **told}]}),
    }[where]()

    assert answer.status == 422
    assert "the flow has more than 5 edges" in answer.json["detail"]


async def test_a_full_tenant_is_told_to_come_later(here: Place) -> None:
    """P19: as an enqueue is, and no node is left."""
    await ScopeHandle(here.service.store, Scope("acme")).set(max_queued=2)

    answer = await here.start(A, B, C)

    assert (answer.status, answer.json["code"]) == (429, "QUEUE_FULL")
    page = await here.service.store.find(
        Find(select=Selection(tenant="acme", states=(State.ENQUEUED, State.WAITING)), limit=10)
    )
    assert page.jobs == []


async def test_a_key_that_is_held_refuses_the_flow(here: Place) -> None:
    """An earlier job is no node."""
    await here.client().post("/v1/jobs", {"type": "add", "key": "k", "payload": {"x": 1}})

    answer = await here.start(A, {**B, "key": "k"})

    assert (answer.status, answer.json["code"]) == (409, "FLOW_REFUSED")
    assert "b: its key 'k' is held" in answer.json["detail"]
    assert await here.jobs() == 1


@pytest.mark.parametrize(
    "claims", [{"queues": ["default"]}, {"types": ["add"]}, {"scope": "holdfast.read"}], ids=str
)
async def test_only_who_may_enqueue_anywhere_starts_a_flow(
    here: Place, claims: dict[str, Any]
) -> None:
    """A flow has jobs of many queues and types."""
    answer = await here.client(**claims).post("/v1/flows", {"name": "x", "nodes": [A]})

    assert answer.status == 403
    assert await here.jobs() == 0


async def test_a_large_flow_counts_as_so_many_batches() -> None:
    """P19: a tenant does not get around its rate by flows."""
    place = Place(Limits(rate_per_s=0.001, burst=5))
    nodes = [{"name": str(n), "type": "add"} for n in range(4 * bounds.BATCH_MAX)]
    async with place.app:
        first = await place.start(*nodes)
        second = await place.start(A)
    place.service.close()

    assert (first.status, second.status) == (201, 429)
