"""The builder of a flow. Nothing here reaches a store: `plan.py` makes the jobs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

import uuid_utils

from holdfast.core.bounds import (
    EDGES_MAX,
    FINALLY_MAX,
    FLOW_DEPTH_MAX,
    FLOW_EDGES_MAX,
    FLOW_NODES_MAX,
    KEY_MAX,
    MAP_MAX,
    UNDO_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.errors import InvalidInput
from holdfast.core.flow import check_flow_name, flow_id
from holdfast.core.journal import OnFailure
from holdfast.core.placeholder import How, Placeholder
from holdfast.typed import AnyJob, Job, JobFunction, JobType, Pending, Planned, the_job
from holdfast.workflow.work import (
    Work,
    each_of,
    how_of,
    kind_of,
    moved,
    moved_place,
    name_of,
    places_of,
)

R = TypeVar("R")


class Owner:
    """Says which flow a node belongs to.

    A node does not refer to its flow, which refers to it: then only the collector of cycles would
    free the flow.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Node:
    """One job of a flow, for `after=`."""

    __slots__ = ("children", "index", "job", "name", "owner", "parents")

    def __init__(self, owner: Owner, index: int, name: str) -> None:
        self.owner = owner
        self.index = index
        """Its position in the flow."""
        self.name = f"{name}#{index}"
        """Its type and its position, for people."""
        self.parents: dict[Node, OnFailure] = {}
        self.children = 0
        """How many nodes come after it."""
        self.job: Work = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.owner.name}>"


class JobNode(Node, Generic[R]):
    """A node that `flow.add` has made."""

    __slots__ = ()

    def result(self) -> R:
        """Stands for the node's result, as an argument of a later job of the flow."""
        return cast(R, Placeholder(How.RESULT, (self,)))


class MapNode(Node, Generic[R]):
    """A node that `flow.map` has made: a job for each item of a list."""

    __slots__ = ("field", "kind", "most", "over")

    over: Placeholder
    most: int
    field: str
    """The argument that gets the item."""
    kind: type[Job[Any]] | JobType

    def results(self) -> list[R]:
        """Stands for the results of these jobs, in the order of the items."""
        return cast(list[R], Placeholder(How.MAP, (self,)))


class Nodes(tuple[Node, ...]):
    """Several nodes, for `after=`: the last ones of a flow that was added to another."""


After: TypeAlias = Node | Iterable[Node]


