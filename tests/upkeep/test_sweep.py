"""The sweep: a blob goes when nothing needs it any more, and never before."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import pytest
from tests.upkeep.swept import CONFIG, GRACE_S, Shop

from holdfast import App, BlobRef, Context
from holdfast.core.blob import body_id
from holdfast.core.edge_bounds import BLOB_REPLAYS_MAX, SWEEP_HELD_MAX, SWEEP_SHARDS
from holdfast.core.errors import TenantFull
from holdfast.core.job import Completed
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import open_bucket
from holdfast.payload.layout import BLOBS, DYING, HELD, Holder, HolderKind, placed
from holdfast.payload.usage import Usage
from holdfast.store import Act, Change, Put, Ref, Selection
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import HOUR, rules
from holdfast.upkeep import sweep_part
from holdfast.upkeep.sweep import CURSOR, Sweep

# -- what is deleted -------------------------------------------------------------------------------


async def test_a_blob_goes_with_the_job_that_held_it(shop: Shop) -> None:
    """Not before its retention has ended, and its notes go too."""
    ref = await shop.acme.put(b"data")
    assert await shop.hold(ref, "j")
    lease = await shop.bench.held("j", tenant="acme", rules=rules(keep_us=HOUR))
    shop.age()

    assert await shop.look(ref)
    await shop.bench.end(lease, Completed())
    assert await shop.look(ref)
    shop.bench.clock.advance(3601)
    await shop.bench.store.prune(100, 0)
    assert not await shop.look(ref)

    assert shop.sweep.deleted == 1
    assert [shop.files(kind) for kind in (BLOBS, HELD, DYING)] == [[], [], []]


async def test_an_orphan_goes_after_the_grace(shop: Shop) -> None:
    """The client died between its upload and its enqueue, before or after it wrote its note."""
    first, second = await shop.acme.put(b"1"), await shop.acme.put(b"2")
    await shop.hold(second, "never")

    shop.age(GRACE_S - 60)
    assert (await shop.look(first), await shop.look(second)) == (True, True)
    shop.age(120)
    assert (await shop.look(first), await shop.look(second)) == (False, False)


async def test_a_young_note_keeps_an_old_blob(shop: Shop) -> None:
    """Its job is being enqueued."""
    ref = await shop.acme.put(b"data")
    shop.age()
    await shop.hold(ref, "soon")

    assert await shop.look(ref)
    shop.age()
    assert not await shop.look(ref)


async def test_a_body_goes_with_its_job(shop: Shop) -> None:
    """Its id says whose it is."""
    for job, kept in (("alive", True), ("gone", False), ("Ä/gone " + "x" * 100, False)):
        ref = BlobRef(body_id(os.urandom(16).hex(), job), 4, "0" * 64)
        await shop.bucket.put(placed("acme", ref.id).path, b"data")
        if kept:
            await shop.bench.put(job, tenant="acme")
        shop.age()

        assert await shop.look(ref) is kept, job


async def test_a_job_of_another_tenant_with_the_same_id_keeps_nothing(shop: Shop) -> None:
    """Ids are of a tenant (P7)."""
    ref = await shop.acme.put(b"data")
    await shop.hold(ref, "j")
    await shop.bench.put("j", tenant="globex")
    shop.age()

    assert not await shop.look(ref)


@pytest.mark.parametrize("tenant", ["🦀" * 100, "x" * 128, "Acme"])
@pytest.mark.parametrize("job", ["🦀" * 100, "J/1"])
async def test_names_of_any_length_hold(shop: Shop, tenant: str, job: str) -> None:
    """Those that a path cannot hold stand in the note."""
    blob, holder = placed(tenant, "blob-" + "ab" * 16), Holder(tenant, HolderKind.JOB, job)
    await shop.bucket.put(blob.path, b"data")
    assert await shop.holders.hold(blob, holder)
    await shop.bench.put(job, tenant=tenant)
    shop.age()

    await shop.sweep._parts.look_at("ab")
    assert await shop.bucket.look(blob.path) is not None
    await shop.bench.store.cancel([Ref(tenant, job)])
    select = Selection(tenant=tenant, ids=(job,))
    await shop.bench.store.change(Change(select=select, act=Act.DELETE))
    await shop.sweep._parts.look_at("ab")
    assert await shop.bucket.look(blob.path) is None


# -- replays ---------------------------------------------------------------------------------------


async def replayed(shop: Shop, id: str) -> str:
    """Ends a job, replays it and deletes it."""
    await shop.bench.store.cancel([Ref("acme", id)])
    select = Selection(tenant="acme", ids=(id,))
    [made] = (await shop.bench.store.change(Change(select=select, act=Act.REPLAY))).done.values()
    await shop.bench.store.change(Change(select=select, act=Act.DELETE))
    return made


async def test_a_blob_lives_as_long_as_the_last_replay(shop: Shop) -> None:
    """Also where no process with a bucket saw the replay, and the origin is gone."""
    ref = await shop.acme.put(b"data")
    await shop.hold(ref, "j")
    await shop.bench.put("j", tenant="acme")
    last = "j"
    for _ in range(8):  # Each sweep finds the replay that is there, and notes it.
        for _ in range(BLOB_REPLAYS_MAX // 4):
            last = await replayed(shop, last)
        shop.age()
        assert await shop.look(ref)

    assert await shop.bench.get(last, tenant="acme")
    await shop.bench.store.cancel([Ref("acme", last)])
    select = Selection(tenant="acme", ids=(last,))
    await shop.bench.store.change(Change(select=select, act=Act.DELETE))
    shop.age()
    assert not await shop.look(ref)


# -- schedules -------------------------------------------------------------------------------------


async def test_a_schedule_keeps_the_blobs_that_it_names(shop: Shop) -> None:
    """Between its ticks there is no job that does."""
    app = App(shop.bench.store)

    @app.job
    async def report(ctx: Context, template: BlobRef) -> None: ...

    ref, other = await shop.acme.put(b"data"), await shop.acme.put(b"other")
    acme = app.tenant("acme")
    async with app:
        await acme.schedule("yearly").set(report(template=ref), cron="0 0 1 1 *")
        await acme.schedule("yearly2").set(report(template=other), cron="0 0 1 1 *")
        [first, _] = await shop.bench.store.settings(under="schedule/")
        for one in (ref, other):
            await shop.hold(one, first.name, HolderKind.SCHEDULE)
        shop.age()

        assert (await shop.look(ref), await shop.look(other)) == (True, False)
        await acme.schedule("yearly").delete()
        assert not await shop.look(ref)


# -- the round -------------------------------------------------------------------------------------


async def test_a_round_looks_at_every_part_and_goes_on_where_another_left_it(shop: Shop) -> None:
    """Its cursor is a setting."""
    refs = [await shop.acme.put(b"%d" % number) for number in range(5)]
    shop.age()

    for number in range(SWEEP_SHARDS):
        if number % 50 == 0:
            shop.bench.clock.advance(61)  # The one before is dead, and its hold has ended.
            shop.sweep = shop.a_sweep()
        assert await shop.sweep.turn() == 10.0

    assert [await shop.there(ref) for ref in refs] == [False] * 5
    [cursor] = await shop.bench.store.settings(under=CURSOR)
    assert cursor.value == b"0"


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"99999999999", b"300", "²".encode()])
async def test_a_damaged_cursor_begins_again(shop: Shop, value: bytes) -> None:
    """It is a number of a part, whatever stands there."""
    await shop.bench.store.settings([Put(CURSOR, value, 0)])

    await shop.sweep.turn()

    [cursor] = await shop.bench.store.settings(under=CURSOR)
    assert 0 < int(cursor.value) < SWEEP_SHARDS


async def test_the_blobs_of_another_store_are_left_alone(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep for a new or a wrong store would find none of the jobs, and delete everything."""
    ref = await shop.acme.put(b"data")
    await shop.hold(ref, "j")
    await shop.bench.put("j", tenant="acme")
    await shop.sweep.turn()
    shop.age()

    clock = ManualClock()
    other = open_store("memory://", clock)
    await other.open()
    stranger = Sweep(other, shop.bucket, CONFIG)
    with caplog.at_level(logging.ERROR, "holdfast"):
        await stranger.look_at_all()
    await other.close()

    assert await shop.there(ref)
    assert caplog.text.count("belongs to another store") == 1
    assert await Sweep(shop.bench.store, shop.bucket, CONFIG)._is_ours()


