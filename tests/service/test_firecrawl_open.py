"""The Firecrawl wire open alone, switched off, and what its claims keep in the store."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.service.asgi import Client
from tests.service.firecrawl import Badges, badge, benched
from tests.service.live import serving

from holdfast.core import bounds
from holdfast.service.app import application
from holdfast.service.firecrawl.mapping import key_of
from holdfast.service.firecrawl.routes import LINES, mounting
from holdfast.service.firecrawl.wire import Settings
from holdfast.service.pages import dashboard
from holdfast.service.rights import Right, Unauthenticated
from holdfast.service.service import Service
from holdfast.stores import open_store
from holdfast.stores.remote import wire

PUSH = {"teamId": "t", "job": {"id": "a", "data": 1, "priority": 0, "listenable": False}}


class Strict:
    """Nobody is known without a token; `team` is one of the tenant t."""

    async def caller(self, request: Any) -> Any:
        if request.headers.get("authorization") == "Bearer team":
            return badge("team", "t", Right.READ, queues=("firecrawl",))
        raise Unauthenticated(why="there is no token")


async def test_the_open_wire_opens_nothing_else() -> None:
    """P7: a Firecrawl client sends no token; `/v1` and the dashboard stay closed."""
    service = Service(open_store("memory://"), Strict())
    await service.store.open()
    mounts = [mounting(Settings(open=True)), dashboard]
    client = Client(application(service, mounts=mounts, owns_store=False))
    try:
        assert (await client.post("/queue/push", PUSH)).status == 200
        popped = await client.post("/queue/pop/t", {"workerId": "w", "blockedCrawlIds": []})
        assert popped.json["job"]["id"] == "a"
        for path in ("/v1/jobs", "/v1/tenants", "/metrics", "/v1/scopes/tenant"):
            assert (await client.get(path, holdfast_tenant="t")).status == 401, path
        sent = wire.encode(wire.Under(""))
        holds = await client.post("/v1/store/holds", sent, content_type=wire.MEDIA)
        assert holds.status == 401
        assert (await client.get("/")).status == 303  # To the login.
    finally:
        service.close()
        await service.store.close()


async def test_who_sends_a_token_to_the_open_wire_is_held_to_it() -> None:
    """Open is for those who send none: a token that is for less gives no more."""
    service = Service(open_store("memory://"), Strict())
    await service.store.open()
    client = Client(application(service, mounts=[mounting(Settings(open=True))], owns_store=False))
    try:
        mine = {"authorization": "Bearer team"}
        assert (await client.get("/queue/count/team/t", **mine)).status == 200
        assert (await client.get("/queue/count/team/other", **mine)).status == 403
        assert (await client.post("/queue/push", PUSH, **mine)).status == 403
        assert (await client.get("/queue/count/team/t", authorization="Bearer no")).status == 401
    finally:
        service.close()
        await service.store.close()


def test_a_page_of_another_site_does_not_reach_the_open_wire_of_this_machine(
    tmp_path: Path,
) -> None:
    """As without authentication: by Host and Origin; and switched off, the wire is not there."""
    keys = tmp_path / "keys.json"
    keys.write_text("[]")
    for mode, wanted in (
        ("open", (200, 403, 401)),
        ("off", (404, 404, 401)),
        ("on", (401, 401, 401)),
    ):
        store = f"sqlite:///{tmp_path}/jobs.db"
        with serving(store, f"--keys={keys}", f"--firecrawl={mode}") as url:
            found = (
                status(f"{url}/queue/count/team/t"),
                status(f"{url}/queue/count/team/t", host="evil.test"),
                status(f"{url}/v1/queues"),
            )
        assert found == wanted, mode


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as it:
            return int(it.status)
    except urllib.error.HTTPError as refused:
        return refused.code


# -- claims ----------------------------------------------------------------------------------------


async def test_no_list_of_holds_shows_the_token_of_a_claim(kind: str) -> None:
    """P3: a key that may only read could complete the job with it."""
    auth = Badges(badge("root", None), badge("reader", None, Right.READ))
    async with benched(auth, kind=kind) as bench:
        bench.client = bench.client.with_headers(badge="root")
        await bench.push("a")
        popped = await bench.pop()
        token = key_of(popped["queueKey"]).token

        for under in ("", "firecrawl/", "firecrawl/claim/"):
            for name in ("root", "reader"):
                reader = bench.client.with_headers(badge=name)
                sent = wire.encode(wire.Under(under))
                answer = await reader.post("/v1/store/holds", sent, content_type=wire.MEDIA)
                assert answer.status == 200
                assert token.encode() not in answer.body
                assert token.partition(".")[0].encode() not in answer.body
        assert len(await bench.store.hold(under="firecrawl/claim/")) == 1


async def test_what_a_claim_is_found_by_again_is_not_for_readers(kind: str) -> None:
    """The store's own secret, from which the claims' tokens come, is a setting for admins."""
    auth = Badges(badge("root", None), badge("reader", None, Right.READ, Right.OPERATE))
    async with benched(auth, kind=kind) as bench:
        bench.client = bench.client.with_headers(badge="root")
        await bench.push("a")
        await bench.pop()
        reader = bench.client.with_headers(badge="reader")
        for under in ("", "firecrawl/"):
            sent = wire.encode(wire.Under(under))
            answer = await reader.post("/v1/store/settings", sent, content_type=wire.MEDIA)
            assert answer.status == 403


async def test_a_release_finds_the_claim_that_another_process_made(kind: str) -> None:
    """By the note in the store and the secret in the store, not by memory."""
    async with benched(kind=kind) as bench:
        await bench.push("a")
        popped = await bench.pop()
        other = application(bench.service, mounts=[mounting(Settings())], owns_store=False)
        second = Client(other, {"content-type": "application/json"})

        assert (await second.post("/queue/release", {"jobId": "a"})).json == {"success": True}

        again = await bench.pop()
        assert again["job"]["id"] == "a"
        assert not await bench.complete(popped["queueKey"])
        assert await bench.complete(again["queueKey"])


async def test_tokens_of_claims_cannot_be_foretold(kind: str) -> None:
    """Each claim has a salt of its own: two are never alike, nor is one the other's beginning."""
    async with benched(kind=kind) as bench:
        nonces = set()
        for number in range(20):
            await bench.push(f"j{number}")
            popped = await bench.pop()
            nonces.add(key_of(popped["queueKey"]).token.partition(".")[0])

        assert len(nonces) == 20
        assert all(len(nonce) >= 32 for nonce in nonces)


def test_every_route_of_the_wire_but_its_health_asks_for_a_right() -> None:
    """So that it is closed where it is not opened."""
    assert [line.path for line in LINES if line.right is None] == ["/health"]


@pytest.mark.parametrize("path", ["/v1/store", "/healthz", "/readyz"])
async def test_what_was_open_before_stays_open(path: str) -> None:
    """Probes and greetings."""
    service = Service(open_store("memory://"), Strict())
    await service.store.open()
    client = Client(application(service, mounts=[mounting(Settings(open=True))], owns_store=False))
    try:
        assert (await client.get(path)).status == 200
    finally:
        service.close()
        await service.store.close()


async def test_a_team_with_many_crawls_does_not_stop_the_pushes_of_others(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: the list of crawls is shared by all teams and is a hint; a full one refuses no job."""
    monkeypatch.setattr(bounds, "SLOTS_MAX", 3)
    async with benched(kind=kind) as bench:
        for number in range(6):
            await bench.push(f"j{number}", team="greedy", crawl=f"crawl-{number}")

        await bench.push("mine", team="modest", crawl="last")

        assert await bench.popped("modest") == "mine"
        assert await bench.count("/queue/count/crawl/last") == 1
