"""Retry of a flow: a new run with new jobs for some nodes, which takes over the others.

Final states are final, so the first run stays as it is. A node keeps its number in all runs of a
flow. That is how the edges of an earlier run are understood, whichever run has made the job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from holdfast.core.bounds import NODES_READ
from holdfast.core.codec import REFS, unread
from holdfast.core.errors import CodecNotFound, InvalidInput, JobNotFound, NotChangeable
from holdfast.core.flow import (
    GUARD,
    HEAD,
    Head,
    Numbers,
    each_node,
    flow_of,
    head_of,
    node_id,
    numbers_of,
    own_id,
    pledge_of,
    retry_id,
)
from holdfast.core.job import TERMINAL, JobRecord, NewJob, State
from holdfast.core.journal import Edge, EntryKind, Journal, OnFailure
from holdfast.core.mapped import (
    BLOB,
    ENCRYPTED,
    UNREADABLE,
    is_mapped,
    is_mapped_codec,
    reason_of,
)
from holdfast.core.spec import JobSpec
from holdfast.enqueue import Enqueuer
from holdfast.job_journal import with_journals
from holdfast.store import Find, Selection, Store
from holdfast.workflow.plan import Draft, laid_out
from holdfast.workflow.start import start

_NODE = re.compile(r"flow-[0-9a-f]{32}-([0-9]{1,5})")


class RetryMode(StrEnum):
    """Which nodes a retry makes again."""

    ALL = "all"
    FAILED_ONLY = "failed_only"
    """Those that have not completed."""
    FAILED_AND_DOWNSTREAM = "failed_and_downstream"
    """Those, and all nodes after them."""


class _Undone(msgspec.Struct):
    """The part of what a head remembers that a retry uses."""

    undo: Sequence[int] = ()


class Old(msgspec.Struct, frozen=True):
    """A node of the earlier run."""

    job: JobRecord
    children: Mapping[int, OnFailure]


async def retry_flow(
    store: Store, enqueuer: Enqueuer, job: JobRecord, journal: Journal, mode: RetryMode
) -> tuple[str, bool]:
    """Starts the retry; returns its id, and whether this call has started it."""
    if job.state not in TERMINAL:
        raise NotChangeable(id=job.id, state=job.state.value)
    id = retry_id(job.tenant, job.id)
    ids = (id, own_id(id, GUARD))
    known = await store.find(Find(select=Selection(tenant=job.tenant, ids=ids), limit=2))
    if [each.id for each in known.jobs] == [id]:  # It was started; there is no guard any more.
        return id, False
    head = head_of(job)
    nodes = await _read(store, job.tenant, head.ids(job.id))
    again = _again(nodes, _undone(journal), mode)
    for sealed in (nodes[number].job.envelope for number in again):
        if enqueuer.blobs is None or not sealed.codec.startswith(BLOB):
            _check_read(sealed.type, sealed.codec, sealed.body)
    for spec in (*(spec for _, spec in head.undo), *head.last):
        _check_read(spec.type, spec.codec, spec.body)
    if not again:
        why = "every node has completed; use 'all' to run them all again"
        raise InvalidInput(field="mode", why=why)
    plan = laid_out(_draft(enqueuer, job, head, nodes, again))
    return id, await start(store, enqueuer.whole, plan, fresh=False)


async def _read(store: Store, tenant: str, ids: Sequence[str]) -> list[Old]:
    """The nodes, by number. Raises JobNotFound for one whose record is gone."""
    found: list[Old] = []
    for first in range(0, len(ids), NODES_READ):
        part = ids[first : first + NODES_READ]
        jobs = {job.id: (job, each) async for job, each in with_journals(store, tenant, part)}
        for id in part:
            if id not in jobs:
                raise JobNotFound(id=id)
            job, journal = jobs[id]
            named = ((_NODE.fullmatch(edge.target), edge.on_failure) for edge in journal.edges)
            found.append(Old(job, {int(match[1]): how for match, how in named if match}))
    return found


def _check_read(type: str, codec: str, body: object) -> None:
    """Refuses a payload that this process cannot read: the jobs of the new run could not either."""
    if codec == UNREADABLE:
        raise unread(type, body)
    if is_mapped_codec(codec):
        raise CodecNotFound(codec=codec, known="those of a process with its keys or its bucket")


def _undone(journal: Journal) -> set[int]:
    """The nodes that the earlier run has undone."""
    for entry in journal.entries:
        if (entry.kind, entry.name) == (EntryKind.STEP, "ended"):
            if is_mapped(entry.value):
                known = reason_of(entry.value) is not None
                _check_read(HEAD, UNREADABLE if known else ENCRYPTED, entry.value)
            return set(msgspec.json.decode(entry.value, type=_Undone).undo)
    return set()


def _again(nodes: Sequence[Old], undone: set[int], mode: RetryMode) -> set[int]:
    """The numbers of the nodes that are made again."""
    if mode is RetryMode.ALL:
        return set(range(len(nodes)))
    again = {
        number
        for number, node in enumerate(nodes)
        if node.job.state is not State.COMPLETED or number in undone
    }
    if mode is RetryMode.FAILED_AND_DOWNSTREAM:
        for number, node in enumerate(nodes):  # Children have greater numbers.
            if number in again:
                again.update(node.children)
    return again


def _draft(
    enqueuer: Enqueuer, job: JobRecord, head: Head, nodes: Sequence[Old], again: set[int]
) -> Draft:
    tenant, id = job.tenant, retry_id(job.tenant, job.id)
    made_by = [id if number in again else flow_of(node.job.id) for number, node in enumerate(nodes)]
    parents = dict.fromkeys(again, 0)
    for number in again:
        for child in nodes[number].children:
            if child in parents:
                parents[child] += 1
    jobs = []
    for number in sorted(again):
        # Edges to nodes that are not made again lead nowhere. They stay for a retry of this one.
        edges = [Edge(node_id(id, to), "", how) for to, how in nodes[number].children.items()]
        made = _renewed(nodes[number].job, made_by)
        jobs.append(
            msgspec.structs.replace(
                made,
                id=node_id(id, number),
                edges=(*edges, Edge(id, "", OnFailure.RUN)),
                parents=parents[number],
            )
        )
    payload = Head(
        name=head.name,
        nodes=head.nodes,
        maps=_moved(head.maps, made_by),
        taken=numbers_of(
            (made, number) for number, made in enumerate(made_by) if number not in again
        ),
        undo=tuple((number, _spec(spec, made_by)) for number, spec in head.undo),
        last=tuple(_spec(spec, made_by) for spec in head.last),
        origin=job.id,
    )

    def names() -> dict[str, str]:
        return {node_id(id, number): f"{nodes[number].job.type}#{number}" for number in again}

    return Draft(id, tenant, payload, job.rules, jobs, names, enqueuer.own_payload)


def _renewed(job: JobRecord, made_by: Sequence[str]) -> NewJob:
    """A new job like this one, with the results of this run among its arguments."""
    sealed = job.envelope
    if sealed.codec == REFS:
        body = _rewritten(sealed.body, made_by)
        sealed = msgspec.structs.replace(sealed, body=body)
    return NewJob(
        tenant=job.tenant,
        id=job.id,
        queue=job.queue,
        envelope=sealed,
        rules=job.rules,
        priority=job.priority,
        ttl_us=None if job.expires_at is None else max(1, job.expires_at - job.created_at),
        key=job.key,
        group=job.group,
        tags=job.tags,
        origin=job.id,
    )


def _spec(spec: JobSpec, made_by: Sequence[str]) -> JobSpec:
    if spec.codec != REFS:
        return spec
    return msgspec.structs.replace(spec, body=_rewritten(spec.body, made_by))


def _rewritten(body: bytes, made_by: Sequence[str]) -> bytes:
    pledge = pledge_of(body)
    refs = {
        name: msgspec.structs.replace(one, nodes=_moved(one.nodes, made_by))
        for name, one in pledge.refs.items()
    }
    return msgspec.json.encode(msgspec.structs.replace(pledge, refs=refs))


def _moved(nodes: Numbers, made_by: Sequence[str]) -> Numbers:
    """The same nodes, as they are in this run."""
    return numbers_of((made_by[number], number) for _, number in each_node(nodes))
