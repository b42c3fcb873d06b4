"""The jobs of a flow, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.core.bounds import BATCH_MAX, WHOLE_BYTES_MAX
from holdfast.core.clock import Micros
from holdfast.core.codec import REFS
from holdfast.core.errors import HoldfastError, InvalidInput
from holdfast.core.flow import (
    BEGIN,
    GUARD,
    HEAD,
    KEPT,
    MAP,
    OWN_RULES,
    QUEUE,
    Guard,
    Head,
    NodeFields,
    Results,
    node_id,
    numbers_of,
    own_envelope,
    own_id,
)
from holdfast.core.job import Envelope, NewJob, Rules
from holdfast.core.journal import Edge, OnFailure
from holdfast.core.placeholder import Placeholder
from holdfast.core.spec import JobSpec, spec_of
from holdfast.enqueue import Enqueuer
from holdfast.whole import job_bytes
from holdfast.workflow.flow import Flow, MapNode, Node
from holdfast.workflow.order import ordered
from holdfast.workflow.work import Work, naming

CALL_MAX = BATCH_MAX - 1
"""Nodes that one call can make, besides the head."""


class Begins(msgspec.Struct, frozen=True):
    """The jobs with which a flow begins that is made by several calls."""

    guard: NewJob
    """Removes what a start that was cut off has left; made first."""
    begin: NewJob
    """Releases the first nodes; made last."""


class Plan(msgspec.Struct, frozen=True):
    """A flow in the form in which it is stored."""

    id: str
    tenant: str
    payload: Head
    head: NewJob
    nodes: Sequence[NewJob]
    """Those that come last first, so that each is there when one before it ends."""
    begins: Begins | None
    """What a flow needs besides that is too large for one call."""
    names: Callable[[], Mapping[str, str]]
    """What each job is called in an error, by its id."""


class Draft(msgspec.Struct, frozen=True):
    """What the jobs of a run are made of."""

    id: str
    tenant: str
    payload: Head
    rules: Rules
    """How long the head is kept."""
    nodes: Sequence[NewJob]
    """By number, without the ones that an earlier run has completed."""
    names: Callable[[], Mapping[str, str]]
    seal: Callable[[str, Head], Envelope]
    fresh: bool = False
    """Whether its id was made for this very start."""


def plan_flow(flow: Flow, tenant: str, enqueuer: Enqueuer, *, fresh: bool) -> Plan:
    """The jobs of a new flow. Raises InvalidInput, which names what is wrong. `fresh`: no start of
    it has begun before, so no job of it can be there.
    """
    return laid_out(_Drafting(flow, tenant, enqueuer, fresh=fresh).draft())


def laid_out(draft: Draft) -> Plan:
    """The jobs in their order: with a begin, if one call cannot make them all."""
    nodes = [node for node in reversed(draft.nodes) if node.parents]
    first = [node for node in draft.nodes if not node.parents]
    begins = None
    large = len(draft.nodes) > CALL_MAX or sum(map(job_bytes, draft.nodes)) > WHOLE_BYTES_MAX
    if large:
        edges = [Edge(node.id, "", OnFailure.FAIL) for node in first]
        kept = Edge(draft.id, KEPT, OnFailure.RUN)
        begins = Begins(
            _own(draft, GUARD, Guard(draft.payload.nodes, b=True)),
            _own(draft, BEGIN, {}, edges=(*edges, kept)),
        )
        first = [msgspec.structs.replace(node, parents=1) for node in first]
    payload = draft.payload
    if large:
        payload = msgspec.structs.replace(payload, begins=True)
    head = NewJob(
        tenant=draft.tenant,
        id=draft.id,
        queue=QUEUE,
        envelope=draft.seal(HEAD, payload),
        rules=_own_rules(draft.rules.keep_us, draft.rules.keep_failed_us),
        tags=(payload.name,),
        origin=payload.origin,
        parents=len(draft.nodes),
        ends_with_parents=not payload.last,
        fresh=draft.fresh,
    )
    return Plan(
        id=draft.id,
        tenant=draft.tenant,
        payload=payload,
        head=head,
        nodes=[*nodes, *first],
        begins=begins,
        names=lambda: {draft.id: f"its head, of {payload.name!r}", **draft.names()},
    )


@lru_cache
def _own_rules(keep_us: Micros, keep_failed_us: Micros) -> Rules:
    """The rules of a job of the library that people look at."""
    return msgspec.structs.replace(OWN_RULES, keep_us=keep_us, keep_failed_us=keep_failed_us)


def _own(draft: Draft, type: str, payload: object, **fields: Any) -> NewJob:
    return NewJob(
        tenant=draft.tenant,
        id=own_id(draft.id, type),
        queue=QUEUE,
        envelope=own_envelope(type, payload),
        rules=OWN_RULES,
        **fields,
    )


class _Drafting:
    """Makes the jobs of one flow."""

    def __init__(self, flow: Flow, tenant: str, enqueuer: Enqueuer, *, fresh: bool) -> None:
        self._flow = flow
        self._tenant = tenant
        self._enqueuer = enqueuer
        self._nodes = ordered(flow)
        self._id = flow.id_of(tenant)
        self._number = {node: number for number, node in enumerate(self._nodes)}
        self._ids = [node_id(self._id, number) for number in range(len(self._nodes))]
        self._fresh = fresh

    def draft(self) -> Draft:
        flow, ids, nodes = self._flow, self._ids, self._nodes
        edges: list[list[Edge]] = [[] for _ in nodes]
        for id, node in zip(ids, nodes, strict=True):
            for parent, how in node.parents.items():
                edges[self._number[parent]].append(Edge(id, "", how))
        to_head = Edge(self._id, "", OnFailure.RUN)
        for each in edges:
            each.append(to_head)
        jobs = list(map(self._node, nodes, ids, edges))
        maps = [number for number, node in enumerate(nodes) if isinstance(node, MapNode)]
        payload = Head(
            name=flow.name,
            nodes=len(jobs),
            maps=numbers_of((self._id, number) for number in maps) if maps else {},
            undo=self._undo() if flow.compensations else (),
            last=tuple(self._named("finally_", self._spec, work) for work in flow.last),
        )
        return Draft(
            id=self._id,
            tenant=self._tenant,
            payload=payload,
            rules=self._enqueuer.rules,
            nodes=jobs,
            names=lambda: {id: node.name for id, node in zip(ids, nodes, strict=True)},
            seal=self._enqueuer.own_payload,
            fresh=self._fresh,
        )

    def _undo(self) -> tuple[tuple[int, JobSpec], ...]:
        undo = [(self._number[node], node, work) for node, work in self._flow.compensations.items()]
        return tuple(
            (number, self._named(f"undo of {node.name}", self._spec, work))
            for number, node, work in sorted(undo, key=lambda one: one[0])
        )

    def _node(self, node: Node, id: str, edges: list[Edge]) -> NewJob:
        make = self._map if isinstance(node, MapNode) else self._job
        made: NewJob = self._named(node, make, node, id, tuple(edges))
        return made

    def _named(self, of: Node | str, make: Callable[..., Any], *given: Any) -> Any:
        """What `make` returns; an error names the node."""
        try:
            return make(*given)
        except HoldfastError as error:
            name = of if isinstance(of, str) else of.name
            if isinstance(error, InvalidInput):
                raise naming(name, error) from error
            error.add_note(f"node {name} of flow {self._flow.name!r}")
            raise

    def _job(self, node: Node, id: str, edges: tuple[Edge, ...]) -> NewJob:
        # The builder has checked what is given here.
        fields = NodeFields(id, edges, len(node.parents), self._fresh)
        return self._enqueuer.plan_node(self._tenant, node.job, self._refs, node=fields)

    def _map(self, node: MapNode[Any], id: str, edges: tuple[Edge, ...]) -> NewJob:
        made = self._enqueuer.type_of(node.kind)
        spec = JobSpec(
            type=made.name,
            codec=made.codec,
            version=made.version,
            body=b"",
            queue=made.queue,
            priority=made.priority,
            rules=made.rules,
        )
        args = {"spec": spec, "field": node.field, "most": node.most}
        payload = {"args": args, "refs": {"over": self._refs(node.over)}}
        keep = self._enqueuer.rules
        return NewJob(
            tenant=self._tenant,
            id=id,
            queue=QUEUE,
            envelope=Envelope(MAP, REFS, 1, msgspec.json.encode(payload)),
            rules=_own_rules(keep.keep_us, keep.keep_failed_us),
            edges=edges,
            parents=len(node.parents),
            fresh=self._fresh,
        )

    def _spec(self, work: Work) -> JobSpec:
        """A job in the form in which the head keeps it: encoded, on every store."""
        job = self._enqueuer.plan_node(self._tenant, work, self._refs, encoded=True)
        for name, value in (("key", job.key), ("run_at", job.run_at), ("delay", job.delay_us)):
            if value:
                raise InvalidInput(field=name, why="is not for the jobs at the end of a flow")
        return spec_of(job)

    def _refs(self, place: Placeholder) -> Results:
        nodes = [(self._id, self._number[node]) for node in place.nodes if isinstance(node, Node)]
        if len(nodes) != len(place.nodes):
            why = "has the results of something that is no node of the flow"
            raise InvalidInput(field="payload", why=why)
        return Results(how=place.how, nodes=numbers_of(nodes))
