"""Acts of operators over HTTP: reprioritise, reschedule, dead letters by time, and who did it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.asgi import Client

from holdfast.service.service import Service

WHY = {"holdfast_reason": "wrong address"}
SIGNED = "anybody: wrong address"


async def made(client: Client, **job: Any) -> str:
    answer = await client.post("/v1/jobs", {"type": "mail", "queue": "mail", **job})
    return str(answer.json["id"])


async def failed(client: Client) -> str:
    id = await made(client)
    [lease] = (await client.post("/v1/claim", {})).json["leases"]
    ack = {"id": id, "token": lease["token"], "outcome": "fail", "retry": False}
    await client.post("/v1/ack", {"acks": [ack]})
    return id


async def signatures(client: Client) -> dict[str, str | None]:
    """Who signed the last event of each kind."""
    events = (await client.get("/v1/events")).json["events"]
    return {event["kind"]: event.get("by") for event in events}


async def test_each_act_of_an_operator_is_signed_in_its_event(client: Client) -> None:
    """By the caller's name, which its token says, and its reason."""
    await client.post(f"/v1/jobs/{await made(client)}/cancel", **WHY)
    dead = await failed(client)
    await client.post(f"/v1/jobs/{dead}/replay", **WHY)
    await client.delete(f"/v1/jobs/{dead}", **WHY)
    later = await made(client)
    await client.post(f"/v1/jobs/{later}/reprioritise", {"priority": 5}, **WHY)

    found = await signatures(client)
    assert {kind: found[kind] for kind in ("canceled", "replayed", "deleted", "changed")} == {
        "canceled": SIGNED,
        "replayed": SIGNED,
        "deleted": SIGNED,
        "changed": SIGNED,
    }
    assert found["leased"] is None


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/scopes/queue/mail", {"max_running": 3}),
        ("POST", "/v1/scopes/queue/mail/pause", {"reason": "wrong address"}),
        ("POST", "/v1/scopes/queue/mail/resume", None),
    ],
)
async def test_settings_are_signed(client: Client, method: str, path: str, body: Any) -> None:
    """Limits, pauses and their end."""
    await made(client)
    if path.endswith("resume"):
        await client.post("/v1/scopes/queue/mail/pause", {"reason": "before"})

    answer = await client.call(method, path, body, **WHY)

    assert answer.status == 200, answer
    assert (await signatures(client))["configured"] == SIGNED


async def test_bulk_acts_are_signed(client: Client) -> None:
    """Each job's own event says it."""
    for _ in range(2):
        await failed(client)
    await client.post("/v1/dead/replay", **WHY)
    await client.post("/v1/dead/purge", **WHY)
    await made(client, group="g")
    await client.post("/v1/scopes/group/g/cancel", **WHY)

    found = await signatures(client)
    assert [found[kind] for kind in ("replayed", "deleted", "canceled")] == [SIGNED] * 3


async def test_a_reason_that_cannot_be_kept_is_named(client: Client) -> None:
    """Before anything is done."""
    id = await made(client)

    answer = await client.post(f"/v1/jobs/{id}/cancel", holdfast_reason="x" * 300)

    assert (answer.status, answer.json["field"]) == (422, "reason")
    assert (await client.get(f"/v1/jobs/{id}")).json["state"] == "enqueued"


async def test_a_waiting_job_is_reprioritised_and_rescheduled(client: Client) -> None:
    """And the one that was moved ahead comes first."""
    first, second = await made(client), await made(client)

    raised = await client.post(f"/v1/jobs/{second}/reprioritise", {"priority": 9})
    later = await client.post(f"/v1/jobs/{first}/reschedule", {"delay": 3600})

    assert (raised.status, raised.json["priority"]) == (200, 9)
    assert (later.status, later.json["state"]) == (200, "scheduled")
    [lease] = (await client.post("/v1/claim", {})).json["leases"]
    assert lease["job"]["id"] == second
    assert (await client.post("/v1/claim", {})).json["leases"] == []
    now = await client.post(f"/v1/jobs/{first}/reschedule", {"run_at": "2020-01-01T00:00:00Z"})
    assert now.json["state"] == "enqueued"
    running = await client.post(f"/v1/jobs/{second}/reprioritise", {"priority": 1})
    assert (running.status, running.json["code"]) == (409, "NOT_CHANGEABLE")


@pytest.mark.parametrize(
    ("act", "body", "field"),
    [
        ("reprioritise", {"priority": 2**40}, "priority"),
        ("reprioritise", {}, "priority"),
        ("reschedule", {}, "delay"),
        ("reschedule", {"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "delay"),
        ("reschedule", {"delay": -1}, "delay"),
        ("reschedule", {"run_at": "9999-01-01T00:00:00Z"}, "run_at"),
        ("reschedule", {"run_at": "1900-01-01T00:00:00Z"}, "run_at"),
        ("reschedule", {"run_at": "2030-01-01T00:00:00"}, "run_at"),
    ],
)
async def test_bad_input_is_named(
    client: Client, service: Service, act: str, body: dict[str, Any], field: str
) -> None:
    """And changes nothing."""
    answer = await client.post(f"/v1/jobs/{await made(client)}/{act}", body)

    assert (answer.status, answer.json["field"]) == (422, field)


async def test_dead_letters_are_found_by_the_time_of_their_failure(client: Client) -> None:
    """For lists, replays and purges."""
    id = await failed(client)
    at = (await client.get(f"/v1/jobs/{id}")).json["finished_at"]

    async def found(**query: str) -> int:
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return len((await client.get(f"/v1/dead?{text}")).json["jobs"])

    assert await found(failed_from=at) == 1
    assert await found(failed_before=at) == 0
    assert (await client.post(f"/v1/dead/replay?failed_before={at}")).json["done"] == 0
    assert (await client.post(f"/v1/dead/replay?failed_from={at}")).json["done"] == 1
