"""The part of the machine that makes jobs which depend on jobs, and cancels whole flows of them."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from holdfast.core.bounds import LIMIT_QUIET_S, PRUNE_MAX, RELEASE_MAX
from holdfast.core.clock import SECOND, Micros
from holdfast.core.flow import CANCEL_SIGNAL
from holdfast.core.job import NewJob, State
from holdfast.core.journal import Edge, OnFailure
from holdfast.store import Act, Claim, Ref
from holdfast.testing.contract.builders import changing, job, rules
from holdfast.testing.contract.machine_durable import DurableRules
from holdfast.testing.contract.strategies import JOINS, options, picks, tenants

RUN = OnFailure.RUN
hows = st.sampled_from([OnFailure.FAIL, OnFailure.FAIL, RUN, OnFailure.SKIP])
nodes = st.tuples(options, st.lists(st.tuples(st.integers(1, 3), hows), max_size=2))
"""Options of a job, and its parents: how many places before it, and what their failure does."""
strays = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["", *JOINS]), hows, picks), max_size=2
)
"""Edges from a node to any other job, to one that comes later, or to nobody."""
YEAR: Micros = 366 * 24 * 3600 * SECOND
CLAIMS_MAX = 3
"""Claims after which what one call has left of a job's edges must be followed."""
Parents = list[tuple[int, OnFailure]]
Stray = tuple[int, str, OnFailure, int]


