"""Shadow: sources and the rows of their shadows.

The key of the source and the rows that a step names are read with conflict ranges, so of two steps
of one source one is repeated, and finds another stamp.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.edge_bounds import SOURCES_MAX
from holdfast.core.errors import HoldfastError
from holdfast.core.shadow import (
    Shadow,
    ShadowRead,
    ShadowRow,
    ShadowStep,
    SourceRow,
    is_repeat,
    totals,
)
from holdfast.stores.foundationdb.enqueue import enqueue_jobs
from holdfast.stores.foundationdb.layout import Keys, Space, after, text, texts
from holdfast.stores.foundationdb.rows import pack
from holdfast.stores.foundationdb.step import Step


async def apply_step(step: Step, change: ShadowStep) -> Shadow | HoldfastError:
    """Applies the change; or writes nothing and returns why."""
    try:
        await _apply(step, change)
    except HoldfastError as error:
        step.void = True
        return error
    return Shadow(step.now)


async def _apply(step: Step, change: ShadowStep) -> None:
    keys, tenant, source = step.keys, change.tenant, change.source
    named = _source_key(keys, tenant, source)
    ids = [*(row.id for row in change.put), *change.drop]
    row_keys = [_row_key(keys, tenant, source, id) for id in ids]
    step.ask([named, _state_key(keys, tenant, source), *row_keys])
    before = await _source(step, tenant, source)
    if is_repeat(change, None if before is None else before.stamp):
        return
    others = 0
    if before is None:
        prefix = keys.own(tenant, Space.SOURCES)
        others = len(await step.range(prefix, after(prefix), SOURCES_MAX + 1))
    values = zip(ids, await step.get_many(row_keys), strict=True)
    sizes = {id: _row(id, value).size for id, value in values if value is not None}
    rows, size = totals(change, before, sizes, others)
    if change.jobs:
        for answer in await enqueue_jobs(step, change.jobs):
            if answer.error is not None:
                raise answer.error
    if change.state is None:
        step.drop(named)
        step.drop(_state_key(keys, tenant, source))
        return
    step.put(named, pack((change.stamp, rows, size)))
    step.put(_state_key(keys, tenant, source), change.state)
    for id in change.drop:
        step.drop(_row_key(keys, tenant, source, id))
    for row in change.put:
        value = (row.version, row.number, row.seen, row.gone, row.body, step.now)
        step.put(_row_key(keys, tenant, source, row.id), pack(value))


async def read_shadow(step: Step, read: ShadowRead) -> Shadow:
    """What is there, at one version."""
    keys, tenant, source = step.keys, read.tenant, read.source
    if not source:
        page = await _page(step, keys.own(tenant, Space.SOURCES), read)
        names = [name for name, _ in page]
        step.ask(_state_key(keys, tenant, name) for name in names)
        found = [await _source(step, tenant, name) for name in names]
        return Shadow(step.now, [one for one in found if one is not None])
    row = await _source(step, tenant, source)
    if row is None:
        return Shadow(step.now)
    ids = list(dict.fromkeys(read.ids))
    values = await step.get_many([_row_key(keys, tenant, source, id) for id in ids], snapshot=True)
    rows = [_row(id, value) for id, value in zip(ids, values, strict=True) if value is not None]
    if read.after is not None:
        page = await _page(step, keys.own(tenant, Space.SHADOW, text(source)), read)
        rows += [_row(id, value) for id, value in page]
    return Shadow(step.now, [row], rows)


async def _page(step: Step, prefix: bytes, read: ShadowRead) -> list[tuple[str, bytes]]:
    """The first names under a prefix after the one that is asked for, with their values."""
    if not read.limit:
        return []
    begin = prefix + text(read.after) + b"\0" if read.after else prefix
    pairs = await step.range(begin, after(prefix), read.limit, snapshot=True)
    return [(texts(key[len(prefix) :], 1)[0], value) for key, value in pairs]


async def _source(step: Step, tenant: str, source: str) -> SourceRow | None:
    named, state = await step.get_many(
        [_source_key(step.keys, tenant, source), _state_key(step.keys, tenant, source)]
    )
    if named is None:
        return None
    stamp, rows, size = _unpack(named)
    return SourceRow(source, stamp, state or b"", rows, size)


def _row(id: str, value: bytes) -> ShadowRow:
    return ShadowRow(id, *_unpack(value))


def _unpack(value: bytes) -> Any:
    return msgspec.msgpack.decode(value)


def _source_key(keys: Keys, tenant: str, source: str) -> bytes:
    return keys.own(tenant, Space.SOURCES, text(source))


def _state_key(keys: Keys, tenant: str, source: str) -> bytes:
    return keys.own(tenant, Space.SOURCE_STATES, text(source))


def _row_key(keys: Keys, tenant: str, source: str, id: str) -> bytes:
    return keys.own(tenant, Space.SHADOW, text(source), text(id))
