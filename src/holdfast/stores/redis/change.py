"""Change: delete, reprioritise, reschedule and replay jobs that nobody holds, by selection."""

from __future__ import annotations

import msgspec

from holdfast.core.bounds import within
from holdfast.core.clock import Micros
from holdfast.core.job import replay_id
from holdfast.store import Act, Change, Changed, Ref
from holdfast.stores.redis.find import selected, shards_of
from holdfast.stores.redis.rows import exact, record, rows_of, words
from holdfast.stores.redis.shards import Shards

SHARD_BITS = 53
"""The cursor of a change over all tenants: the position of the shard, then the sequence in it."""


async def change_jobs(shards: Shards, change: Change, now: Micros | None) -> Changed:
    """One step, in one shard if possible; the cursor names the shard of the next one."""
    concerned = shards_of(shards, change.select)
    within("after", change.after, 1 << 63)
    place, after = change.after >> SHARD_BITS, change.after & ((1 << SHARD_BITS) - 1)
    done: dict[Ref, str] = {}
    while place < len(concerned):
        step = msgspec.structs.replace(change, after=after, limit=change.limit - len(done))
        part, reached = await _step(shards, concerned[place], step, now)
        done |= part
        if reached is None:
            place, after = place + 1, 0
        else:
            after = reached
        if reached is not None or len(done) >= change.limit:
            break
    if place >= len(concerned):
        return Changed(done, None)
    return Changed(done, place << SHARD_BITS | after)


async def _step(
    shards: Shards, shard: int, change: Change, now: Micros | None
) -> tuple[dict[Ref, str], int | None]:
    if change.act is Act.REPLAY:
        return await _replay(shards, shard, change, now)
    args = (
        selected(change.select),
        change.act.value,
        change.after,
        change.limit,
        exact("priority", change.priority),
        exact("delay_us", change.delay_us),
        exact("run_at", change.run_at),
        words(change.by),
    )
    reached, *names = await shards.call("change", shard, args, now)
    pairs = zip(names[::2], names[1::2], strict=True)
    done = {Ref(tenant.decode(), id.decode()): id.decode() for tenant, id in pairs}
    return done, int(reached) if reached else None


async def _replay(
    shards: Shards, shard: int, change: Change, now: Micros | None
) -> tuple[dict[Ref, str], int | None]:
    """Finds the jobs, then replays them: scripts cannot compute the new ids, which are hashes."""
    args = (selected(change.select), change.after, change.limit, False, True)
    answer, reached, _ = await shards.call("find", shard, args, now)
    jobs = [record(row, 0) for row in rows_of(answer)]
    items = [(f"{job.seq:016}", replay_id(job.tenant, job.id)) for job in jobs]
    more = (items, words(change.by), change.from_step)
    answers = await shards.call("replay", shard, more, now) if items else []
    done = {
        Ref(job.tenant, job.id): new
        for job, (_, new), answer in zip(jobs, items, answers, strict=True)
        if answer
    }
    return done, int(reached) if reached else None