class FlowRules(DurableRules):
    """Small graphs of jobs, flows with a head, and jobs with more edges than one call follows."""

    def __init__(self) -> None:
        super().__init__()
        self.flows: list[tuple[str, list[str]]] = []
        """Tenant, then the head and the nodes of each flow."""
        self.wide = 0
        """How many jobs with very many edges there were."""

    @precondition(lambda self: self.store.capabilities.steps)
    @rule(
        tenant=tenants,
        drawn=st.lists(nodes, min_size=2, max_size=5),
        stray=strays,
        off=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        children_first=st.booleans(),
    )
    def graph(
        self,
        tenant: str,
        drawn: list[tuple[dict[str, Any], Parents]],
        stray: list[Stray],
        off: int,
        children_first: bool,
    ) -> None:
        """P17: chains, diamonds, forks; `off` makes a job await one parent more or less."""
        now = self.step()
        jobs = self.laid_out(tenant, drawn, None, off)
        for place, name, how, pick in stray:
            each = jobs[place % len(jobs)]
            others = [item.new.id for item in self.model.of(tenant)]
            others += [jobs[pick % len(jobs)].id, f"j{self.made + 1}", "nobody"]
            edge = Edge(others[pick % len(others)], name, how)
            jobs[place % len(jobs)] = msgspec.structs.replace(each, edges=(*each.edges, edge))
        self.add(jobs[::-1] if children_first else jobs, now)
        self.note_whole(jobs)

    def laid_out(
        self,
        tenant: str,
        drawn: list[tuple[dict[str, Any], Parents]],
        head: str | None,
        off: int = 0,
    ) -> list[NewJob]:
        """The jobs of a graph; with a head, each of them leads to it."""
        ids = [self.new_id() for _ in drawn]
        edges: list[list[Edge]] = [[] for _ in drawn]
        numbers = [0] * len(drawn)
        for place, (_, parents) in enumerate(drawn):
            for back, how in parents:
                if place >= back:
                    edges[place - back].append(Edge(ids[place], "", how))
                    numbers[place] += 1
        if numbers[-1]:
            numbers[-1] += off
        if head is not None:
            for each in edges:
                each.append(Edge(head, "", RUN))
        return [
            job(id, **{**own, "tenant": tenant}, edges=tuple(to), parents=number)
            for id, (own, _), to, number in zip(ids, drawn, edges, numbers, strict=True)
        ]

    def note_whole(self, jobs: list[NewJob]) -> None:
        for each in jobs:
            item = self.model.get(each.tenant, each.id)
            if item is not None:
                item.whole = len(list(self.model.edges_to(item))) == each.parents

    @invariant()
    def check_waits(self) -> None:
        """P17: nothing waits whose parents have all ended."""
        for item in self.model.items:
            if item.whole and item.state is State.WAITING:
                assert any(not parent.over for parent in self.model.edges_to(item))

    # -- flows -----------------------------------------------------------------------------------

    @precondition(lambda self: self.store.capabilities.steps)
    @rule(tenant=tenants, drawn=st.lists(nodes, min_size=1, max_size=4), own=options)
    def start_flow(
        self, tenant: str, drawn: list[tuple[dict[str, Any], Parents]], own: dict[str, Any]
    ) -> None:
        now = self.step()
        keyless = [({**each, "key": None}, parents) for each, parents in drawn]
        id = self.new_id()
        jobs = self.laid_out(tenant, keyless, id)
        options = {**own, "tenant": tenant, "key": None, "ttl_us": None}
        head = job(id, **options, parents=len(jobs))
        self.add([head, *jobs], now)
        self.note_whole([head])
        self.flows.append((tenant, [id, *(each.id for each in jobs)]))

    @precondition(lambda self: self.flows)
    @rule(pick=picks, cut_off=st.sampled_from([False, False, True]), backwards=st.booleans())
    def cancel_flow(self, pick: int, cut_off: bool, backwards: bool) -> None:
        """P5, P17: first the mark, then the nodes; one that was cut off can be finished. After it
        no node is alive, and the head has what it awaited.
        """
        now = self.step()
        tenant, [id, *ids] = self.flows[-1 - pick % min(len(self.flows), 3)]
        self.send(tenant, id, CANCEL_SIGNAL, now)
        if cut_off:
            return
        order = ids[::-1] if backwards else ids
        answers = self.run(self.store.cancel([Ref(tenant, each) for each in order]))
        expected = [self.model.cancel((tenant, each), now) for each in order]
        assert [answer.canceled for answer in answers] == [bool(each) for each in expected]
        self.follow()
        found = [self.model.get(tenant, each) for each in ids]
        assert all(item is None or item.over for item in found)
        head, shown = self.model.get(tenant, id), self.peek(tenant, id)
        if head is not None and head.whole:
            assert shown is not None
            assert shown.state is not State.WAITING

    # -- more edges than one call follows --------------------------------------------------------

    @precondition(lambda self: self.store.capabilities.steps and self.wide < 2)
    @rule(
        own=options,
        how=hows,
        now_and_then=st.sampled_from([False, False, True]),
        meanwhile=st.sampled_from(["", "prune", "delete"]),
    )
    def end_a_wide_job(
        self, own: dict[str, Any], how: OnFailure, now_and_then: bool, meanwhile: str
    ) -> None:
        """P17: claims follow what the call that ended it has left, whatever becomes of the job."""
        if not now_and_then:
            return
        now = self.step()
        self.wide += 1
        first, second, last = self.new_id(), self.new_id(), self.new_id()
        nobody = [Edge(f"nobody{number}", "", how) for number in range(RELEASE_MAX)]
        edges = (*nobody, Edge(first, "", how), Edge(second, "", RUN))
        options = {**own, "key": None, "ttl_us": None}
        kept = rules(keep_us=0, keep_failed_us=0)
        wide = job(self.new_id(), **{**options, "rules": kept}, edges=edges)
        to = (Edge(last, "", OnFailure.FAIL),)
        middle = [job(id, **options, edges=to, parents=1) for id in (first, second)]
        self.add([wide, *middle, job(last, **options, parents=2)], now)
        [answer] = self.run(self.store.cancel([Ref(wide.tenant, wide.id)]))
        assert answer.canceled
        self.model.cancel((wide.tenant, wide.id), now)
        if meanwhile == "prune":
            self.run(self.store.prune(PRUNE_MAX, YEAR))
        elif meanwhile == "delete":
            wish = changing(Act.DELETE, wide.tenant, ids=(wide.id,))
            assert len(self.run(self.store.change(wish)).done) == 1
            item = self.model.get(wide.tenant, wide.id)
            assert item is not None
            self.model.delete(item, now)
        self.follow_what_is_left(Ref(wide.tenant, second))
        self.follow()
        if meanwhile == "prune":
            gone = [item for many in self.model.prunable(now) for item in many]
            self.model.pruned([item for item in gone if self.peek(*item.name) is None], now)

    def follow_what_is_left(self, last: Ref) -> None:
        """Claims that find nothing, until the last edge has been followed. A store that has seen
        that all of it is at its limit may look again a moment later only.
        """
        for _ in range(CLAIMS_MAX):
            self.claims += 1
            claim = Claim(
                worker="w1",
                nonce=f"n{self.claims}",
                limit=1,
                lease_us=SECOND,
                queues=("nobody",),
            )
            assert self.run(self.store.claim(claim)) == []
            found = self.peek(last.tenant, last.id)
            if found is None or found.state is not State.WAITING:
                return
            self.clock.advance(LIMIT_QUIET_S)
        raise AssertionError("edges were not followed")
