"""The sweep and those who need blobs at the same time, or when one of them dies."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.upkeep.swept import Shop

from holdfast.core.errors import BlobsUnavailable
from holdfast.payload.layout import BLOBS, DYING, HELD, Holder, HolderKind, placed
from holdfast.store import Act, Change, Find, Ref, Selection

# -- races -----------------------------------------------------------------------------------------


async def test_a_job_that_comes_while_a_blob_is_being_deleted_keeps_it(shop: Shop) -> None:
    """Its note is there before the sweep looks again."""
    ref = await shop.acme.put(b"data")
    shop.age()

    async def meanwhile(path: str) -> None:
        if path.startswith(DYING):
            shop.bucket.before.clear()
            await shop.bucket.put(
                placed("acme", ref.id).note(Holder("acme", HolderKind.JOB, "new")), b"{}"
            )

    shop.bucket.before["put"] = meanwhile
    assert await shop.look(ref)
    assert shop.files(DYING) == []


async def test_a_job_that_comes_too_late_is_told(shop: Shop) -> None:
    """The sweep has looked for notes already: the job must not be stored with a dead reference."""
    ref = await shop.acme.put(b"data")
    shop.age()
    told: list[bool] = []

    async def meanwhile(path: str) -> None:
        if path.startswith(BLOBS):
            shop.bucket.before.clear()
            told.append(False)
            holding.append(asyncio.create_task(shop.hold(ref, "late")))
            await asyncio.wait(holding, timeout=0.2)

    holding: list[asyncio.Task[bool]] = []
    shop.bucket.before["delete"] = meanwhile
    assert not await shop.look(ref)
    assert told
    assert await holding[0] is False


async def test_a_holder_does_not_wait_for_ever_for_a_dead_sweep(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that it can try again; a later sweep clears the mark."""
    monkeypatch.setattr("holdfast.payload.holders.BLOB_HOLD_S", 0.1)
    ref = await shop.acme.put(b"data")
    await shop.bucket.put(f"{placed('acme', ref.id).dying}/dead", b"")

    with pytest.raises(BlobsUnavailable, match="try again"):
        await shop.hold(ref, "j")
    shop.age()
    await shop.bench.put("j", tenant="acme")
    assert await shop.look(ref)
    assert await shop.hold(ref, "j")


@pytest.mark.parametrize("step", range(12))
async def test_a_sweep_that_dies_at_any_point_loses_nothing_and_leaves_nothing(
    shop: Shop, step: int
) -> None:
    """The next one does the rest."""

    class Dead(Exception):
        pass

    kept, gone = await shop.acme.put(b"kept"), await shop.acme.put(b"gone")
    await shop.hold(kept, "j")
    await shop.hold(gone, "never")
    await shop.bench.put("j", tenant="acme")
    shop.age()
    count = 0

    async def die(path: str) -> None:
        nonlocal count
        count += 1
        if count > step:
            raise Dead

    shop.bucket.before = {"put": die, "delete": die}
    try:
        await shop.look(kept)
        await shop.look(gone)
    except* Dead:
        pass
    shop.bucket.before.clear()
    shop.age()
    shop.sweep = shop.a_sweep()
    for _ in range(2):  # A mark that is younger than the grace is cleared by a later one.
        await shop.look(kept)
        await shop.look(gone)

    assert (await shop.there(kept), await shop.there(gone)) == (True, False)
    assert shop.files(DYING) == []
    assert len(shop.files(HELD)) == 1


async def test_two_sweeps_at_once_keep_what_lives(shop: Shop) -> None:
    """And delete the rest once."""
    refs = [await shop.acme.put(b"%d" % number) for number in range(20)]
    for number, ref in enumerate(refs):
        await shop.hold(ref, f"j{number}")
    await shop.bench.put(*(f"j{number}" for number in range(0, 20, 2)), tenant="acme")
    shop.age()
    parts = {ref.id[5:7] for ref in refs}

    other = shop.a_sweep()
    for part in parts:
        await asyncio.gather(other._parts.look_at(part), shop.sweep._parts.look_at(part))

    there = [await shop.there(ref) for ref in refs]
    assert there == [number % 2 == 0 for number in range(20)]


@pytest.mark.parametrize("seed", range(20))
async def test_no_living_job_loses_a_blob_whatever_meets(shop: Shop, seed: int) -> None:
    """Jobs come and go that name old blobs, while two sweeps look at the same part."""
    chance, ids = random.Random(seed), [f"blob-00{number:030x}" for number in range(6)]
    lost: list[str] = []

    async def user(number: int) -> None:
        for round_ in range(6):
            blob, job = placed("acme", chance.choice(ids)), f"j{number}-{round_}"
            if await shop.bucket.look(blob.path) is None:
                continue
            if not await shop.holders.hold(blob, Holder("acme", HolderKind.JOB, job)):
                continue  # It was deleted meanwhile, and the caller is told.
            await shop.bench.put(job, tenant="acme")
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if await shop.bucket.look(blob.path) is None:
                lost.append(f"{blob.id} of {job}")
            if chance.random() < 0.7:
                shop.age_file(blob.note(Holder("acme", HolderKind.JOB, job)))
                await shop.bench.store.cancel([Ref("acme", job)])
                select = Selection(tenant="acme", ids=(job,))
                await shop.bench.store.change(Change(select=select, act=Act.DELETE))

    async def sweeps() -> None:
        sweep = shop.a_sweep()
        for _ in range(6):
            await sweep._parts.look_at("00")

    for id in ids:
        await shop.bucket.put(placed("acme", id).path, b"data")
    shop.age()
    await asyncio.gather(sweeps(), sweeps(), *map(user, range(8)))

    assert lost == []
    page = await shop.bench.store.find(Find(select=Selection(tenant="acme"), limit=100))
    alive = {job.id for job in page.jobs}
    for id in ids:
        blob = placed("acme", id)
        held = [one.path async for found in shop.bucket.under(blob.held, 99) for one in found]
        if {path.rsplit("job.", 1)[1] for path in held} & alive:
            assert await shop.bucket.look(blob.path) is not None
