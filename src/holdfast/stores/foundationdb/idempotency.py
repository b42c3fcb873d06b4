"""Idempotency keys: which job a key stands for, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.job import NewJob
from holdfast.stores.foundationdb.layout import Space, number, text, texts, whole
from holdfast.stores.foundationdb.rows import Row, pack
from holdfast.stores.foundationdb.step import Step

Key = tuple[str, str, str, str]
"""(tenant, queue, type, key)"""

_holder = msgspec.msgpack.Decoder(tuple[str, int | None])


def key_of(job: NewJob | Row) -> Key | None:
    if job.key is None:
        return None
    return job.tenant, job.queue, job.type if isinstance(job, Row) else job.envelope.type, job.key


def _entry(step: Step, key: Key) -> bytes:
    tenant, *rest = key
    return step.keys.own(tenant, Space.KEYS, *map(text, rest))


def _end_entry(step: Step, key: Key, until: Micros) -> bytes:
    return step.keys.all(Space.KEY_ENDS, whole(until), *map(text, key))


def ask_keys(step: Step, jobs: Sequence[NewJob | Row | None]) -> None:
    """Requests what `key_holder` and `release_key` read first."""
    keys = [key_of(job) for job in jobs if job is not None]
    step.ask(_entry(step, key) for key in keys if key is not None)


async def ask_holders(step: Step, jobs: Sequence[NewJob]) -> None:
    """Requests the jobs that hold these keys now."""
    keys = [key for job in jobs if (key := key_of(job)) is not None]
    found = await step.get_many([_entry(step, key) for key in keys], snapshot=True)
    step.ask_rows(
        (key[0], _holder.decode(value)[0])
        for key, value in zip(keys, found, strict=True)
        if value is not None
    )


async def key_holder(step: Step, job: NewJob) -> str | None:
    """The id of the job that the key of a new job stands for now."""
    key = key_of(job)
    found = None if key is None else await step.get(_entry(step, key))
    if key is None or found is None:
        return None
    id, until = _holder.decode(found)
    if await _is_held(step, key, id):
        return id
    return id if until is not None and until > step.now else None


async def _is_held(step: Step, key: Key, id: str) -> bool:
    """Whether the job lives and has this key. Its id may have been pruned and used again, for a job
    without the key.
    """
    row = await step.row(key[0], id)
    return row is not None and row.alive and key_of(row) == key


def take_key(step: Step, row: Row, length_us: Micros | None) -> None:
    """Writes the key of a new job: while the job lives, and for a length if one is given."""
    key = key_of(row)
    if key is None:
        return
    until = None if length_us is None else step.now + length_us
    step.put(_entry(step, key), pack((row.id, until)))
    if until is not None:
        step.put(_end_entry(step, key, until), b"")


async def release_key(step: Step, row: Row) -> None:
    """Frees the key of a job that ends or goes; a timed one stays until its time."""
    key = key_of(row)
    found = None if key is None else await step.get(_entry(step, key))
    if key is None or found is None:
        return
    id, until = _holder.decode(found)
    if id == row.id and (until or 0) <= step.now:
        step.drop(_entry(step, key))
        if until is not None:
            step.drop(_end_entry(step, key, until))


async def prune_keys(step: Step, limit: int) -> int:
    """Drops keys whose time has passed and whose job has ended; returns how many it looked at."""
    begin = step.keys.all(Space.KEY_ENDS)
    pairs = await step.range(begin, begin + whole(step.now + 1), limit, snapshot=True)
    for entry, _ in pairs:
        step.drop(entry)
        until = number(entry[len(begin) :])
        tenant, queue, type, name = texts(entry[len(begin) + 8 :], 4)
        key = (tenant, queue, type, name)
        found = await step.get(_entry(step, key))
        if found is None or _holder.decode(found)[1] != until:
            continue
        id, _ = _holder.decode(found)
        if await _is_held(step, key, id):
            step.put(_entry(step, key), pack((id, None)))  # From now on it lives as the job does.
        else:
            step.drop(_entry(step, key))
    return len(pairs)
