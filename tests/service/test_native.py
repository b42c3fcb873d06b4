"""The native API: a job's way through it."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import msgspec
from tests.service.asgi import Client

from holdfast.core.clock import SECOND
from holdfast.service.service import Service
from holdfast.store import Take
from holdfast.worker_registry import Present


async def _enqueued(client: Client, **job: object) -> str:
    made = await client.post("/v1/jobs", {"type": "mail", **job})
    assert made.status == 201, made
    return str(made.json["id"])


async def test_a_job_goes_from_enqueue_to_its_result(client: Client) -> None:
    """Enqueue, claim, extend, complete, read."""
    id = await _enqueued(client, payload={"to": "a"}, queue="mail")

    [lease] = (await client.post("/v1/claim", {"worker": "w", "lease": 30})).json["leases"]
    assert lease["job"]["payload"] == {"to": "a"}
    assert lease["job"]["state"] == "processing"
    kept = await client.post(
        "/v1/extend", {"leases": [{"id": id, "token": lease["token"], "progress": "half"}]}
    )
    assert kept.json["leases"][0]["until"] >= lease["until"]
    done = await client.post(
        "/v1/ack",
        {"acks": [{"id": id, "token": lease["token"], "outcome": "complete", "result": [1]}]},
    )
    assert done.json == {"acks": [{"id": id, "state": "completed"}]}

    found = (await client.get(f"/v1/jobs/{id}/result")).json
    assert (found["done"], found["result"]) == (True, [1])


async def test_a_key_gives_the_earlier_job(client: Client) -> None:
    """By the field and by the header alike; the answer says created or existing."""
    first = await client.post("/v1/jobs", {"type": "mail"}, idempotency_key="k1")
    again = await client.post("/v1/jobs", {"type": "mail", "key": "k1"})

    assert (first.status, again.status) == (201, 200)
    assert again.json == {"id": first.json["id"], "created": False, "type_known": False}


async def test_a_batch_answers_for_each_job(client: Client) -> None:
    """One refused item fails alone."""
    taken = await _enqueued(client, id="taken")
    made = await client.post(
        "/v1/jobs/batch", {"jobs": [{"type": "mail"}, {"type": "other", "id": taken}]}
    )

    one, two = made.json["jobs"]
    assert one["created"]
    assert two["error"]["code"] == "ID_CONFLICT"


async def test_failures_are_retried_or_final(client: Client) -> None:
    """As the worker says and the job's rules allow."""
    first, second = [await _enqueued(client) for _ in range(2)]
    leases = (await client.post("/v1/claim", {"limit": 2})).json["leases"]
    tokens = {lease["job"]["id"]: lease["token"] for lease in leases}

    acks = await client.post(
        "/v1/ack",
        {
            "acks": [
                {"id": first, "token": tokens[first], "outcome": "fail", "error": "no"},
                {"id": second, "token": tokens[second], "outcome": "fail", "retry": False},
            ]
        },
    )

    assert [one["state"] for one in acks.json["acks"]] == ["retrying", "failed"]
    dead = (await client.get("/v1/dead")).json["jobs"]
    assert [(job["id"], job["reason"]) for job in dead] == [(second, "PERMANENT")]
    assert (await client.post("/v1/dead/replay")).json == {"done": 1}


async def test_a_lost_lease_is_told_by_code(client: Client) -> None:
    """Each item of a batch has its own refusal."""
    id = await _enqueued(client)
    await client.post("/v1/claim")

    acks = await client.post("/v1/ack", {"acks": [{"id": id, "token": "x", "outcome": "complete"}]})

    [one] = acks.json["acks"]
    assert (one["error"]["code"], one["error"]["status"]) == ("INVALID_LEASE_TOKEN", 409)


async def test_a_long_poll_wakes_when_a_job_comes(client: Client) -> None:
    """At once, not at the end of its wait."""
    polling = asyncio.ensure_future(client.post("/v1/claim", {"wait": 30}))
    while not polling.done():
        await asyncio.sleep(0)
        if (await client.get("/v1/queues")).json["scopes"] == []:
            await _enqueued(client)
    assert len(polling.result().json["leases"]) == 1


async def test_a_wait_for_a_result_lasts_until_the_job_has_ended(
    client: Client, service: Service
) -> None:
    """The empty body of a GET is no hang-up."""
    id = await _enqueued(client)
    [lease] = (await client.post("/v1/claim")).json["leases"]

    waiting = asyncio.ensure_future(client.get(f"/v1/jobs/{id}/result?wait=30"))
    async with asyncio.timeout(5):
        while not service.waiters:  # noqa: ASYNC110
            await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    ack = {"id": id, "token": lease["token"], "outcome": "complete", "result": 5}
    await client.post("/v1/ack", {"acks": [ack]})

    async with asyncio.timeout(5):
        found = (await waiting).json
    assert (found["done"], found["result"]) == (True, 5)


