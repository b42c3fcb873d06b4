"""Blobs over HTTP, and large payloads and results of jobs of other languages."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.asgi import Answer, Client
from tests.service.live import serving
from tests.service.minted import mint, tokens

from holdfast import App, BlobRef, Context
from holdfast.config import Config
from holdfast.core.blob import OFFLOADED, read_reference
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.payload.layout import placed
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.rights import Right
from holdfast.service.service import Service
from holdfast.service.settings import Limits
from holdfast.stores import open_store
from holdfast.testing import drain

LARGE = "x" * 300_000
BYTES = {"content_type": "application/octet-stream"}


class World:
    """A service on SQLite with a folder of blobs."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self.config = Config(blobs=f"file://{folder}/blobs")
        self.service = Service(open_store(self.url), NoAuth(), Limits(**limits), config=self.config)
        self.client = Client(
            application(self.service, owns_store=False), {"holdfast-tenant": "acme"}
        )

    async def put(self, data: bytes, query: str = "", **headers: str) -> Answer:
        return await self.client.post(f"/v1/blobs{query}", data, **{**BYTES, **headers})

    async def claim(self) -> Any:
        [lease] = (await self.client.post("/v1/claim", {})).json["leases"]
        return lease


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.service.store.open()
    yield world
    world.service.close()
    await world.service.store.close()


async def test_a_blob_is_put_and_read(world: World) -> None:
    """The answer is its reference."""
    data = os.urandom(3_000_000)

    ref = await world.put(data, "?media_type=audio/wav")

    assert ref.status == 201
    assert (ref.json["size"], ref.json["media_type"]) == (len(data), "audio/wav")
    assert ref.json["sha256"] == hashlib.sha256(data).hexdigest()
    read = await world.client.get(f"/v1/blobs/{ref.json['id']}")
    assert (read.status, read.body) == (200, data)
    assert read.headers["content-type"] == "application/octet-stream"
    assert read.headers["content-length"] == str(len(data))
    assert read.headers["x-content-type-options"] == "nosniff"


async def test_a_blob_of_another_tenant_is_not_found(world: World) -> None:
    """As one that there is not (P7)."""
    ref = (await world.put(b"secret")).json

    for id in (ref["id"], f"blob-{1:032x}"):
        other = await world.client.get(f"/v1/blobs/{id}", holdfast_tenant="globex")
        assert (other.status, other.json["code"]) == (404, "BLOB_NOT_FOUND")
        assert b"secret" not in other.body


@pytest.mark.parametrize("id", ["x", "..", "%2e%2e%2fx", "blob-%00", "blob-" + "A" * 32, "body-x"])
async def test_an_id_that_no_blob_has_is_not_found(world: World, id: str) -> None:
    """No path is made of it."""
    answer = await world.client.get(f"/v1/blobs/{id}")

    assert answer.status in (400, 404), answer


@pytest.mark.parametrize("media", [None, "text/plain", "application/json", ""])
async def test_a_body_of_another_type_is_refused(world: World, media: str | None) -> None:
    """A page of another site could make a browser send those."""
    headers = {} if media is None else {"content_type": media}

    answer = await world.client.post("/v1/blobs", b"data", **headers)

    assert (answer.status, answer.json["code"]) == (415, "WRONG_MEDIA_TYPE")
    assert "application/octet-stream" in answer.json["detail"]


async def test_a_wrong_media_type_of_the_blob_is_refused_by_its_name(world: World) -> None:
    """It would be sent in headers."""
    answer = await world.put(b"data", "?media_type=a%0d%0ab")

    assert (answer.status, answer.json["field"]) == (422, "media_type")


async def test_a_body_has_the_limit_of_every_body(tmp_path: Path) -> None:
    """`--limit body_max=...`"""
    world = World(tmp_path, body_max=1000)
    await world.service.store.open()

    assert (await world.put(b"x" * 1000)).status == 201
    assert (await world.put(b"x" * 1001)).status == 413
    await world.service.store.close()


