"""Signal: named values that are sent to jobs from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.errors import REFUSALS, JournalFull
from holdfast.core.job import By
from holdfast.core.journal import Signal, Signaled
from holdfast.stores.redis import item_check
from holdfast.stores.redis.enqueue import tenant_full
from holdfast.stores.redis.journal import full
from holdfast.stores.redis.rows import words
from holdfast.stores.redis.rows_text import raw
from holdfast.stores.redis.shards import Shards

STORED = 1


async def send_signals(
    shards: Shards, signals: Sequence[Signal], by: By | None, now: Micros | None
) -> list[Signaled]:
    return await item_check.each(
        signals,
        item_check.of_signal,
        lambda some: _send(shards, some, by, now),
        lambda signal, why: Signaled(signal.id, False, why),
    )


async def _send(
    shards: Shards, signals: Sequence[Signal], by: By | None, now: Micros | None
) -> list[Signaled]:
    items = [(one.tenant, one.id, one.name, raw(one.value)) for one in signals]

    def args(positions: list[int]) -> Any:
        return [items[position] for position in positions], words(by)

    tenants = (one.tenant for one in signals)
    answers = await shards.scatter("signal", signals, tenants, args, now, wait=True)
    return [_signaled(*each) for each in zip(signals, answers, strict=True)]


def _signaled(signal: Signal, answer: Any) -> Signaled:
    if isinstance(answer, int):
        return Signaled(signal.id, answer == STORED)
    if isinstance(answer, list) and answer[0] == b"bytes":
        return Signaled(signal.id, False, tenant_full(signal.tenant, answer))
    if isinstance(answer, list):
        return Signaled(signal.id, False, JournalFull(id=signal.id, why=full(answer)))
    return Signaled(signal.id, False, REFUSALS[answer.decode()](id=signal.id))