async def test_one_process_sweeps(shop: Shop) -> None:
    """Another one takes over when it has died."""
    await shop.sweep.turn()
    other = shop.a_sweep()
    await other.turn()
    [cursor] = await shop.bench.store.settings(under=CURSOR)
    assert cursor.value == b"1"

    shop.bench.clock.advance(61)
    await other.turn()
    [cursor] = await shop.bench.store.settings(under=CURSOR)
    assert cursor.value == b"2"


async def test_a_new_bucket_of_the_same_store_is_swept(shop: Shop, tmp_path: Path) -> None:
    """After a move to another folder, for example."""
    await shop.sweep.turn()
    moved = Sweep(shop.bench.store, open_bucket(f"file://{tmp_path}/new"), CONFIG)

    assert await moved._is_ours()


async def test_files_of_others_in_the_bucket_are_left_alone(shop: Shop) -> None:
    """Whatever their names are."""
    for path in ("blobs/ab/x", "blobs/ab/acme/blob-1/x/y", "held/ab/acme", "other/file"):
        await shop.bucket.put(path, b"data")
    shop.age()

    await shop.sweep._parts.look_at("ab")

    assert len([path for path in shop.folder.rglob("*") if path.is_file()]) == 4


async def test_very_many_notes_are_read_for_each_blob(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of all of a part at once, which would need memory without a bound."""
    monkeypatch.setattr(sweep_part, "SWEEP_HELD_MAX", 3)
    kept, gone = await shop.acme.put(b"kept"), await shop.acme.put(b"gone")
    for ref in (kept, gone):
        for number in range(5):
            await shop.hold(ref, f"{ref.id}-{number}")
    await shop.bench.put(f"{kept.id}-4", tenant="acme")
    shop.age()

    assert (await shop.look(kept), await shop.look(gone)) == (True, False)
    assert SWEEP_HELD_MAX > 1000


async def test_a_note_that_cannot_be_read_keeps_its_blob(shop: Shop) -> None:
    """It may name a job that is there."""
    blob = placed("🦀" * 100, "blob-" + "ab" * 16)
    await shop.bucket.put(blob.path, b"data")
    await shop.bucket.put(f"{blob.held}/job.j", b"damaged")
    shop.age()

    await shop.sweep._parts.look_at("ab")

    assert await shop.bucket.look(blob.path) is not None


# -- what tenants have -----------------------------------------------------------------------------


async def test_a_tenant_at_its_cap_puts_no_more_blobs(shop: Shop) -> None:
    """At once in a process that knows what it has put, in others after a round of the sweep."""
    most, other = 10_000, Usage(shop.bucket, 10_000)
    own = Blobs(Shared(shop.bucket, shop.holders, Usage(shop.bucket, most)), "acme")
    refs = [await own.put(b"x" * 4000), await own.put(iter([b"x" * 4000]))]

    for data in (b"x" * 2001, iter([b"x" * 1000, b"x" * 1001])):
        with pytest.raises(TenantFull, match="10000 bytes of blobs"):
            await own.put(data)
    assert await own.put(b"x" * 2000)
    assert await other.left("acme") == most

    sweep = Sweep(
        shop.bench.store, shop.bucket, msgspec.structs.replace(CONFIG, blob_tenant_max=most)
    )
    await sweep.look_at_all()
    late = Blobs(Shared(shop.bucket, shop.holders, Usage(shop.bucket, most)), "acme")
    with pytest.raises(TenantFull):
        await late.put(b"x")
    assert await Usage(shop.bucket, most).left("globex") == most
    for ref in refs:
        await own.delete(ref)
    await sweep.look_at_all()
    assert await Usage(shop.bucket, most).left("acme") == most
    assert shop.files("usage") == []


async def test_a_round_that_was_not_all_its_own_says_nothing_of_tenants(shop: Shop) -> None:
    """It knows only a part of what they have."""
    await shop.acme.put(b"x" * 4000)
    await shop.bench.store.settings([Put(CURSOR, b"1", 0)])
    config = msgspec.structs.replace(CONFIG, blob_tenant_max=10)
    sweep = Sweep(shop.bench.store, shop.bucket, config)
    for _ in range(SWEEP_SHARDS):
        await sweep.turn()

    assert shop.files("usage") == []
    await sweep.look_at_all()
    assert shop.files("usage") == ["acme"]
