"""`/v1/flows`: what the routes answer, to whom, and what a flow may bring over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Client
from tests.service.minted import mint, tokens

from holdfast import App, Context, Fail, Flow
from holdfast.core.flow import GUARD, HEAD, MAP, QUEUE, Guard, Head
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.spec import JobSpec
from holdfast.service.app import application
from holdfast.service.service import Service
from holdfast.stores import open_store
from holdfast.stores.remote import wire
from holdfast.testing import drain


class Place:
    """A service, and an app that starts flows on its store."""

    def __init__(self, service: Service) -> None:
        self.app = App(service.store.inner)
        self.service = service
        self.broken = True

        @self.app.job(max_attempts=1)
        async def step(ctx: Context, name: str) -> str:
            if name == "bad" and self.broken:
                raise Fail("it is bad")
            return name

        self.step = step

    def client(self, **claims: Any) -> Client:
        token = mint(**{"tid": "acme", "sub": "ann", **claims})
        client = Client(application(self.service, owns_store=False))
        return client.with_headers(authorization=f"Bearer {token}")

    async def start(self, *names: str) -> str:
        flow = Flow("walk")
        before: Any = ()
        for name in names:
            before = flow.add(self.step(name), after=before)
        return (await self.app.tenant("acme").start(flow)).id


@pytest.fixture
async def here() -> AsyncIterator[Place]:
    service = Service(open_store("memory://"), tokens())
    place = Place(service)
    async with place.app:
        yield place
    service.close()


async def test_a_flow_is_listed_shown_and_retried(here: Place) -> None:
    """With its nodes, and the new run names its origin."""
    id = await here.start("one", "bad", "after")
    client = here.client()
    running = (await client.get(f"/v1/flows/{id}")).json
    assert (running["state"], running["total"], running["left"]) == ("running", 3, 3)
    await drain(here.app)

    listed = (await client.get("/v1/flows?state=failed,running&name=walk")).json
    nodes = (await client.get(f"/v1/flows/{id}/nodes?limit=2")).json
    rest = (await client.get(f"/v1/flows/{id}/nodes?after={nodes['after']}")).json
    here.broken = False
    first = await client.post(f"/v1/flows/{id}/retry", {"mode": "failed_only"})
    again = await client.post(f"/v1/flows/{id}/retry", {})
    await drain(here.app)

    assert [flow["id"] for flow in listed["flows"]] == [id]
    assert "it is bad" in listed["flows"][0]["error"]
    assert [node["state"] for node in nodes["nodes"]] == ["completed", "failed"]
    assert rest == {"nodes": [{**rest["nodes"][0], "number": 2, "state": "failed"}]}
    assert (first.status, again.status) == (201, 200)
    assert first.json["retried_as"] == again.json["retried_as"]
    done = (await client.get(f"/v1/flows/{first.json['retried_as']}")).json
    assert (done["state"], done["origin"], done["total"], done["taken"]) == ("completed", id, 2, 1)
    assert (await client.get("/v1/flows?limit=1")).json["cursor"]


@pytest.mark.parametrize("path", ["/v1/flows/{}/cancel", "/v1/jobs/{}/cancel"])
async def test_a_flow_is_canceled(here: Place, path: str) -> None:
    """Also as the job that its id names."""
    id = await here.start("one", "two")
    client = here.client(queues=None)

    answer = await client.post(path.format(id), None)

    assert (answer.status, answer.json["canceled"]) == (200, True)
    assert (await client.get(f"/v1/flows/{id}")).json["state"] == "finishing"
    await drain(here.app)
    assert (await client.get(f"/v1/flows/{id}")).json["state"] == "canceled"


async def test_flows_of_others_are_not_found(here: Place) -> None:
    """P7: nor are jobs that are no flows."""
    id = await here.start("one")
    other = here.client(tid="globex")

    for answer in (
        await other.get(f"/v1/flows/{id}"),
        await other.get(f"/v1/flows/{id}/nodes"),
        await other.post(f"/v1/flows/{id}/cancel", None),
        await other.post(f"/v1/flows/{id}/retry", {}),
        await here.client().get(f"/v1/flows/{id}-0"),
    ):
        assert answer.status == 404
    assert (await other.get("/v1/flows")).json["flows"] == []
    assert (await here.client().get(f"/v1/flows/{id}")).json["state"] == "running"


@pytest.mark.parametrize("narrow", [{"queues": ["default"]}, {"types": ["step"]}], ids=str)
async def test_a_token_for_some_queues_or_types_has_no_flows(
    here: Place, narrow: dict[str, Any]
) -> None:
    """A flow spans them."""
    id = await here.start("one")
    client = here.client(**narrow)

    assert (await client.get("/v1/flows")).status == 403
    assert (await client.get(f"/v1/flows/{id}")).status == 403
    assert (await client.post(f"/v1/flows/{id}/cancel", None)).status == 403


@pytest.mark.parametrize("wrong", [{"queue": QUEUE}, {"type": HEAD}, {"type": "holdfast.x"}])
async def test_reserved_names_are_refused(here: Place, wrong: dict[str, Any]) -> None:
    """Whoever could use them could make a worker do anything."""
    answer = await here.client().post("/v1/jobs", {"type": "step", **wrong})

    assert answer.status == 422
    assert "reserved" in answer.json["detail"]


def brought(type: str, payload: Any, codec: str = "json", queue: str = QUEUE) -> NewJob:
    body = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return NewJob(
        tenant="acme", id="x", queue=queue, envelope=Envelope(type, codec, 1, body), rules=Rules()
    )


def spec(**fields: Any) -> JobSpec:
    own: dict[str, Any] = {"type": "step", "codec": "json", "version": 1, "queue": "q"}
    return JobSpec(body=b"{}", **{**own, **fields})


ITEMS = {"args": {"spec": spec(codec="pickle"), "field": "f", "most": 1}, "refs": {}}
FAR = {"args": {}, "refs": {"a": {"how": "nodes", "nodes": {"flow-x": [[0, 10**9]]}}}}
FAR_MAP = {"args": {"spec": spec(), "field": "f", "most": 1}, "refs": FAR["refs"]}
FAR_LAST = msgspec.structs.replace(spec(codec="refs"), body=msgspec.json.encode(FAR))
FORGED = {
    "a map over a billion nodes": (brought(MAP, FAR_MAP, "refs"), 422),
    "a last job with results of a billion nodes": (
        brought(HEAD, Head(name="x", nodes=1, last=(FAR_LAST,))),
        422,
    ),
    "a head that is none": (brought(HEAD, b"[]"), 422),
    "a head without nodes": (brought(HEAD, Head(name="x", nodes=0)), 422),
    "a head of a billion nodes": (brought(HEAD, Head(name="x", nodes=10**9)), 422),
    "ranges of a billion": (
        brought(HEAD, Head(name="x", nodes=1, taken={"flow-x": [(0, 10**9)]})),
        422,
    ),
    "a last job in pickle": (
        brought(HEAD, Head(name="x", nodes=1, last=(spec(codec="pickle"),))),
        403,
    ),
    "a map in pickle": (brought(MAP, ITEMS, "refs"), 403),
    "a last job that is reserved": (
        brought(HEAD, Head(name="x", nodes=1, last=(spec(type=GUARD),))),
        422,
    ),
    "a guard of a billion": (brought(GUARD, Guard(10**9)), 422),
    "an unknown reserved type": (brought("holdfast.x", {}), 422),
    "a job in the reserved queue": (brought("step", {}), 422),
    "a head in another queue": (brought(HEAD, Head(name="x", nodes=1), queue="q"), 422),
    "results of a billion nodes": (brought("step", FAR, "refs", "q"), 422),
    "results that are none": (brought("step", b"\xff", "refs", "q"), 422),
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_job_of_a_flow_is_refused(here: Place, name: str) -> None:
    """A worker makes other jobs of what it says, so it is checked at the door."""
    job, status = FORGED[name]
    client = here.client()

    answer = await client.call(
        "POST",
        "/v1/store/enqueue",
        wire.encode(wire.NewJobs([job])),
        **{"content-type": wire.MEDIA},
    )

    assert answer.status == status


async def test_a_narrow_token_brings_no_flow(here: Place) -> None:
    """Its jobs would be of other queues, and its arguments results of other jobs."""
    client = here.client(queues=["q", QUEUE])
    refs = {"args": {}, "refs": {"a": {"how": "result", "nodes": {"flow-x": [[0, 0]]}}}}

    for job in (
        brought(HEAD, Head(name="x", nodes=1)),
        brought("step", refs, "refs", "q"),
    ):
        answer = await client.call(
            "POST",
            "/v1/store/enqueue",
            wire.encode(wire.NewJobs([job])),
            **{"content-type": wire.MEDIA},
        )
        assert answer.status == 403
