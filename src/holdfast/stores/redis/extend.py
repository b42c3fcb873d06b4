"""Extend: leases that are renewed, with their progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.errors import REFUSALS, JournalFull
from holdfast.store import Extended, Extension
from holdfast.stores.redis import item_check
from holdfast.stores.redis.ack import token_parts
from holdfast.stores.redis.journal import entry_texts, full
from holdfast.stores.redis.rows import plain
from holdfast.stores.redis.shards import Shards


async def extend_leases(
    shards: Shards, extensions: Sequence[Extension], now: Micros | None
) -> list[Extended]:
    return await item_check.each(
        extensions,
        item_check.of_extension,
        lambda some: _extend(shards, some, now),
        lambda one, why: Extended(one.id, error=why),
    )


async def _extend(
    shards: Shards, extensions: Sequence[Extension], now: Micros | None
) -> list[Extended]:
    items = [
        (
            *(one.tenant, one.id, *token_parts(one.token), one.lease_us, plain(one.progress)),
            entry_texts(one.entries),
        )
        for one in extensions
    ]

    def args(positions: list[int]) -> list[Any]:
        return [items[position] for position in positions]

    tenants = (one.tenant for one in extensions)
    wait = any(one.entries for one in extensions)  # A step that was answered for is kept.
    answers = await shards.scatter("extend", extensions, tenants, args, now, wait=wait)
    return [_extended(*each) for each in zip(extensions, answers, strict=True)]


def _extended(one: Extension, answer: Any) -> Extended:
    if isinstance(answer, list):
        deadline, *too_much = answer
        if too_much:
            return Extended(one.id, error=JournalFull(id=one.id, why=full(too_much)))
        return Extended(one.id, int(deadline))
    return Extended(one.id, error=REFUSALS[answer.decode()](id=one.id))