async def test_a_service_without_a_bucket_says_so() -> None:
    """By the name of the setting."""
    service = Service(open_store("memory://"), NoAuth())
    await service.store.open()
    client = Client(application(service, owns_store=False), {"holdfast-tenant": "acme"})

    for answer in (
        await client.post("/v1/blobs", b"data", **BYTES),
        await client.get(f"/v1/blobs/blob-{1:032x}"),
    ):
        assert (answer.status, answer.json["field"]) == (422, "blobs")
    await service.store.close()


# -- jobs ------------------------------------------------------------------------------------------


async def test_a_job_over_http_holds_the_blobs_that_it_names(world: World) -> None:
    """As one of the library does."""
    ref = (await world.put(b"data")).json
    made = await world.client.post(
        "/v1/jobs", {"type": "wave", "payload": {"deep": [{"ref": ref}]}}
    )

    assert world.service.app_blobs is not None
    bucket = world.service.app_blobs.bucket
    held = [
        one.path async for page in bucket.under(placed("acme", ref["id"]).held, 9) for one in page
    ]
    assert [path.rsplit(".", 1)[1] for path in held] == [made.json["id"]]


async def test_a_worker_in_another_language_reads_what_its_job_names(world: World) -> None:
    """With the right to work alone, and nothing that no running job of it names."""
    ref, other = (await world.put(b"data")).json, (await world.put(b"other")).json
    await world.client.post("/v1/jobs", {"type": "wave", "id": "j", "payload": {"ref": ref}})
    early = await world.client.get(f"/v1/jobs/j/blobs/{ref['id']}")
    await world.claim()

    assert early.status == 404
    assert (await world.client.get(f"/v1/jobs/j/blobs/{ref['id']}")).body == b"data"
    assert (await world.client.get(f"/v1/jobs/j/blobs/{other['id']}")).status == 404
    for id in ("", "b", "blob-", "%22"):
        assert (await world.client.get(f"/v1/jobs/j/blobs/{id}")).status == 404


async def test_a_large_payload_and_result_are_references(world: World) -> None:
    """With the codec of their bytes behind `blob+`; the bytes are read by the id."""
    made = await world.client.post(
        "/v1/jobs", {"type": "wave", "id": "j", "payload": {"text": LARGE}}
    )
    assert made.status == 201, made
    job = (await world.claim())["job"]
    assert job["codec"] == "blob+json"
    assert job.get("payload") is None
    assert job["payload_blob"]["size"] == len(LARGE) + len('{"text":""}')
    body = (await world.client.get(f"/v1/jobs/j/blobs/{job['payload_blob']['id']}")).body
    assert hashlib.sha256(body).hexdigest() == job["payload_blob"]["sha256"]
    assert body == b'{"text":"%s"}' % LARGE.encode()


@pytest.mark.parametrize("number", [1, 2])
async def test_a_large_result_comes_back_to_the_library(world: World, number: int) -> None:
    """Acked alone, or in a batch."""
    app = App(world.url, blobs=world.config.blobs)
    for n in range(number):
        await world.client.post("/v1/jobs", {"type": "wave", "id": f"j{n}"})
    leases = (await world.client.post("/v1/claim", {"limit": 5})).json["leases"]
    acks = [{"id": one["job"]["id"], "token": one["token"], "outcome": "complete", "result": LARGE}
            for one in leases]  # fmt: skip
    answer = await world.client.post("/v1/ack", {"acks": acks})

    assert [one.get("error") for one in answer.json["acks"]] == [None] * number
    async with app:
        for n in range(number):
            assert await app.tenant("acme").wait(f"j{n}") == LARGE
    found = (await world.client.get("/v1/jobs/j0/result")).json
    assert found["result_blob"]["size"] == len(LARGE) + 2
    small = await world.client.post(
        "/v1/jobs", {"type": "wave", "id": "s", "payload": {"t": LARGE}}
    )
    assert small.status == 201
    lease = await world.claim()
    ack = {"id": "s", "token": lease["token"], "outcome": "complete", "result": {"ok": True}}
    await world.client.post("/v1/ack", {"acks": [ack]})
    assert (await world.client.get("/v1/jobs/s/result")).json["result"] == {"ok": True}


