"""Offloading: what is forged, damaged, or encrypted."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.payload.shop import LARGE, ROW_MAX, Shop

from holdfast import App, BlobRef, Context, Reason
from holdfast.core.blob import OFFLOADED, offloaded, read_reference
from holdfast.core.errors import BlobCorrupt
from holdfast.core.job import Envelope, NewJob, Rules, State
from holdfast.core.mapped import MARK
from holdfast.encryption import Keys
from holdfast.payload.layout import placed
from holdfast.testing import drain

# -- forged and damaged ----------------------------------------------------------------------------


def forged(body: bytes, codec: str = "blob+json") -> NewJob:
    envelope = Envelope("echo", codec, 1, body)
    return NewJob(tenant="acme", id="forged", queue="default", envelope=envelope, rules=Rules())


async def put_raw(shop: Shop, job: NewJob) -> None:
    """Enqueues past the mapper, as a process without a bucket would."""
    store: Any = shop.app.store.inner
    [answer] = await store.inner.enqueue([job])
    assert answer.created


HUGE = BlobRef("body-" + "a" * 32 + ".forged", 30 * 1024**3, "0" * 64)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (OFFLOADED + b"{}", "not a reference"),
        (OFFLOADED + b"\xff", "not a reference"),
        (OFFLOADED + b'{"id":"../../x","size":1,"sha256":"' + b"0" * 64 + b'"}', "not a reference"),
        (OFFLOADED + b'{"id":"blob-\\u0000","size":1,"sha256":""}', "not a reference"),
        (b"{}", "not a reference"),
        (b"", "not a reference"),
        (offloaded(HUGE), "at most"),
        (offloaded(msgspec.structs.replace(HUGE, size=5)), "not found"),
    ],
)
async def test_a_forged_reference_fails_its_own_job_only(shop: Shop, body: bytes, why: str) -> None:
    """As a payload that cannot be read."""
    await put_raw(shop, forged(body))
    honest = await shop.acme.enqueue(shop.echo(text="hi"))
    await drain(shop.app)

    job = await shop.acme.get("forged")
    assert (job.state, job.reason) == (State.FAILED, Reason.DECODE)
    assert why in (job.error or "")
    assert await honest.wait() == "hi"


async def test_a_reference_to_a_body_of_another_tenant_leads_nowhere(shop: Shop) -> None:
    """The path is made of the tenant of the job."""
    theirs = await shop.app.tenant("globex").enqueue(shop.echo(text=LARGE))
    body = (await shop.app.tenant("globex").get(theirs.id)).envelope.body
    await put_raw(shop, forged(body))
    await drain(shop.app)

    job = await shop.acme.get("forged")
    assert (job.state, job.reason) == (State.FAILED, Reason.DECODE)
    assert "not found" in (job.error or "")


async def test_a_damaged_body_fails_its_job_and_a_wrong_result_is_told(shop: Shop) -> None:
    """By its hash."""
    job = await shop.acme.enqueue(shop.echo(text=LARGE))
    done = await shop.acme.enqueue(shop.echo(size=100_000), delay=0)
    ref = read_reference((await shop.acme.get(job.id)).envelope.body)
    await shop.bucket.put(placed("acme", ref.id).path, b"y" * ref.size)
    await drain(shop.app)

    found = await shop.acme.get(job.id)
    assert (found.state, found.reason) == (State.FAILED, Reason.DECODE)
    assert "SHA-256" in (found.error or "")
    result = read_reference((await shop.acme.get(done.id)).result)
    await shop.bucket.put(placed("acme", result.id).path, b"short")
    with pytest.raises(BlobCorrupt, match="has 5 bytes"):
        await done.wait()


async def test_a_result_that_looks_like_a_reference_is_itself(shop: Shop) -> None:
    """Bytes may be anything."""
    body = OFFLOADED + b"is not one"

    @shop.app.job(codec="bytes")
    async def raw(ctx: Context, body: bytes) -> bytes:
        return body

    job = await shop.acme.enqueue(raw(body=body))
    await drain(shop.app)

    assert await shop.acme.wait(job.id, as_=bytes) == body
    assert body.startswith(MARK)


async def test_without_a_bucket_the_job_waits_for_a_worker_that_has_one(
    shop: Shop, tmp_path: Path
) -> None:
    """It is released, as with any codec that a worker does not know."""
    job = await shop.acme.enqueue(shop.echo(text=LARGE))
    without = App(shop.url)

    @without.job
    async def echo(ctx: Context, text: str = "", size: int = 0, n: int = 0) -> str:
        return text

    await drain(without)
    found = await shop.acme.get(job.id)

    assert (found.state, found.misses, found.attempt) == (State.SCHEDULED, 1, 0)


# -- with encryption -------------------------------------------------------------------------------


def contents(folder: Path) -> list[tuple[Path, bytes]]:
    """All files, those of the database and those of the bucket."""
    return [(path, path.read_bytes()) for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("first", ["keys", "blobs"])
async def test_what_is_offloaded_is_encrypted(tmp_path: Path, first: str) -> None:
    """Neither the bucket nor the database has the plain text; in whatever order they were given."""
    mark = "MARKED" * 10_000
    keys = Keys({"m1": b"k" * 32}, require=True)
    shop = Shop(tmp_path, **({"keys": keys} if first == "keys" else {}))
    if first == "blobs":
        shop.app.use_keys(keys)
    else:
        shop.app.use_blobs(f"file://{tmp_path}/blobs")
    async with shop.app:
        job = await shop.acme.enqueue(shop.echo(text=mark))
        step = await shop.acme.enqueue(shop.steps(size=100_000))
        await drain(shop.app)
        again = await shop.acme.replay(job.id)
        while not (await shop.acme.get(step.id)).finished_at:
            await drain(shop.app)

        assert await job.wait() == await shop.acme.wait(again) == mark
        assert await step.wait() == 100_000
        assert len(await shop.files()) == 4
        assert shop.row(job.id) < ROW_MAX
    for path, data in contents(tmp_path):
        assert b"MARKED" not in data, path
        assert b"sssss" not in data, path


async def test_a_plain_body_is_refused_where_encryption_is_required(tmp_path: Path) -> None:
    """Whoever may write to the bucket cannot make a worker read it."""
    shop = Shop(tmp_path, keys=Keys({"m1": b"k" * 32}, require=True))
    async with shop.app:
        plain = b'{"text":"hi"}'
        id = "body-" + "a" * 32 + ".forged"
        await shop.bucket.put(placed("acme", id).path, plain)
        ref = BlobRef(id, len(plain), hashlib.sha256(plain).hexdigest())
        await put_raw(shop, forged(offloaded(ref)))
        await drain(shop.app)

        job = await shop.acme.get("forged")
        assert (job.state, job.reason, shop.ran) == (State.FAILED, Reason.DECODE, [])