async def test_a_wait_for_a_result_ends_when_its_caller_leaves(
    client: Client, service: Service
) -> None:
    """Its place is free for others at once."""
    id = await _enqueued(client)

    async with client.open("GET", f"/v1/jobs/{id}/result?wait=30"), asyncio.timeout(5):
        while not service.waiters:  # noqa: ASYNC110
            await asyncio.sleep(0)

    assert service.waiters == 0


async def test_of_many_that_wait_each_gets_one_job(client: Client) -> None:
    """Those who wait for the same take turns."""
    polls = [asyncio.ensure_future(client.post("/v1/claim", {"wait": 30})) for _ in range(20)]
    await asyncio.sleep(0)
    ids = {await _enqueued(client) for _ in range(20)}

    async with asyncio.timeout(10):
        answers = await asyncio.gather(*polls)

    assert {lease["job"]["id"] for one in answers for lease in one.json["leases"]} == ids


async def test_a_caller_that_leaves_takes_no_job_along(client: Client) -> None:
    """What comes later goes to others."""
    async with client.open("POST", "/v1/claim", {"wait": 30}):
        await asyncio.sleep(0)
    id = await _enqueued(client)

    [lease] = (await client.post("/v1/claim")).json["leases"]
    assert lease["job"]["id"] == id
    assert lease["job"]["attempt"] == 1


async def test_names_with_slashes_arrive_as_one_segment(client: Client) -> None:
    """Encoded as encodeURIComponent does."""
    id = await _enqueued(client, id="a/b c/ü", group="g/1")

    assert (await client.get("/v1/jobs/a%2Fb%20c%2F%C3%BC")).json["id"] == id
    counts = await client.get("/v1/scopes/group/g%2F1/counts")
    assert counts.json["counts"] == {"enqueued": 1}


async def test_another_tenants_job_is_not_found(client: Client) -> None:
    """The same answer as for one that is nowhere."""
    id = await _enqueued(client)
    other = client.with_headers(holdfast_tenant="other")

    theirs = await other.get(f"/v1/jobs/{id}")
    nowhere = await other.get("/v1/jobs/nowhere")

    assert theirs.status == nowhere.status == 404
    assert theirs.json["code"] == nowhere.json["code"] == "JOB_NOT_FOUND"


async def test_limits_are_changed_from_the_version_that_was_read(client: Client) -> None:
    """Compare-and-set: who read an older one is told."""
    first = await client.patch("/v1/scopes/queue/mail", {"max_running": 2, "rate": "10/s"})
    stale = await client.patch("/v1/scopes/queue/mail", {"max_running": 3, "expect": 0})

    assert first.json["settings"]["max_running"] == 2
    assert (stale.status, stale.json["code"]) == (409, "STALE_SETTING")
    assert (await client.get("/v1/scopes")).json["scopes"] == [first.json]


async def test_a_stream_tells_each_fact_as_it_is_stored(client: Client) -> None:
    """With the cursor as its id, so that a reader can go on where it was."""
    async with client.open("GET", "/v1/events/stream?after=0") as talk:
        status, headers = await talk.start()
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
        await _enqueued(client)
        async for part in talk.parts():
            if b"event: enqueued" in part:
                assert b"id: 1" in part
                break


async def test_bytes_travel_in_base64(client: Client) -> None:
    """There and back."""
    id = await _enqueued(client, payload_base64="AP8=")

    [lease] = (await client.post("/v1/claim")).json["leases"]
    assert lease["job"]["payload_base64"] == "AP8="
    ack = {"id": id, "token": lease["token"], "outcome": "complete", "result_base64": "/w=="}
    await client.post("/v1/ack", {"acks": [ack]})
    assert (await client.get(f"/v1/jobs/{id}")).json["result_base64"] == "/w=="


async def test_lists_of_scopes_slots_and_workers_come_in_pages(
    client: Client, service: Service
) -> None:
    """P15: each answer is bounded, and its cursor leads to the next one."""
    for number in range(5):
        await client.patch(f"/v1/scopes/queue/q{number}", {"max_running": 2})
        await client.put(f"/v1/scopes/queue/q/slots/s{number}", {"seconds": 60})
    await service.store.hold([Take(f"worker/w{n}", f"w{n}", SECOND, NOTE) for n in range(5)])

    for path, names, field in (
        ("/v1/scopes", "scopes", "name"),
        ("/v1/scopes/queue/q/slots", "slots", "id"),
        ("/v1/workers", "workers", "name"),
    ):
        seen, after = [], ""
        for _ in range(4):
            page = (await client.get(f"{path}?limit=2{after}")).json
            assert len(page[names]) <= 2
            seen += [one[field] for one in page[names]]
            if "cursor" not in page:
                break
            after = f"&after={quote(page['cursor'], safe='')}"
        assert [name[-1] for name in seen] == ["0", "1", "2", "3", "4"], path
        assert (await client.get(f"{path}?limit=1001")).status == 422


NOTE = msgspec.json.encode(
    Present(pid=1, tenants=None, queues=None, types=("send",), concurrency=1, running=0, held=0)
).decode()
