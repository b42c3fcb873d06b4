"""Cancel of a flow: first a lasting mark, then its nodes, those that come last first.

The mark is a signal to the head, and a job that finishes the cancel if its caller dies. When all
nodes have ended the head runs: it sees the mark, makes the compensations and the last jobs, and
cancels itself.
"""

from __future__ import annotations

import msgspec

from holdfast.core.bounds import BATCH_MAX, NODES_READ
from holdfast.core.clock import SECOND
from holdfast.core.errors import JobCanceled, Refused
from holdfast.core.flow import (
    BEGIN,
    CANCEL,
    CANCEL_SIGNAL,
    ITEMS,
    OWN_RULES,
    QUEUE,
    Head,
    each_node,
    head_of,
    node_id,
    own_envelope,
    own_id,
)
from holdfast.core.job import By, JobRecord, NewJob, State
from holdfast.core.journal import EntryKind, Signal, join_of
from holdfast.job_journal import with_journals
from holdfast.journal_map import child_id
from holdfast.store import Find, Ref, Selection, Store

HELP_DELAY_US = 10 * SECOND
"""When a worker finishes a cancel whose caller may have died."""


async def cancel_flow(store: Store, head: JobRecord, by: By | None) -> bool:
    """Cancels a flow that has a node which has not ended; returns whether it is canceled."""
    if head.state is not State.WAITING:
        return head.state is State.CANCELED
    tenant, flow = head.tenant, head.id
    helper = NewJob(
        tenant=tenant,
        id=own_id(flow, CANCEL),
        queue=QUEUE,
        envelope=own_envelope(CANCEL, {}),
        rules=OWN_RULES,
        delay_us=HELP_DELAY_US,
    )
    [made] = await store.enqueue([helper])
    marked = await mark(store, tenant, flow, by)
    payload = head_of(head)
    if marked:
        await cancel_nodes(store, tenant, flow, payload, by)
        if made.error is not None:  # The tenant was full. Now it has room.
            await store.enqueue([helper])
    if not marked or not payload.maps:
        # The helper stays where there are maps: one may be making jobs at this moment.
        await store.cancel([Ref(tenant, helper.id)])
    return marked


async def mark(store: Store, tenant: str, flow: str, by: By | None = None) -> bool:
    """Says to the head that its flow is to be canceled. False if it has ended."""
    [answer] = await store.signal([Signal(tenant, flow, CANCEL_SIGNAL, b"true")], by=by)
    if answer.error is None or isinstance(answer.error, JobCanceled):
        return True
    if isinstance(answer.error, Refused):
        return False
    raise answer.error


async def cancel_nodes(
    store: Store, tenant: str, flow: str, head: Head, by: By | None = None
) -> None:
    """Cancels what has not ended of a flow. Safe to repeat."""
    ids = head.own(flow)
    await _cancel(store, tenant, ids[::-1], by)
    if head.begins:
        await _cancel(store, tenant, [own_id(flow, BEGIN)], by)
    maps = [node_id(made, number) for made, number in each_node(head.maps) if made == flow]
    for first in range(0, len(maps), NODES_READ):
        part = maps[first : first + NODES_READ]
        async for job, journal in with_journals(store, tenant, part):
            for entry in journal.entries:
                if (entry.kind, entry.name) == (EntryKind.JOIN, ITEMS):
                    total = join_of(entry).total
                    children = [child_id(job, ITEMS, number) for number in range(total)]
                    await _cancel(store, tenant, children, by)


async def _cancel(store: Store, tenant: str, ids: list[str], by: By | None) -> None:
    for first in range(0, len(ids), BATCH_MAX):
        refs = [Ref(tenant, id) for id in ids[first : first + BATCH_MAX]]
        await store.cancel(refs, by=by)


class Canceling(msgspec.Struct, frozen=True):
    """What the helper does, in its runs."""

    store: Store

    async def finish(self, tenant: str, flow: str) -> bool:
        """Finishes a cancel. Returns whether it should look again, because a map may still make
        jobs.
        """
        if not await mark(self.store, tenant, flow):
            return False
        page = await self.store.find(Find(select=Selection(tenant=tenant, ids=(flow,)), limit=1))
        for head in page.jobs:
            payload = head_of(head)
            await cancel_nodes(self.store, tenant, flow, payload)
            return bool(payload.maps)
        return False
