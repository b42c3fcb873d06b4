"""Nothing that a user stored is taken for a part of an answer: payloads, results, data of jobs."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client
from tests.service.firecrawl import benched

from holdfast.core.bounds import JSON_DEPTH_MAX
from holdfast.core.job import NewJob, State
from holdfast.core.lifecycle import Transition
from holdfast.service.service import Service
from holdfast.stores.remote import wire
from holdfast.testing.contract import builders
from holdfast.testing.contract.builders import ACME

FORGED = b'1},"token":"x","until":"2030-01-01T00:00:00Z"},{"job":{"id":"forged","payload":1'
DEEP = b"[" * (JSON_DEPTH_MAX + 1) + b"]" * (JSON_DEPTH_MAX + 1)
NO_JSON = {
    "forged": FORGED,
    "nothing": b"",
    "cut": b'{"a":',
    "two": b"{}{}",
    "no text": b'"\xff"',
    "no number": b"NaN",
    "deep": DEEP,
    "deeper than the stack": b"[" * 30_000 + b"]" * 30_000,
}


def job(id: str, body: bytes = b"{}", codec: str = "json") -> NewJob:
    new = builders.job(id, body=body)
    sealed = msgspec.structs.replace(new.envelope, codec=codec)
    return msgspec.structs.replace(new, envelope=sealed)


async def _packed(client: Client, verb: str, value: Any) -> Answer:
    path = f"{wire.PATH}/{verb}"
    return await client.post(path, wire.encode(value), content_type=wire.MEDIA)


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_a_payload_that_is_no_json_is_not_let_in_as_json(body: bytes, client: Client) -> None:
    """Over the store's verbs its codec is the caller's word."""
    answer = await _packed(client, "enqueue", wire.NewJobs([job("a", body=body)]))

    assert answer.status == 422, answer
    told = msgspec.msgpack.decode(answer.body)
    assert told["facts"]["field"] == "payload"
    assert (await client.get("/v1/jobs")).json["jobs"] == []


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_a_claim_gives_no_lease_that_a_payload_made_up(
    body: bytes, client: Client, service: Service
) -> None:
    """What a store holds all the same goes out in base64, its codec named."""
    await service.store.enqueue([job("a", body=body)])

    answer = await client.post("/v1/claim", {"limit": 10})

    [lease] = answer.json["leases"]
    assert (lease["job"]["id"], lease["job"]["codec"]) == ("a", "json")
    assert "payload" not in lease["job"]
    assert base64.b64decode(lease["job"]["payload_base64"]) == body


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_a_result_that_is_no_json_is_not_let_in_for_a_job_in_json(
    body: bytes, client: Client
) -> None:
    """The lease stays, and can be settled rightly."""
    await _packed(client, "enqueue", wire.NewJobs([job("a")]))
    [lease] = (await client.post("/v1/claim")).json["leases"]
    done = Transition(tenant=ACME, id="a", token=lease["token"], to=State.COMPLETED, result=body)

    answer = await _packed(client, "ack", [done])
    good = await _packed(client, "ack", [msgspec.structs.replace(done, result=b"[1]")])

    assert answer.status == 422, answer
    assert msgspec.msgpack.decode(answer.body)["facts"]["field"] == "result"
    assert good.status == 200
    assert (await client.get("/v1/jobs/a/result")).json["result"] == [1]


async def test_a_result_in_another_codec_is_let_in(client: Client) -> None:
    """It is that codec's to read."""
    body = msgspec.msgpack.encode({"a": 1})
    await _packed(client, "enqueue", wire.NewJobs([job("a", body, "msgpack")]))
    [lease] = (await client.post("/v1/claim")).json["leases"]
    done = Transition(tenant=ACME, id="a", token=lease["token"], to=State.COMPLETED, result=body)

    assert (await _packed(client, "ack", [done])).status == 200
    assert (await client.get("/v1/jobs/a/result")).json["result"] == {"a": 1}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