class Flow:
    """Jobs that depend on jobs. `await acme.start(flow)` starts it.

    With a key it is started once: a further start of the same name and key finds the same run.
    """

    def __init__(self, name: str, *, key: str | None = None) -> None:
        self.name = check_flow_name(name)
        self.key = None if key is None else check_name("key", key, KEY_MAX)
        self.nodes: list[Node] = []
        self.compensations: dict[Node, Work] = {}
        self.last: list[Work] = []
        self.edges = 0
        self.depth = 1
        self._owner = Owner(self.name)
        self._copies: dict[Node, Node | None] = {}
        """Nodes of flows that were added to this one: their copies; None for one added twice."""
        self.unsent = True
        """Whether no start has begun, so that no job of it can be there."""
        self._own = uuid_utils.uuid7().hex
        self._sealed: str | None = None
        """Why nothing can be added any more."""

    def id_of(self, tenant: str) -> str:
        """The id of its run: the same for each start."""
        return f"flow-{self._own}" if self.key is None else flow_id(tenant, self.name, self.key)

    # -- building --------------------------------------------------------------------------------

    @overload
    def add(
        self, job: Flow, *, after: After = (), on_failure: OnFailure | str = "fail"
    ) -> Nodes: ...
    @overload
    def add(
        self, job: AnyJob[R], *, after: After = (), on_failure: OnFailure | str = "fail"
    ) -> JobNode[R]: ...
    def add(self, job: Any, *, after: After = (), on_failure: OnFailure | str = "fail") -> Any:
        """Adds a job that runs when the nodes `after` have ended, and those whose results it has as
        arguments. `on_failure` says what happens if one of them has not completed: "fail" fails
        this one too, "run" runs it all the same, "skip" cancels it.

        Another flow is copied into this one; returns its last nodes.
        """
        how = how_of(on_failure)
        parents = self._nodes_of(after)
        if isinstance(job, Flow):
            return self._inline(job, parents, how)
        work = self._work(job)
        node: JobNode[Any] = JobNode(self._owner, len(self.nodes), name_of(work))
        node.job = work
        return self._grown(node, [*parents, *self._sources(work)], how)

    @overload
    def map(
        self,
        job_type: JobFunction[..., R],
        *,
        over: Node,
        most: int = MAP_MAX,
        after: After = (),
        on_failure: OnFailure | str = "fail",
    ) -> MapNode[R]: ...
    @overload
    def map(
        self,
        job_type: type[Job[R]],
        *,
        over: Node,
        most: int = MAP_MAX,
        after: After = (),
        on_failure: OnFailure | str = "fail",
    ) -> MapNode[R]: ...
    def map(
        self,
        job_type: Any,
        *,
        over: Node,
        most: int = MAP_MAX,
        after: After = (),
        on_failure: OnFailure | str = "fail",
    ) -> MapNode[Any]:
        """Adds a node that makes a job of each item of a list, the result of the node `over`. The
        item is the first argument of the job. The node ends when all of them have ended; it fails
        if one of them fails, or if there are more than `most`.
        """
        how = how_of(on_failure)
        if how is OnFailure.RUN:
            why = "of a map is 'fail' or 'skip': without a list there is nothing to run"
            raise InvalidInput(field="on_failure", why=why)
        each = each_of(job_type)
        source = self._node(over)
        node: MapNode[Any] = MapNode(self._owner, len(self.nodes), each.name)
        node.kind, node.field = each.kind, each.field
        node.most = check_whole("most", most, 0, MAP_MAX)
        whole = How.MAP if isinstance(source, MapNode) else How.RESULT
        node.over = Placeholder(whole, (source,))
        self._grown(node, [*self._nodes_of(after), source], how)
        return node

    def link(self, first: Node, then: Node, *, on_failure: OnFailure | str = "fail") -> None:
        """Makes a node come after another, when both are there already."""
        self._check_open()
        self._connect(self._node(then), [self._node(first)], how_of(on_failure))

    def undo(self, node: Node, job: Any) -> None:
        """Says what undoes a node: a job, or a job type, whose first argument is then the result of
        the node. If the flow does not complete, what undoes its completed nodes runs when all nodes
        have ended, in the reverse order of their ends, one after the other.
        """
        self._check_open()
        done = self._node(node)
        if done in self.compensations:
            raise InvalidInput(field="undo", why=f"{done.name} has one already")
        if len(self.compensations) == UNDO_MAX:
            raise InvalidInput(field="undo", why=f"a flow has at most {UNDO_MAX}")
        if isinstance(job, JobFunction) or (inspect.isclass(job) and issubclass(job, Job)):
            how = How.MAP if isinstance(done, MapNode) else How.RESULT
            fields = kind_of(job).__struct_fields__
            job = job(**{fields[0]: Placeholder(how, (done,))}) if fields else job()
        self.compensations[done] = self._work(job)

    def finally_(self, job: AnyJob[Any]) -> None:
        """Adds a job that runs once at the end of the flow, whether it has completed, has failed or
        was canceled.
        """
        self._check_open()
        if len(self.last) == FINALLY_MAX:
            raise InvalidInput(field="finally_", why=f"a flow has at most {FINALLY_MAX}")
        self.last.append(self._work(job))

    def results(self, nodes: Iterable[JobNode[R]]) -> list[R]:
        """Stands for the results of several nodes, in the order in which they were added."""
        found = [self._node(node) for node in nodes]
        if not all(isinstance(node, JobNode) for node in found):
            raise InvalidInput(field="nodes", why="has a map; use its own results()")
        return cast(list[R], Placeholder(How.NODES, found))

    def built(self) -> Flow:
        """The flow, which can no longer be changed. Raises InvalidInput if it is empty."""
        if not self.nodes:
            raise InvalidInput(field="flow", why=f"{self.name!r} is empty: add a job")
        self._sealed = self._sealed or "it has been started"
        return self

    # -- parts -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._sealed is not None:
            raise InvalidInput(field="flow", why=f"{self.name!r} cannot change: {self._sealed}")

    def _work(self, job: Any) -> Work:
        """The job, with its placeholders for nodes of this flow."""
        self._check_open()
        if isinstance(job, Job):
            return job
        inner = job.job if isinstance(job, Planned) else job
        if not isinstance(inner, Pending):
            the_job(job)
        if isinstance(job, Planned) and "id" in job.options:
            raise InvalidInput(field="id", why="of a node comes from its flow")
        return moved(job, self._node)

    def _sources(self, work: Work) -> list[Node]:
        """The nodes whose results a job has as arguments."""
        return [node for place in places_of(work) for node in cast(Sequence[Node], place.nodes)]

    def _grown(self, node: Any, parents: list[Node], how: OnFailure) -> Any:
        self._check_open()
        if len(self.nodes) == FLOW_NODES_MAX:
            raise InvalidInput(field="flow", why=f"has more than {FLOW_NODES_MAX} nodes")
        self._connect(node, parents, how)
        self.nodes.append(node)
        return node

    def _connect(self, node: Node, parents: list[Node], how: OnFailure) -> None:
        known = node.parents
        fresh = dict.fromkeys(parent for parent in parents if parent not in known)
        if self.edges + len(fresh) > FLOW_EDGES_MAX:
            raise InvalidInput(field="flow", why=f"has more than {FLOW_EDGES_MAX} edges")
        for parent in fresh:
            if parent.children == EDGES_MAX - 1:  # One more leads to the head.
                why = f"{parent.name} has more than {EDGES_MAX - 1} nodes after it"
                raise InvalidInput(field="after", why=why)
        for parent in fresh:
            parent.children += 1
            known[parent] = how
        self.edges += len(fresh)

    def _nodes_of(self, after: After) -> list[Node]:
        if after == ():
            return []
        if isinstance(after, Node) or not isinstance(after, Iterable):
            return [self._node(after)]
        return [self._node(node) for node in after]

    def _node(self, node: object) -> Node:
        """The node of this flow: itself, or the copy of one of a flow that was added."""
        if not isinstance(node, Node):
            why = f"must be nodes of the flow, got {type(node).__name__}"
            raise InvalidInput(field="after", why=why)
        if node.owner is self._owner:
            return node
        if node not in self._copies:
            why = f"{node.name} is a node of another flow, {node.owner.name!r}"
            raise InvalidInput(field="after", why=why)
        copy = self._copies[node]
        if copy is None:
            why = f"{node.name} is in this flow more than once, because its flow was added twice"
            raise InvalidInput(field="after", why=why)
        return copy

    def _inline(self, other: Flow, after: list[Node], how: OnFailure) -> Nodes:
        self._check_open()
        if other is self:
            why = f"contains itself: {self.name} -> {self.name}"
            raise InvalidInput(field="flow", why=why)
        if other.key is not None:
            raise InvalidInput(field="key", why="only the flow that is started can have one")
        if other.depth == FLOW_DEPTH_MAX:
            why = f"has more than {FLOW_DEPTH_MAX} levels of flows within flows"
            raise InvalidInput(field="flow", why=why)
        if not other.nodes:
            raise InvalidInput(field="flow", why=f"{other.name!r} is empty: add a job")
        _check_room(self, other)
        copies = {
            node: _copied(node, self._owner, number)
            for number, node in enumerate(other.nodes, len(self.nodes))
        }
        inner = {node for each in other.nodes for node in each.parents}
        for node, copy in copies.items():
            work = copy.job if node.job is None else moved(node.job, copies.__getitem__)
            copy.job = work
            if isinstance(copy, MapNode):
                copy.over = moved_place(copy.over, copies.__getitem__)
            for parent, edge in node.parents.items():
                self._connect(copy, [copies[parent]], edge)
            if not node.parents:
                self._connect(copy, after, how)
            self.nodes.append(copy)
        for node, job in other.compensations.items():
            self.compensations[copies[node]] = moved(job, copies.__getitem__)
        self.last += [moved(job, copies.__getitem__) for job in other.last]
        known = {old: copies[new] for old, new in other._copies.items() if new is not None}
        for old, copy in (*copies.items(), *known.items()):
            self._copies[old] = None if old in self._copies else copy
        self.depth = max(self.depth, other.depth + 1)
        other._sealed = f"it is part of {self.name!r}"
        return Nodes(copies[node] for node in other.nodes if node not in inner)


def _check_room(flow: Flow, other: Flow) -> None:
    """Refuses a flow with which another would become too large, before anything is copied."""
    for what, number, most in (
        ("nodes", len(flow.nodes) + len(other.nodes), FLOW_NODES_MAX),
        ("undo", len(flow.compensations) + len(other.compensations), UNDO_MAX),
        ("finally_", len(flow.last) + len(other.last), FINALLY_MAX),
    ):
        if number > most:
            raise InvalidInput(field=what, why=f"has {number}, at most {most}")


def _copied(node: Node, owner: Owner, index: int) -> Node:
    copy = type(node)(owner, index, node.name.rpartition("#")[0])
    if isinstance(node, MapNode) and isinstance(copy, MapNode):
        copy.over, copy.most, copy.field, copy.kind = node.over, node.most, node.field, node.kind
    return copy
