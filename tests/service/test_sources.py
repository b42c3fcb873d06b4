"""Sources over HTTP and through a remote store: what the routes do, and what cannot be forged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client
from tests.service.minted import bearer
from tests.service.source_calls import source_state

from holdfast.core.job import Envelope, NewJob
from holdfast.core.shadow import ShadowRead, ShadowRow, ShadowStep
from holdfast.core.source import SourcePlan, decode, encode
from holdfast.core.spec import JobSpec
from holdfast.stores.remote import wire

PATH = "/v1/sources/parts"
ITEMS = {"items": [{"id": 1, "version": 1, "body": {"name": "crane"}}, {"id": "two"}]}


@pytest.fixture
async def client(bare: Client) -> Client:
    """Acts for acme, with every right; acme has a source."""
    found = bare.with_headers(authorization=bearer())
    assert (await stepped(found, step("first"))).status == 200
    return found


def step(stamp: str, expect: str = "", **fields: Any) -> ShadowStep:
    own: dict[str, Any] = {"tenant": "acme", "source": "parts", "state": source_state("mail")}
    return ShadowStep(expect=expect, stamp=stamp, **(own | fields))


async def stepped(client: Client, asked: ShadowStep) -> Answer:
    """A step over the wire of the remote store."""
    headers = {"content-type": wire.MEDIA}
    return await client.call("POST", "/v1/store/step", wire.encode(asked), **headers)


# -- what the routes do ----------------------------------------------------------------------------


async def test_items_are_pushed_and_become_jobs(client: Client) -> None:
    """Once: a push that is repeated changes nothing."""
    pushed = await client.post(f"{PATH}/push", ITEMS)
    again = await client.post(f"{PATH}/push", ITEMS)

    assert (pushed.status, pushed.json["created"], again.json["created"]) == (200, 2, 0)
    jobs = (await client.get("/v1/jobs?newest_first=false")).json["jobs"]
    assert [(job["type"], job["queue"]) for job in jobs] == [("mail", "mail")] * 2
    change = (await client.get(f"/v1/jobs/{jobs[0]['id']}")).json["payload"]["change"]
    assert (change["kind"], change["id"], change["body"]) == ("created", "1", {"name": "crane"})


async def test_a_source_is_listed_and_shown_with_its_shadow(client: Client) -> None:
    """By pages."""
    await client.post(f"{PATH}/push", ITEMS)

    assert [one["name"] for one in (await client.get("/v1/sources")).json["sources"]] == ["parts"]
    shown = (await client.get(PATH)).json
    assert (shown["objects"], shown["state"], shown["totals"]["created"]) == (2, "ok", 2)
    first = (await client.get(f"{PATH}/objects?limit=1")).json
    rest = (await client.get(f"{PATH}/objects?limit=5&after={first['cursor']}")).json
    assert [one["id"] for one in (*first["objects"], *rest["objects"])] == ["1", "two"]
    assert "cursor" not in rest


async def test_a_source_is_paused_resumed_reset_and_deleted(client: Client) -> None:
    """Its author is the caller."""
    paused = await client.post(f"{PATH}/pause", {"reason": "they migrate"})
    assert (paused.json["state"], paused.json["paused"]["reason"]) == ("paused", "they migrate")
    assert (await client.post(f"{PATH}/resume")).json["state"] == "new"
    assert (await client.post(f"{PATH}/reset")).status == 200
    await client.post(f"{PATH}/push", ITEMS)

    assert (await client.delete(PATH)).json == {"objects": 2}
    assert (await client.get(PATH)).status == 404


async def test_a_poll_and_a_listing_can_be_asked_for(client: Client) -> None:
    """The second request answers with the poll that waits."""
    first = await client.post(f"{PATH}/poll")
    again = await client.post(f"{PATH}/reconcile", {"any_share": True})

    assert (first.status, again.status, again.json["id"]) == (201, 200, first.json["id"])


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([{"id": ""}], "items"),
        ([{"id": 1, "body": {"x": "y" * 70_000}}], ""),
        ([{"id": 1, "more": 2}], "items"),
        ([{"id": 1}] * 1001, "items"),
    ],
)
async def test_items_that_cannot_be_kept_are_refused(
    client: Client, items: list[Any], field: str
) -> None:
    """P19: and nothing of the page is stored."""
    answer = await client.post(f"{PATH}/push", {"items": items})

    assert answer.status in (413, 422)
    assert field in answer.json.get("field", "")
    assert (await client.get(PATH)).json["objects"] == 0


# -- rights ----------------------------------------------------------------------------------------


async def test_another_tenant_finds_no_source(bare: Client, client: Client) -> None:
    """P7: the same answer as for one that is not there."""
    other = bare.with_headers(authorization=bearer(tid="globex"))

    assert (await other.get("/v1/sources")).json == {"sources": []}
    assert (await other.get(PATH)).status == 404
    assert (await other.post(f"{PATH}/push", ITEMS)).status == 404
    assert (await stepped(other, step("x", "first"))).status == 403


@pytest.mark.parametrize("part", [{"queues": ["mail"]}, {"types": ["mail"]}])
async def test_a_token_for_some_queues_or_types_has_no_sources(
    bare: Client, client: Client, part: dict[str, Any]
) -> None:
    """P19: what a source makes may be of any queue and type."""
    token = bare.with_headers(authorization=bearer(**part))
    read = wire.encode(ShadowRead(tenant="acme"))
    packed = await token.call("POST", "/v1/store/shadow", read, **{"content-type": wire.MEDIA})

    assert packed.status == 403
    assert (await stepped(token, step("x", "first"))).status == 403
    assert (await token.get("/v1/sources")).status == 403
    assert (await token.post(f"{PATH}/push", ITEMS)).status == 403


def forged(**job: Any) -> bytes:
    """The state of a source whose polls are something else."""
    state = decode("parts", source_state("mail"))
    poll = msgspec.structs.replace(state.plan.poll, **job)
    plan: SourcePlan = msgspec.structs.replace(state.plan, poll=poll)
    return encode(msgspec.structs.replace(state, plan=plan))


@pytest.mark.parametrize(
    "state",
    [
        b"{}",
        b"\xff",
        forged(codec="pickle"),
        forged(codec="refs"),
        forged(type="holdfast.tick"),
        forged(queue="holdfast.ticks"),
    ],
)
async def test_a_forged_state_is_refused(client: Client, state: bytes) -> None:
    """P19: the service and workers make jobs of what a state says."""
    answer = await stepped(client, step("second", "first", state=state))

    assert answer.status == 422
    assert (await client.get(PATH)).json["state"] == "new"


@pytest.mark.parametrize(
    "row",
    [
        ShadowRow("1", "#x", 1, 1),
        ShadowRow("1", "7", 1, 1),
        ShadowRow("1", "~abc", 1, 1),
        ShadowRow("1", "=1", 1, 1, body=b"{"),
        ShadowRow("1", "=1", 1, 1, body=b"[" * 1000 + b"]" * 1000),
    ],
)
async def test_a_row_that_the_library_could_not_have_made_is_refused(
    client: Client, row: ShadowRow
) -> None:
    """P19: others read its version as a number and its body as JSON."""
    assert (await stepped(client, step("second", "first", put=(row,)))).status == 422
    assert (await client.get(f"{PATH}/objects")).json == {"objects": []}


async def test_a_step_cannot_bring_jobs_that_an_enqueue_could_not(client: Client) -> None:
    """P19: of another tenant, of the library, or pickled; and its rows are not stored."""
    row = ShadowRow("1", "=1", 1, 1)
    spec = JobSpec(type="mail", codec="json", version=1, body=b"{}", queue="mail")
    for changes in (
        {"tenant": "globex"},
        {"queue": "holdfast.ticks"},
        {"envelope": Envelope("mail", "pickle", 1, b"cos\nsystem\n.")},
        {"envelope": Envelope("mail", "json", 1, b"{")},
    ):
        job: NewJob = msgspec.structs.replace(spec.job("acme", "a"), **changes)
        answer = await stepped(client, step("second", "first", put=(row,), jobs=(job,)))
        assert answer.status in (403, 422), changes
    assert (await client.get(PATH)).json["objects"] == 0