async def test_what_is_too_large_to_be_offloaded_is_refused(tmp_path: Path) -> None:
    """As without a bucket, with a higher limit."""
    world = World(tmp_path, body_max=2 * OFFLOADED_MAX)
    await world.service.store.open()
    for size, status in ((OFFLOADED_MAX - 100, 201), (OFFLOADED_MAX, 413)):
        payload = {"text": "x" * size}
        answer = await world.client.post("/v1/jobs", {"type": "w", "payload": payload})
        assert answer.status == status
    await world.service.store.close()


async def test_the_library_runs_what_was_enqueued_over_http(world: World) -> None:
    """The same bucket, the same jobs."""
    app = App(world.url, blobs=world.config.blobs)
    seen: list[object] = []

    @app.job
    async def wave(ctx: Context, text: str, ref: BlobRef) -> None:
        seen.append((len(text), await ctx.blobs.read_bytes(ref)))

    ref = (await world.put(b"data")).json
    await world.client.post("/v1/jobs", {"type": "wave", "payload": {"text": LARGE, "ref": ref}})
    await drain(app)

    assert seen == [(len(LARGE), b"data")]


async def test_a_forged_reference_in_a_payload_is_only_bytes(world: World) -> None:
    """A tenant may send any bytes; they are not taken for a reference of ours."""
    raw = OFFLOADED + b'{"id":"body-' + b"a" * 32 + b'.j","size":1,"sha256":"' + b"0" * 64 + b'"}'
    assert read_reference(raw)
    text = base64.b64encode(raw).decode()
    await world.client.post("/v1/jobs", {"type": "wave", "id": "j", "payload_base64": text})
    lease = await world.claim()

    assert lease["job"]["codec"] == "bytes"
    ack = {"id": "j", "token": lease["token"], "outcome": "complete", "result_base64": text}
    answer = await world.client.post("/v1/ack", {"acks": [ack]})
    assert "error" not in answer.json["acks"][0]


# -- rights ----------------------------------------------------------------------------------------


async def test_each_route_needs_its_right(tmp_path: Path) -> None:
    """Producers put, readers read, and workers read what their jobs name."""
    config = Config(blobs=f"file://{tmp_path}/blobs")
    service = Service(open_store("memory://"), tokens(), config=config)
    await service.store.open()
    client = Client(application(service, owns_store=False))

    def by(right: Right) -> dict[str, str]:
        return {"authorization": f"Bearer {mint(scope=right.value)}"}

    ref = (await client.post("/v1/blobs", b"data", **BYTES, **by(Right.PRODUCE))).json
    for right in (Right.WORK, Right.READ):
        assert (await client.post("/v1/blobs", b"data", **BYTES, **by(right))).status == 403
    path = f"/v1/blobs/{ref['id']}"
    statuses = [(await client.get(path, **by(right))).status
                for right in (Right.READ, Right.WORK, Right.PRODUCE)]  # fmt: skip

    assert statuses == [200, 403, 403]
    await service.store.close()


async def test_the_library_uses_a_service_and_a_bucket_beside_it(tmp_path: Path) -> None:
    """A remote store: its client moves large bodies itself, and the service passes references."""
    bucket = f"file://{tmp_path}/blobs"
    with serving(f"sqlite:///{tmp_path}/jobs.db") as url:
        app = App(url, blobs=bucket)

        @app.job
        async def twice(ctx: Context, text: str, ref: BlobRef) -> str:
            return text + (await ctx.blobs.read_bytes(ref)).decode()

        async with app:
            acme = app.tenant("acme")
            job = await acme.enqueue(twice(text=LARGE, ref=await acme.blobs.put(b"!")))
            assert len((await acme.get(job.id)).envelope.body) < 300
            await drain(app)

            assert await job.wait() == LARGE + "!"
