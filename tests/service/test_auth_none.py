"""Mode none: everybody on this machine, and no page of another site."""

from __future__ import annotations

import pytest
from tests.service.minted import refused, serving

from holdfast.service.auth.nobody import NoAuth

LOCAL = ["localhost", "localhost:3100", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:3100", "[::1]:3100"]
FOREIGN = [
    "evil.test",
    "evil.test:3100",
    "localhost.evil.test",
    "127.0.0.1.evil.test",
    "127.0.0.1@evil.test",
    "evil.test/127.0.0.1",
    "localhost:x",
    "[::1",
    "[::2]",
    "",
]


@pytest.mark.parametrize("host", LOCAL)
async def test_names_of_this_machine_are_served(host: str) -> None:
    """With any port."""
    async with serving(NoAuth(local_only=True)) as client:
        answer = await client.get("/v1/queues", host=host, holdfast_tenant="acme")

    assert answer.status == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_any_other_host_is_refused(host: str) -> None:
    """A name of somebody else's that points here is how a web page would reach the service."""
    async with serving(NoAuth(local_only=True)) as client:
        answer = await client.get("/v1/queues", host=host, holdfast_tenant="acme")

    assert "Host" in refused(answer, 403)


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://localhost.evil.test"])
async def test_pages_of_other_sites_are_refused(origin: str) -> None:
    """Also where the address they call is the right one."""
    async with serving(NoAuth(local_only=True)) as client:
        answer = await client.get(
            "/v1/queues", host="localhost", origin=origin, holdfast_tenant="acme"
        )

    assert "Origin" in refused(answer, 403)


async def test_pages_of_this_machine_are_served() -> None:
    """The dashboard, and a page under development on another port."""
    async with serving(NoAuth(local_only=True)) as client:
        answer = await client.get(
            "/v1/queues", host="localhost", origin="http://127.0.0.1:5173", holdfast_tenant="acme"
        )

    assert answer.status == 200


async def test_whoever_says_insecure_is_served_under_any_name() -> None:
    """Something in front of the service knows who calls."""
    async with serving(NoAuth()) as client:
        answer = await client.get(
            "/v1/queues", host="jobs.corp.test", origin="https://x.test", holdfast_tenant="acme"
        )

    assert answer.status == 200
