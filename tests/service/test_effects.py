"""What a worker in another language needs to make its effects once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.service.asgi import Client


async def _leased(client: Client) -> dict[str, Any]:
    [lease] = (await client.post("/v1/claim", {"worker": "w", "lease": 30})).json["leases"]
    found: dict[str, Any] = lease
    return found


async def _settled(client: Client, lease: dict[str, Any], outcome: str) -> None:
    ack = {"id": lease["job"]["id"], "token": lease["token"], "outcome": outcome}
    assert (await client.post("/v1/ack", {"acks": [ack]})).json["acks"][0].get("error") is None


async def test_a_lease_carries_a_fence_and_an_effect_key_that_know_a_reused_id(
    client: Client,
) -> None:
    """P3, P4: over HTTP as in the library."""
    wish = {"type": "send", "id": "one", "payload": {}, "keep": 0}
    await client.post("/v1/jobs", wish)
    first = await _leased(client)
    await _settled(client, first, "release")
    again = await _leased(client)
    await _settled(client, again, "complete")

    await client.post("/v1/jobs", wish)
    other = await _leased(client)

    assert first["fence"] < again["fence"] < other["fence"] < 2**53
    assert first["effect_key"] == again["effect_key"] != other["effect_key"]
