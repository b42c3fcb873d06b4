"""Words for workers that remember, over the native API."""

from __future__ import annotations

from typing import Any

from tests.service.asgi import Answer, Client

Json = dict[str, Any]


async def held(client: Client, **job: object) -> Json:
    """A lease of a new job."""
    made = await client.post("/v1/jobs", {"type": "mail", **job})
    assert made.status == 201, made
    return await claimed(client)


async def claimed(client: Client) -> Json:
    [lease] = (await client.post("/v1/claim", {})).json["leases"]
    found: Json = lease
    return found


async def extend(client: Client, lease: Json, **more: object) -> Answer:
    one = {"id": lease["job"]["id"], "token": lease["token"], **more}
    return await client.post("/v1/extend", {"leases": [one]})


async def ack(client: Client, lease: Json, outcome: str, **more: object) -> Answer:
    one = {"id": lease["job"]["id"], "token": lease["token"], "outcome": outcome, **more}
    return await client.post("/v1/ack", {"acks": [one]})


async def journal(client: Client, id: str, query: str = "") -> Json:
    answer = await client.get(f"/v1/jobs/{id}/journal{query}")
    assert answer.status == 200, answer
    found: Json = answer.json
    return found


def step(name: str, value: object = None) -> Json:
    return {"kind": "step", "name": name, "value": value}


def by_name(entries: list[Json]) -> dict[tuple[str, str], object]:
    return {(one["kind"], one["name"]): one.get("value") for one in entries}
