"""Flows: start, list, show, cancel and retry them."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, Meta

from holdfast.core.bounds import BATCH_MAX, FLOWS_PAGE_MAX, NODES_READ
from holdfast.core.errors import FlowRefused, QueueFull
from holdfast.fields import Strict
from holdfast.service.api.jobs import IDEMPOTENCY_HEADER, cursor
from holdfast.service.api.permissions import over_queues
from holdfast.service.aside import NODE_COST, aside
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.flow_wire import (
    FlowCanceledOut,
    FlowNodeOut,
    FlowNodesOut,
    FlowOut,
    FlowRetriedOut,
    FlowRetryIn,
    FlowsOut,
    FlowStartedOut,
)
from holdfast.service.render import when
from holdfast.types import foreign_type
from holdfast.workflow.calls import check_supported
from holdfast.workflow.plan import Plan, plan_flow
from holdfast.workflow.run import FlowRun, FlowState, FlowStatus
from holdfast.workflow.start import start as begin
from holdfast.workflow.written import FlowIn, flow_from


class Listing(Strict):
    """Filters for flows. Separate states by commas."""

    LISTS: ClassVar[frozenset[str]] = frozenset({"state"})
    state: tuple[FlowState, ...] = ()
    name: str | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=FLOWS_PAGE_MAX)] = 100


class NodesQuery(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: Annotated[int, Meta(ge=0)] | None = None
    limit: Annotated[int, Meta(ge=1, le=NODES_READ)] = 100


async def start(call: Call) -> Status:
    """Starts a flow: 201, or 200 if one of this name and key was started before. All of its jobs
    are stored, or none.
    """
    over_queues(call)
    check_supported(call.service.store)
    body: FlowIn = call.body
    service, key = call.service, call.header(IDEMPOTENCY_HEADER)
    jobs = body.jobs()
    known = await service.types.known({job.type for job in jobs})
    service.charge(call.caller, len(jobs) // BATCH_MAX)  # It is as much work as so many batches.

    fresh = key is None and body.key is UNSET

    def plan() -> Plan:
        flow = flow_from(
            body,
            lambda name: known.get(name) or foreign_type(name),
            key=key,
            payload_max=service.payload_max,
        )
        return plan_flow(flow.built(), call.tenant, service.enqueuer, fresh=fresh)

    size = sum(len(bytes(value)) for job in jobs for value in job.args.values())
    planned = await aside(size + len(jobs) * NODE_COST, plan)
    try:
        created = await begin(service.store, service.enqueuer.whole, planned, fresh=fresh)
    except FlowRefused as error:
        if isinstance(error.__cause__, QueueFull):  # Told as to an enqueue: try again later.
            raise error.__cause__ from error
        raise
    unknown = tuple(sorted({job.type for job in jobs} - known.keys()))
    told = FlowStartedOut(id=planned.id, created=created, unknown_types=unknown)
    return Status(201 if created else 200, told)


async def every(call: Call) -> FlowsOut:
    """A page of flows, newest first."""
    over_queues(call)
    query: Listing = call.query
    page = await call.view.flows(
        name=query.name,
        states=query.state,
        after=None if query.cursor is None else cursor(query.cursor),
        limit=query.limit,
    )
    more = None if page.cursor is None else str(page.cursor)
    return FlowsOut(flows=[_out(flow) for flow in page.flows], cursor=more)


async def get(call: Call) -> FlowOut:
    """How far a flow is."""
    return _out(await _run(call).status())


async def nodes(call: Call) -> FlowNodesOut:
    """A page of the nodes of a flow, by number."""
    query: NodesQuery = call.query
    found = await _run(call).nodes(after=query.after, limit=query.limit)
    more = found[-1].number if len(found) == query.limit else None
    shown = [FlowNodeOut(**msgspec.structs.asdict(node)) for node in found]
    return FlowNodesOut(nodes=shown, after=more)


async def cancel(call: Call) -> FlowCanceledOut:
    """Cancels every node that has not ended. Then the completed nodes are undone, and the last jobs
    of the flow run.
    """
    run = _run(call)
    return FlowCanceledOut(id=run.id, canceled=await run.cancel(by=call.by))


async def retry(call: Call) -> Status:
    """Starts a new run of a flow that has ended: 201, or 200 if it was retried before."""
    run = _run(call)
    body = FlowRetryIn() if call.body is None else call.body
    again = await run.retry(body.mode)
    told = FlowRetriedOut(id=run.id, retried_as=again.id, created=again.created)
    return Status(201 if again.created else 200, told)


def _run(call: Call) -> FlowRun:
    over_queues(call)
    return call.view.flow(call.job().id)


def _out(flow: FlowStatus) -> FlowOut:
    return FlowOut(
        id=flow.id,
        name=flow.name,
        state=flow.state,
        total=flow.total,
        left=flow.left,
        failed=flow.failed,
        taken=flow.taken,
        created_at=when(flow.created_at),
        finished_at=when(flow.finished_at),
        error=flow.error,
        origin=flow.origin,
    )
