"""Bad input: a clear refusal that names what was wrong, never a fault, and nothing stored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.asgi import Client

DEEP = b'{"type":"mail","payload":' + b"[" * 5000 + b"]" * 5000 + b"}"
BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "MALFORMED_BODY"),
    "no JSON": (b"{", 400, "MALFORMED_BODY"),
    "NaN": (b'{"type":"mail","delay":NaN}', 400, "MALFORMED_BODY"),
    "invalid UTF-8": (b'{"type":"mail","payload":"\xff"}', 400, "MALFORMED_BODY"),
    "deep nesting": (DEEP, 400, "MALFORMED_BODY"),
    "no object": (b"[]", 422, "INVALID_INPUT"),
    "no type": (b"{}", 422, "INVALID_INPUT"),
    "unknown field": (b'{"type":"mail","paylod":1}', 422, "INVALID_INPUT"),
    "wrong type": (b'{"type":5}', 422, "INVALID_INPUT"),
    "empty type": (b'{"type":""}', 422, "INVALID_INPUT"),
    "huge integer": (b'{"type":"mail","priority":99999999999999999999999}', 422, "INVALID_INPUT"),
    "huge number": (b'{"type":"mail","delay":1e400}', 422, "INVALID_INPUT"),
    "long delay": (b'{"type":"mail","delay":1e300}', 422, "INVALID_INPUT"),
    "negative delay": (b'{"type":"mail","delay":-1}', 422, "INVALID_INPUT"),
    "no zone": (b'{"type":"mail","run_at":"2026-01-01T00:00:00"}', 422, "INVALID_INPUT"),
    "two times": (
        b'{"type":"mail","delay":1,"run_at":"2026-01-01T00:00:00Z"}',
        422,
        "INVALID_INPUT",
    ),
    "null character": (b'{"type":"mail","id":"a\\u0000b"}', 422, "INVALID_INPUT"),
    "bad base64": (b'{"type":"mail","payload_base64":"?"}', 422, "INVALID_INPUT"),
    "two payloads": (b'{"type":"mail","payload":1,"payload_base64":""}', 422, "INVALID_INPUT"),
    "no such policy": (b'{"type":"mail","retry":"never"}', 422, "INVALID_CONFIG"),
    "large payload": (
        b'{"type":"mail","payload":"' + b"x" * 300_000 + b'"}',
        413,
        "PAYLOAD_TOO_LARGE",
    ),
    "large body": (b" " * (8 * 1024 * 1024 + 1), 413, "BODY_TOO_LARGE"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_bad_enqueue_is_refused_and_stores_nothing(name: str, client: Client) -> None:
    """In the one shape of all refusals."""
    body, status, code = BODIES[name]

    answer = await client.post("/v1/jobs", body)

    assert (answer.status, answer.json["code"]) == (status, code), answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["request_id"] == answer.headers["x-request-id"]
    assert (await client.get("/v1/jobs")).json["jobs"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"jobs": [{"type": "mail"}, {"type": "mail", "delay": -1}]}, "jobs[1].delay"),
        ({"jobs": [{"type": "mail", "tags": [""]}]}, "jobs[0].tags[0]"),
        ({"jobs": []}, "jobs"),
        ({"job": []}, "job"),
        ({"jobs": [{"type": "mail"}] * 1001}, "jobs"),
        ({"jobs": [{"type": "mail", "id": " padded "}]}, "jobs[0].id"),
    ],
)
async def test_a_bad_batch_names_the_field(body: Any, field: str, client: Client) -> None:
    """By its place in the call; no item of it is stored."""
    answer = await client.post("/v1/jobs/batch", body)

    assert answer.status == 422
    assert field in (answer.json["field"], answer.json["detail"].partition(":")[0])
    assert (await client.get("/v1/jobs")).json["jobs"] == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs?cursor=x", "cursor"),
        ("/v1/jobs?cursor=99999999999999999999", "cursor"),
        ("/v1/jobs?cursor=%EF%BC%91", "cursor"),
        ("/v1/jobs?limit=0", "limit"),
        ("/v1/jobs?limit=x", "limit"),
        ("/v1/jobs?state=asleep", "state"),
        ("/v1/jobs?colour=red", "colour"),
        ("/v1/jobs?limit=1&limit=2", "limit"),
        ("/v1/jobs?queue=a%00b", "queue"),
        ("/v1/jobs?created_from=yesterday", "created_from"),
        ("/v1/events?after=-2", "after"),
        ("/v1/events?after=99999999999999999999999", "after"),
        ("/v1/jobs/a/result?wait=31", "wait"),
        ("/v1/load?at_most=0", "at_most"),
    ],
)
async def test_a_bad_query_names_the_field(path: str, field: str, client: Client) -> None:
    """Lists of names, numbers and cursors alike."""
    answer = await client.get(path)

    assert (answer.status, answer.json["code"]) == (422, "INVALID_INPUT"), answer
    assert field in answer.json["field"]


@pytest.mark.parametrize("path", ["/v1/jobs/%FF", "/v1/jobs/%00", "/v1/jobs/a%00b/result"])
async def test_a_path_that_is_no_text_is_refused(path: str, client: Client) -> None:
    """Before it reaches a store."""
    assert (await client.get(path)).status == 400


async def test_routing_refuses_in_the_same_shape(client: Client) -> None:
    """No such path, no such method, no such scope."""
    nowhere = await client.get("/v1/nothing")
    wrong = await client.delete("/v1/jobs")
    scope = await client.get("/v1/scopes/planet/x")

    assert (nowhere.status, nowhere.json["code"]) == (404, "NOT_FOUND")
    assert (wrong.status, wrong.json["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"]
    assert (scope.status, scope.json["code"]) == (404, "NOT_FOUND")


async def test_a_form_is_no_json(client: Client) -> None:
    """So no page of another site can make a browser send one."""
    answer = await client.post("/v1/jobs", b'{"type":"mail"}', content_type="text/plain")

    assert (answer.status, answer.json["code"]) == (415, "WRONG_MEDIA_TYPE")


async def test_a_caller_for_any_tenant_must_name_one(client: Client) -> None:
    """By a legal name."""
    nameless = Client(client.app)

    missing = await nameless.get("/v1/jobs")
    padded = await nameless.get("/v1/jobs", holdfast_tenant="")

    assert (missing.status, missing.json["field"]) == (422, "Holdfast-Tenant")
    assert (padded.status, padded.json["field"]) == (422, "Holdfast-Tenant")


@pytest.mark.parametrize(
    ("ack", "field"),
    [
        ({"outcome": "explode"}, "outcome"),
        ({"outcome": "snooze"}, "after"),
        ({"outcome": "release", "after": 1e300}, "after"),
        ({"outcome": "complete", "result_base64": "AA=="}, "result_base64"),
    ],
)
async def test_a_bad_ack_leaves_the_lease(ack: Any, field: str, client: Client) -> None:
    """It can be settled rightly afterwards."""
    id = (await client.post("/v1/jobs", {"type": "mail"})).json["id"]
    [lease] = (await client.post("/v1/claim")).json["leases"]
    held = {"id": id, "token": lease["token"]}

    bad = await client.post("/v1/ack", {"acks": [{**held, **ack}]})
    good = await client.post("/v1/ack", {"acks": [{**held, "outcome": "complete"}]})

    assert bad.status == 422
    assert field in bad.json["field"]
    assert good.json["acks"][0]["state"] == "completed"
