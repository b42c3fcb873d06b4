"""Jobs of queues that a token is not for are not there: neither found nor told of by a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.errors import JobNotFound
from holdfast.limits import PAGE_MAX
from holdfast.service.api import bounds
from holdfast.service.call import Call
from holdfast.store import Acked, Extended, Find, Ref, Selection

A = TypeVar("A", Acked, Extended)


async def seen(call: Call, refs: Sequence[Ref]) -> set[Ref]:
    """Those that are in the caller's queues."""
    found: set[Ref] = set()
    queues = bounds.queues(call, None) or ()
    for tenant in {one.tenant for one in refs}:
        ids = tuple({one.id for one in refs if one.tenant == tenant})
        select = Selection(tenant=tenant, ids=ids, queues=queues)
        page = await call.service.store.find(Find(select=select, limit=min(len(ids), PAGE_MAX)))
        found.update(Ref(job.tenant, job.id) for job in page.jobs)
    return found


async def hidden(call: Call, refs: Sequence[Ref], answers: list[A]) -> list[A]:
    """The answers; a refusal about a job that the caller may not see is that it is not there."""
    refused = [ref for ref, one in zip(refs, answers, strict=True) if one.error is not None]
    if call.caller.queues is None or not refused:
        return answers
    visible = await seen(call, refused)
    return [
        one
        if one.error is None or ref in visible
        else msgspec.structs.replace(one, error=JobNotFound(id=ref.id))
        for ref, one in zip(refs, answers, strict=True)
    ]
