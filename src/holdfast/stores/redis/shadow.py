"""Shadow: sources and the rows of their shadows. A step is one run of enqueue.lua."""

from __future__ import annotations

from typing import Any

from holdfast.core import bounds, edge_bounds
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, StaleSource, TenantFull
from holdfast.core.shadow import Shadow, ShadowRead, ShadowRow, ShadowStep, SourceRow
from holdfast.stores.redis import item_check
from holdfast.stores.redis.enqueue import answer_of
from holdfast.stores.redis.rows import new_row, pack, unpack
from holdfast.stores.redis.shards import Shards

DONE = (b"done", b"repeat")


async def apply_step(shards: Shards, step: ShadowStep, now: Micros | None) -> Shadow:
    """Applies the step with its jobs; or the script writes nothing, and its reason is raised."""
    for job in step.jobs:
        if (why := item_check.of_job(job)) is not None:
            raise why
    rows = [new_row(job, frozenset()) for job in step.jobs]
    names, fixed, bodies, options = zip(*rows, strict=True) if rows else ((), (), (), ())
    limits = (edge_bounds.SOURCE_OBJECTS_MAX, edge_bounds.SOURCE_BYTES_MAX, edge_bounds.SOURCES_MAX)
    asked = (
        step.tenant,
        step.source,
        step.expect,
        step.stamp,
        step.state is None,
        [row.size for row in step.put],
        len(step.drop),
        *limits,
    )
    texts = [*names, *fixed, *bodies, step.state or b""]
    for row in step.put:
        texts += (row.id, pack((row.version, row.number, row.seen, row.gone, row.body)))
    args = (options, None, bounds.QUEUES_MAX, bounds.GROUPS_MAX, False, asked)
    shard = shards.of(step.tenant)
    word, number, answers, at = await shards.call(
        "enqueue", shard, args, now, texts=[*texts, *step.drop], wait=True
    )
    if word not in DONE:
        _refuse(step, word.decode(), int(number), answers)
    return Shadow(int(at))


def _refuse(step: ShadowStep, word: str, number: int, answers: list[Any]) -> None:
    if word == "stale":
        raise StaleSource(field="expect", source=step.source)
    if word == "rows":
        why = f"the source has {number} rows left; drop them first"
        raise InvalidInput(field="state", why=why)
    for job, answer in zip(step.jobs, answers, strict=False):
        error = answer_of(job, answer).error
        if error is not None:
            raise error
    what, most = {
        "objects": ("objects of a source", edge_bounds.SOURCE_OBJECTS_MAX),
        "bytes": ("bytes of a source", edge_bounds.SOURCE_BYTES_MAX),
        "sources": ("sources", edge_bounds.SOURCES_MAX),
    }[word]
    raise TenantFull(tenant=step.tenant, what=what, max=most)


async def read_shadow(shards: Shards, read: ShadowRead, now: Micros | None) -> Shadow:
    """What is there, in one run of a script."""
    ids = list(dict.fromkeys(read.ids))
    args = (read.tenant, read.source, ids, read.after, read.limit)
    at, sources, rows = await shards.call("shadow", shards.of(read.tenant), args, now)
    return Shadow(int(at), [_source(*one) for one in sources], [_row(*one) for one in rows])


def _source(name: bytes, stamp: bytes, rows: int, size: bytes, state: bytes) -> SourceRow:
    return SourceRow(name.decode(), stamp.decode(), state, rows, int(size))


def _row(id: bytes, stored: bytes) -> ShadowRow:
    _, at, packed = stored.split(b"\0", 2)
    version, number, seen, gone, body = unpack(packed)
    return ShadowRow(id.decode(), version, number, seen, gone, body, int(at))
