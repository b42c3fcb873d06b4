"""Cancel: jobs that an operator or their tenant stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.errors import JobNotFound
from holdfast.core.job import By
from holdfast.store import Canceled, Ref
from holdfast.stores.redis import item_check
from holdfast.stores.redis.limits_platform import tell_home
from holdfast.stores.redis.rows import words
from holdfast.stores.redis.shards import Shards

CANCELED, NOT_FOUND = 1, -1


async def cancel_jobs(
    shards: Shards, refs: Sequence[Ref], by: By | None, now: Micros | None
) -> list[Canceled]:
    return await item_check.each(
        refs,
        item_check.of_ref,
        lambda some: _cancel(shards, some, by, now),
        lambda ref, why: Canceled(ref.id, False, why),
    )


async def _cancel(
    shards: Shards, refs: Sequence[Ref], by: By | None, now: Micros | None
) -> list[Canceled]:
    def args(positions: list[int]) -> Any:
        return [(refs[position].tenant, refs[position].id) for position in positions], words(by)

    reports: list[tuple[int, Any]] = []
    tenants = (ref.tenant for ref in refs)
    answers = await shards.scatter("cancel", refs, tenants, args, now, more=reports)
    await tell_home(shards, reports, now)
    return [
        Canceled(
            ref.id, answer == CANCELED, JobNotFound(id=ref.id) if answer == NOT_FOUND else None
        )
        for ref, answer in zip(refs, answers, strict=True)
    ]
