"""Offloading: large payloads, results and steps are in the bucket, and their rows stay small."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.payload.shop import LARGE, ROW_MAX, Shop, measured

from holdfast import App, BlobNotFound, BlobRef, Context, Flow, Job, JobFailed
from holdfast.core.blob import is_offloaded
from holdfast.core.bounds import PAYLOAD_MAX
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.core.errors import ConfigError, PayloadTooLarge
from holdfast.core.job import State
from holdfast.payload.bucket import Stored
from holdfast.payload.layout import HELD, placed
from holdfast.payload.values import Kind, Value
from holdfast.store import Act, Change, Find, Ref, Selection
from holdfast.testing import drain

# -- payloads, results, steps ----------------------------------------------------------------------


async def test_a_large_payload_and_a_large_result_are_in_the_bucket(shop: Shop) -> None:
    """Callers and handlers see no difference; the row is small, above the limit of payloads too."""
    job = await shop.acme.enqueue(shop.echo(text=LARGE))

    assert (await shop.acme.get(job.id)).envelope.codec == "blob+json"
    assert shop.row(job.id) < ROW_MAX
    await drain(shop.app)
    assert await job.wait() == LARGE
    assert shop.row(job.id) < ROW_MAX
    assert len(await shop.files()) == 2
    assert len(LARGE) > PAYLOAD_MAX


async def test_small_ones_stay_in_the_row(shop: Shop) -> None:
    """The bucket is not asked."""
    job = await shop.acme.enqueue(shop.echo(text="x" * 30_000))
    await drain(shop.app)

    assert await job.wait() == "x" * 30_000
    assert await shop.files() == []


@pytest.mark.parametrize("kind", ["steps", "sync_steps"])
async def test_a_large_step_is_remembered(shop: Shop, kind: str) -> None:
    """The next attempt loads it; a coroutine or a thread."""
    job = await shop.acme.enqueue(getattr(shop, kind)(size=500_000))
    while not (await shop.acme.get(job.id)).finished_at:
        await drain(shop.app)

    assert await job.wait() == 500_000
    page = await shop.app.store.find(
        Find(select=Selection(tenant="acme", ids=(job.id,)), journals=True, limit=1)
    )
    [entry] = [one for one in page.journals[Ref("acme", job.id)].entries if one.name == "large"]
    assert is_offloaded(entry.value)
    assert len(entry.value) < 300


async def test_enqueue_many_and_process_handlers_work_with_large_payloads(shop: Shop) -> None:
    """A child process gets the payload, not the reference."""
    await shop.acme.enqueue_many([shop.echo(text=LARGE + str(n)) for n in range(5)])
    job = await shop.acme.enqueue(measured(text=LARGE))
    await drain(shop.app)

    assert await job.wait() == len(LARGE)
    assert len(shop.ran) == 5


async def test_results_of_children_and_of_nodes_are_loaded(shop: Shop) -> None:
    """By `ctx.map`, and by a flow that puts results into arguments."""
    parent = await shop.acme.enqueue(shop.spread(number=3, size=100_000))
    await drain(shop.app)
    assert await parent.wait() == [100_000] * 3

    flow = Flow("texts")
    first = flow.add(shop.echo(size=200_000))
    flow.add(shop.echo(text=first.result()))
    run = await shop.acme.start(flow)
    await drain(shop.app)
    assert (await run.status()).state == "completed"
    nodes = await run.nodes()
    assert await shop.acme.wait(nodes[1].id) == "y" * 200_000


async def test_results_of_children_have_a_limit_together(shop: Shop) -> None:
    """A worker has them all in memory."""
    parent = await shop.acme.enqueue(shop.spread(number=3, size=6_000_000))
    await drain(shop.app)

    with pytest.raises(JobFailed, match="return references"):
        await parent.wait()


async def test_what_is_too_large_to_be_offloaded_is_refused(shop: Shop) -> None:
    """By the name of the value."""
    with pytest.raises(PayloadTooLarge, match="payload"):
        await shop.acme.enqueue(shop.echo(text="x" * OFFLOADED_MAX))
    jobs = [await shop.acme.enqueue(shop.echo(size=OFFLOADED_MAX)),
            await shop.acme.enqueue(shop.steps(size=OFFLOADED_MAX))]  # fmt: skip
    await drain(shop.app)

    for job in jobs:
        with pytest.raises(JobFailed, match=f"at most {OFFLOADED_MAX}"):
            await job.wait()


async def test_the_threshold_is_a_setting(tmp_path: Path) -> None:
    """In bytes."""
    shop = Shop(tmp_path, blob_above=16_384)
    async with shop.app:
        await shop.acme.enqueue(shop.echo(text="x" * 17_000))
        assert len(await shop.files()) == 1


async def test_a_repeated_enqueue_by_id_is_one_job(shop: Shop) -> None:
    """And one upload, as long as the process remembers it (P12)."""
    for _ in range(3):
        await shop.acme.enqueue(shop.echo(text=LARGE), id="j")

    assert len(await shop.files()) == 1
    await drain(shop.app)
    assert shop.ran == ["j"]


async def test_a_replay_reads_the_body_of_its_origin(shop: Shop) -> None:
    """Its row is a copy."""
    job = await shop.acme.enqueue(shop.echo(text=LARGE))
    await drain(shop.app)
    again = await shop.acme.replay(job.id)
    await drain(shop.app)

    assert await shop.acme.wait(again) == LARGE


async def test_a_retried_flow_holds_the_bodies_of_the_earlier_run(shop: Shop) -> None:
    """Its jobs are new, with the payloads of others."""
    fails = True

    @shop.app.job(max_attempts=1)
    async def unlucky(ctx: Context, text: str) -> int:
        if fails:
            raise RuntimeError("not yet")
        return len(text)

    flow = Flow("luck")
    flow.add(unlucky(text=LARGE))
    run = await shop.acme.start(flow)
    await drain(shop.app)
    fails = False
    again = await run.retry()
    [node] = await again.nodes()
    [file] = [path for path in await shop.files() if "body-" in path]

    blob = placed("acme", file.rsplit("/", 1)[1])
    notes = [one.path async for page in shop.bucket.under(blob.held, 10) for one in page]
    assert len(notes) == 1
    await drain(shop.app)
    assert await shop.acme.wait(node.id) == len(LARGE)


async def test_memory_hands_objects_over(tmp_path: Path) -> None:
    """Nothing is encoded, so nothing is offloaded; blobs are held all the same."""
    app = App("memory://", blobs="memory://")
    seen: list[object] = []

    @app.job
    class Show(Job):
        text: str
        refs: dict[str, list[BlobRef]]

        async def run(self, ctx: Context) -> None:
            seen.append(self.text)

    async with app:
        acme = app.tenant("acme")
        ref = await acme.blobs.put(b"data")
        await acme.enqueue(Show(text=LARGE, refs={"all": [ref]}))
        await drain(app)
        assert app.app_blobs is not None
        held = [one.path async for page in app.app_blobs.bucket.under(HELD, 10) for one in page]

    assert seen[0] is LARGE
    assert [ref.id in path for path in held] == [True]


# -- references to blobs ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["copy", "sync_copy"])
async def test_a_handler_streams_blobs(shop: Shop, kind: str) -> None:
    """As a coroutine, or in a thread."""
    data = os.urandom(3_000_000)
    ref = await shop.acme.blobs.put(data)
    job = await shop.acme.enqueue(getattr(shop, kind)(ref=ref))
    await drain(shop.app)

    made = await shop.acme.wait(job.id, as_=BlobRef)
    assert made.id != ref.id
    assert await shop.acme.blobs.read_bytes(made) == data
    assert shop.row(job.id) < ROW_MAX


def test_blocking_code_has_blobs(tmp_path: Path) -> None:
    """`app.sync.tenant(name).blobs`, and that of the default tenant."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", blobs=f"file://{tmp_path}/blobs", tenant="main")
    data = os.urandom(3_000_000)
    with app.sync as sync:
        ref = sync.tenant("main").blobs.put(iter([data[:9], data[9:]]), media_type="x/y")
        assert sync.blobs.read_bytes(ref) == data
        assert b"".join(sync.blobs.read(ref)) == data
        for _ in sync.blobs.read(ref):
            break
        sync.blobs.read_to(ref, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data
        sync.blobs.delete(ref)
        with pytest.raises(BlobNotFound):
            sync.blobs.read_bytes(ref)


async def test_a_job_that_names_a_blob_of_another_tenant_fails_alone(shop: Shop) -> None:
    """Whoever has the reference (P7)."""
    ref = await shop.app.tenant("globex").blobs.put(b"secret")
    stolen = await shop.acme.enqueue(shop.copy(ref=ref))
    honest = await shop.acme.enqueue(shop.echo(text="hi"))
    await drain(shop.app)

    assert await honest.wait() == "hi"
    assert "not found" in ((await shop.acme.get(stolen.id)).error or "")


async def test_an_app_without_a_bucket_says_how_to_set_it(tmp_path: Path) -> None:
    """Instead of an AttributeError."""
    app = App("memory://")
    with pytest.raises(ConfigError, match="this app has no bucket"):
        await app.tenant("acme").blobs.put(b"data")


async def test_a_job_names_a_limited_number_of_blobs(shop: Shop) -> None:
    """Each costs a call of the bucket."""
    from holdfast.core.edge_bounds import BLOBS_NAMED_MAX
    from holdfast.core.errors import InvalidInput

    ids = [f"blob-{number:032x}" for number in range(BLOBS_NAMED_MAX + 1)]
    await shop.acme.enqueue(shop.echo(text=",".join(ids[1:])))
    with pytest.raises(InvalidInput, match=f"at most {BLOBS_NAMED_MAX}"):
        await shop.acme.enqueue(shop.echo(text=",".join(ids)))


async def test_a_bucket_that_is_away_holds_nothing_else_up(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is released with its attempt, and runs when the bucket is back."""
    job = await shop.acme.enqueue(shop.echo(text=LARGE))
    other = await shop.acme.enqueue(shop.echo(text="hi"))
    folder, away = shop.folder / "blobs", shop.folder / "away"
    folder.rename(away)
    folder.write_text("a file in place of the folder")
    await drain(shop.app)

    assert await other.wait() == "hi"
    found = await shop.acme.get(job.id)
    assert (found.state, found.attempt) == (State.SCHEDULED, 0)
    folder.unlink()
    away.rename(folder)
    await shop.acme.reschedule(job.id, delay=0)
    await drain(shop.app)
    assert await job.wait() == LARGE


async def test_concurrent_enqueues_are_each_answered(shop: Shop) -> None:
    """Large ones and small ones, in shared batches."""
    jobs = await asyncio.gather(
        *(shop.acme.enqueue(shop.echo(text=LARGE if n % 2 else "s", n=n)) for n in range(40))
    )
    await drain(shop.app)

    results = [await job.wait() for job in jobs]
    assert results == [LARGE if n % 2 else "s" for n in range(40)]


async def test_a_deleted_origin_of_a_replay_keeps_its_body(shop: Shop) -> None:
    """Until a sweep finds no replay that lives: see tests/upkeep/test_sweep.py."""
    job = await shop.acme.enqueue(shop.echo(text=LARGE))
    await drain(shop.app)
    again = await shop.acme.replay(job.id)
    select = Selection(tenant="acme", ids=(job.id,))
    await shop.app.store.change(Change(select=select, act=Act.DELETE))
    await drain(shop.app)

    assert await shop.acme.wait(again) == LARGE


# -- who holds blobs -------------------------------------------------------------------------------


async def holders(shop: Shop, ref: BlobRef) -> set[str]:
    """What the notes about a blob name."""
    under = shop.bucket.under(placed("acme", ref.id).held, 99)
    return {one.path.rsplit("/", 1)[1] for page in [each async for each in under] for one in page}


async def test_jobs_results_steps_signals_and_schedules_hold_what_they_name(shop: Shop) -> None:
    """Before they are stored; whatever carries the reference."""

    @shop.app.job
    async def remembers(ctx: Context, text: str) -> str:
        return await ctx.step("ref", lambda: text)

    ref = await shop.acme.blobs.put(b"data")
    await shop.acme.enqueue(shop.echo(text=f"see {ref.id}."), id="payload")
    assert await holders(shop, ref) == {"job.payload"}
    await shop.acme.enqueue(shop.echo(), id="signaled", delay=100)
    await shop.acme.signal("signaled", "here", {"ref": ref.id})
    await shop.acme.schedule("yearly").set(shop.echo(text=ref.id), cron="0 0 1 1 *")
    found = await holders(shop, ref)
    assert found == {"job.payload", "job.signaled", "schedule.schedule_2f4_3aacme_2fyearly"}

    made = await shop.acme.blobs.put(b"other")
    await shop.acme.enqueue(remembers(text=made.id), id="steps")
    await drain(shop.app)
    assert await holders(shop, made) == {"job.steps"}
    copy = await shop.acme.enqueue(shop.copy(ref=ref), id="copy")
    await drain(shop.app)
    assert await holders(shop, await copy.wait()) == {"job.copy"}


async def test_a_text_that_only_looks_like_a_blob_changes_nothing(shop: Shop) -> None:
    """No blob, no note, no error."""
    text = f"blob-{7:032x}"
    job = await shop.acme.enqueue(shop.echo(text=text))
    await drain(shop.app)

    assert await job.wait() == text
    assert [page async for page in shop.bucket.under(HELD, 9)] == []


def test_an_enqueue_on_a_blocking_connection_waits_for_nothing(tmp_path: Path) -> None:
    """Its coroutine is run without an event loop: the bucket is called by its blocking calls."""
    shop = Shop(tmp_path)
    assert shop.app.app_blobs is not None
    planned = shop.app.enqueuer.plan("acme", shop.echo(text=LARGE), {})
    sealed = planned.envelope
    value = Value("acme", planned.id, Kind.PAYLOAD, "", sealed.codec, sealed.body, sealed.type)
    with pytest.raises(StopIteration) as done:
        shop.app.app_blobs.mapper.outgoing([value]).send(None)

    [mapped] = done.value.value
    assert mapped.codec == "blob+json"
    loaded = asyncio.run(shop.app.app_blobs.mapper.load(mapped))
    assert (loaded.codec, loaded.body) == (sealed.codec, sealed.body)


async def test_blobs_that_there_are_not_are_looked_for_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again in the batch, where the jobs of others would wait for it."""
    looks: list[str] = []
    look = shop.bucket.look

    async def counted(path: str) -> Stored | None:
        looks.append(path)
        return await look(path)

    monkeypatch.setattr(shop.bucket, "look", counted)
    text = ",".join(f"blob-{number:032x}" for number in range(100))
    await shop.acme.enqueue(shop.echo(text=text))
    flow = Flow("names")
    flow.add(shop.echo(text=text))
    await shop.acme.start(flow)

    assert len(looks) == 100
