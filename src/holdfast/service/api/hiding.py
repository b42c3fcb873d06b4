"""Hides jobs in queues that a token does not cover: they are not found, also in refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.errors import JobNotFound
from holdfast.service.api import permissions
from holdfast.service.call import Call
from holdfast.store import Acked, Extended, Find, Ref, Selection

A = TypeVar("A", Acked, Extended)


async def seen(call: Call, refs: Sequence[Ref]) -> set[Ref]:
    """The jobs that are in the caller's queues."""
    found: set[Ref] = set()
    queues = permissions.queues(call, None) or ()
    for tenant in {one.tenant for one in refs}:
        ids = tuple({one.id for one in refs if one.tenant == tenant})
        select = Selection(tenant=tenant, ids=ids, queues=queues)
        page = await call.service.store.find(Find(select=select, limit=min(len(ids), PAGE_MAX)))
        found.update(Ref(job.tenant, job.id) for job in page.jobs)
    return found


async def hidden(call: Call, refs: Sequence[Ref], answers: list[A]) -> list[A]:
    """The answers. A refusal about a job that the caller may not see becomes JobNotFound."""
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