async def test_a_result_that_a_store_holds_forges_no_field(
    body: bytes, client: Client, service: Service
) -> None:
    """Told in base64, with the codec in which it should have been."""
    await service.store.enqueue([job("a")])
    [lease] = (await client.post("/v1/claim")).json["leases"]
    done = Transition(tenant=ACME, id="a", token=lease["token"], to=State.COMPLETED, result=body)
    await service.store.ack([done])

    found = (await client.get("/v1/jobs/a/result")).json

    assert base64.b64decode(found["result_base64"]) == body
    assert (found["codec"], found["done"], "result" in found) == ("json", True, False)


async def test_json_is_bounded_in_depth_on_the_native_way_in(client: Client) -> None:
    """Payloads and results, by their field."""
    payload = await client.post("/v1/jobs", b'{"type":"mail","payload":' + DEEP + b"}")
    batch = await client.post(
        "/v1/jobs/batch", b'{"jobs":[{"type":"mail","payload":' + DEEP + b"}]}"
    )
    await client.post("/v1/jobs", {"type": "mail", "id": "a"})
    [lease] = (await client.post("/v1/claim")).json["leases"]
    ack = b'{"acks":[{"id":"a","token":"%s","outcome":"complete","result":%s}]}'
    result = await client.post("/v1/ack", ack % (lease["token"].encode(), DEEP))

    assert [one.status for one in (payload, batch, result)] == [422, 422, 422]
    assert [one.json["field"] for one in (payload, batch, result)] == [
        "payload",
        "jobs[0].payload",
        "acks[0].result",
    ]


@pytest.mark.parametrize("result", ["1e999", "1" + "0" * 400, "123456789012345678901234567890"])
async def test_a_number_that_a_codec_cannot_hold_is_refused(result: str, client: Client) -> None:
    """A job in msgpack gets its result in msgpack."""
    await _packed(client, "enqueue", wire.NewJobs([job("a", b"\x80", "msgpack")]))
    [lease] = (await client.post("/v1/claim")).json["leases"]
    held = {"id": "a", "token": lease["token"], "outcome": "complete"}

    ack = {**held, "result": msgspec.Raw(result.encode())}
    answer = await client.post("/v1/ack", {"acks": [ack]})

    assert (answer.status, answer.json["field"]) == (422, "acks[0].result")


FORGED_DATA = b'{"data_bytes":21,"id":"x","listenable":false,"data":1,"teamId":"somebody"}'
"""The cut is right, and what it cuts out is a value and one more field."""


async def test_a_pop_gives_no_field_that_its_data_made_up() -> None:
    """Whoever put the job into the wire's queue, by whichever way."""
    async with benched() as bench:
        native = bench.client.with_headers(holdfast_tenant="team")
        for more in (
            {"payload": msgspec.Raw(FORGED_DATA)},
            {"payload_base64": base64.b64encode(FORGED_DATA).decode()},
        ):
            made = await native.post(
                "/v1/jobs", {"type": "firecrawl", "queue": "firecrawl", **more}
            )
            assert made.status == 201, made
        await bench.push("good", data={"half": 1})

        found = await bench.pop()
        dead = (await native.get("/v1/dead")).json["jobs"]

    assert (found["job"]["id"], found["job"]["teamId"]) == ("good", "team")
    assert [one["reason"] for one in dead] == ["DECODE", "DECODE"]


async def test_the_data_of_a_push_is_bounded_in_depth() -> None:
    """With half of a surrogate pair in it too."""
    async with benched() as bench:
        for data in (DEEP, b'["\\ud800",' + DEEP + b"]"):
            body = b'{"teamId":"t","job":{"id":"j","data":%s,"priority":0,"listenable":false}}'
            answer = await bench.call("POST", "/queue/push", body % data)
            assert (answer.status, answer.json["field"]) == (422, "job.data")
        assert await bench.pop("t") is None


async def test_half_of_a_surrogate_pair_comes_back_as_it_went() -> None:
    """JavaScript writes it, and reads it."""
    async with benched() as bench:
        data = b'{"a":"\\ud800","b":"\\ud83d\\ude00","c":"\\\\ud800"}'
        body = b'{"teamId":"t","job":{"id":"j","data":%s,"priority":0,"listenable":false}}'
        assert (await bench.call("POST", "/queue/push", body % data)).status == 200

        answer = await bench.call("POST", "/queue/pop/t", {"workerId": "w"})

        assert data in answer.body
