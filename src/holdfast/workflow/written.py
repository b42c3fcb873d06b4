"""A flow written as JSON, by a client in any language: its shape, and the `Flow` it stands for.

    {"name": "nightly", "key": "2026-11-17",
     "nodes": [{"name": "pages", "type": "crawl", "args": {"site": "a"}},
               {"name": "parsed", "type": "parse", "map": {"over": "pages", "item": "page"}},
               {"name": "report", "type": "publish", "args": {"rows": {"$results": "parsed"}}}]}

The types need not be known here: then nobody checks the arguments before a worker does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.core.bounds import (
    ENTRY_NAME_MAX,
    FINALLY_MAX,
    FLOW_EDGES_MAX,
    FLOW_NODES_MAX,
    MAP_MAX,
    PAYLOAD_MAX,
)
from holdfast.core.check import check_free, check_name
from holdfast.core.codec import json_fault
from holdfast.core.errors import (
    ConfigError,
    InvalidInput,
    JobTypeNotRegistered,
    PayloadTooLarge,
    did_you_mean,
)
from holdfast.core.flow import NAME_MAX
from holdfast.core.journal import OnFailure
from holdfast.core.placeholder import How, Placeholder
from holdfast.core.retry import policy
from holdfast.enqueue import amend
from holdfast.fields import EnqueueFields, Key, LaterFields, Strict, TypeFields, TypeName, given
from holdfast.typed import Job, JobType, Pending, Planned
from holdfast.workflow.flow import Flow, JobNode, MapNode, Node, Owner
from holdfast.workflow.order import ordered
from holdfast.workflow.work import Each, Work, check_item, of_node

RESULT = "$result"
"""The one key of an argument that is the result of a node."""
RESULTS = "$results"
"""The one key of an argument that is a list: the results of a map, or of several nodes."""

NodeName = Annotated[str, Meta(min_length=1, max_length=ENTRY_NAME_MAX)]
Args = dict[str, Raw]
TypeOf = Callable[[str], JobType]
"""The job type of a name. Raises an error if there is none."""


# -- shapes ----------------------------------------------------------------------------------------


class EndIn(LaterFields, kw_only=True):
    """A job that is made at the end of a flow."""

    type: TypeName
    args: Args = msgspec.field(default_factory=dict)
    """An argument `{"$result": NODE}` stands for the result of a node, `{"$results": MAP}` or
    `{"$results": [NODE, ...]}` for those of a map or of several nodes.
    """


class MapIn(Strict):
    """Makes a node a map: a job for each item of the list that the node `over` returns."""

    over: NodeName
    item: Annotated[str, Meta(min_length=1)]
    """The argument that gets the item."""
    most: Annotated[int, Meta(ge=0, le=MAP_MAX)] = MAP_MAX


class NodeIn(EnqueueFields, kw_only=True):
    """A node. It comes after the nodes `after`, and after those whose results it has."""

    name: NodeName
    """Unique in its flow."""
    type: TypeName
    args: Args = msgspec.field(default_factory=dict)
    after: Annotated[tuple[NodeName, ...], Meta(max_length=FLOW_NODES_MAX)] = ()
    on_failure: OnFailure = OnFailure.FAIL
    map: MapIn | UnsetType = UNSET
    undo: EndIn | UnsetType = UNSET
    """Undoes the node, if the flow does not complete."""


class FlowIn(Strict, kw_only=True):
    """A flow. With a key it is started once."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    key: Key | UnsetType = UNSET
    nodes: Annotated[tuple[NodeIn, ...], Meta(min_length=1, max_length=FLOW_NODES_MAX)]
    finally_: Annotated[tuple[EndIn, ...], Meta(max_length=FINALLY_MAX)] = msgspec.field(
        default=(), name="finally"
    )
    """Jobs that run at the end, always."""

    def jobs(self) -> list[NodeIn | EndIn]:
        """All jobs that it describes."""
        undo = [node.undo for node in self.nodes if node.undo is not UNSET]
        return [*self.nodes, *undo, *self.finally_]


_NODE_FIELDS = set(NodeIn.__struct_fields__) - set(EnqueueFields.__struct_fields__)


# -- building --------------------------------------------------------------------------------------


def flow_from(
    told: FlowIn, type_of: TypeOf, *, key: str | None = None, payload_max: int = PAYLOAD_MAX
) -> Flow:
    """The flow. `key` is for one that has none. Raises InvalidInput, which names the node."""
    return _Builder(told, type_of, payload_max).flow(key if told.key is UNSET else told.key)


class _Results(msgspec.Struct, frozen=True):
    """An argument that stands for the results of nodes, by their names."""

    how: How
    names: Sequence[str]


_Values = Mapping[str, Raw | _Results]


class _Builder:
    def __init__(self, told: FlowIn, type_of: TypeOf, payload_max: int) -> None:
        self._told = told
        self._type_of = type_of
        self._payload_max = payload_max
        self._args: dict[str, _Values] = {}
        self._nodes: dict[str, Node] = {}
        self._named = 0
        """How often the flow has named a node so far."""

    def flow(self, key: str | None) -> Flow:
        told = self._told
        flow = Flow(told.name, key=key)
        for one in self._in_order():
            with of_node(one.name):
                node = self._added(flow, one)
            node.name = one.name
            self._nodes[one.name] = node
        for one in told.nodes:
            if one.undo is not UNSET:
                with of_node(f"undo of {one.name}"):
                    flow.undo(self._nodes[one.name], self._end(flow, one.undo))
        for number, end in enumerate(told.finally_):
            with of_node(f"finally[{number}]"):
                flow.finally_(self._end(flow, end))
        return flow

    def _in_order(self) -> list[NodeIn]:
        """The nodes, each after those that it comes after: they may be written in any order."""
        outline = Flow(self._told.name)
        nodes: dict[str, Node] = {}
        told: dict[Node, NodeIn] = {}
        for one in self._told.nodes:
            with of_node(one.name):
                check_name("name", one.name, ENTRY_NAME_MAX)
                if one.name in nodes:
                    raise InvalidInput(field="name", why="another node has it too")
                self._args[one.name] = self._parsed(one.args)
                self._count("after", len(one.after))
            node = nodes[one.name] = Node(Owner(outline.name), len(nodes), one.name)
            node.name = one.name
            told[node] = one
        for node, one in told.items():
            with of_node(one.name):
                for field, name in _before(one, self._args[one.name]):
                    node.parents[_found(nodes, field, name)] = one.on_failure
        outline.nodes = list(told)
        return [told[node] for node in ordered(outline)]

    def _added(self, flow: Flow, one: NodeIn) -> Node:
        after = [_found(self._nodes, "after", name) for name in one.after]
        job_type = self._type(one)
        if one.map is not UNSET:
            return self._mapped(flow, one, one.map, job_type, after)
        work = self._work(flow, job_type, self._args[one.name], _options(one, *_NODE_FIELDS))
        return cast(Node, flow.add(work, after=after, on_failure=one.on_failure))

    def _mapped(
        self, flow: Flow, one: NodeIn, told: MapIn, job_type: JobType, after: Sequence[Node]
    ) -> Node:
        if one.args:
            raise InvalidInput(field="args", why="the jobs of a map get only the item")
        options = _options(one, *_NODE_FIELDS)
        for name in options:
            if name not in TypeFields.__struct_fields__:
                raise InvalidInput(field=name, why="is not for the jobs of a map")
        if job_type.kind is not Job:
            fields = [field.encode_name for field in msgspec.structs.fields(job_type.kind)]
            if told.item not in fields:
                hint = did_you_mean(told.item, fields)
                why = f"{job_type.name!r} has no argument {told.item!r}.{hint}"
                raise InvalidInput(field="map.item", why=why)
            check_item(job_type.name, job_type.kind, told.item)
        amended = msgspec.structs.replace(
            job_type,
            queue=options.get("queue", job_type.queue),
            priority=options.get("priority", job_type.priority),
            rules=amend(job_type.rules, cast(Any, options)),
        )
        over = _found(self._nodes, "map.over", told.over)
        each: Any = Each(job_type.name, amended, told.item)
        return cast(
            Node,
            flow.map(each, over=over, most=told.most, after=after, on_failure=one.on_failure),
        )

    def _end(self, flow: Flow, one: EndIn) -> Work:
        return self._work(
            flow, self._type(one), self._parsed(one.args), _options(one, "type", "args")
        )

    def _type(self, one: NodeIn | EndIn) -> JobType:
        """The type of a job. Neither it nor the queue may be reserved."""
        try:
            found = self._type_of(check_free("type", one.type))
        except JobTypeNotRegistered as error:
            raise InvalidInput(field="type", why=str(error)) from error
        check_free("queue", found.queue if one.queue is UNSET else one.queue)
        return found

    def _work(
        self,
        flow: Flow,
        job_type: JobType,
        args: _Values,
        options: dict[str, Any],
    ) -> Work:
        values: dict[str, Any] = {}
        for name, value in args.items():
            if isinstance(value, _Results):
                values[name] = self._place(flow, f"args.{name}", value)
            else:
                values[name] = value if job_type.kind is Job else msgspec.json.decode(value)
        if job_type.kind is not Job:  # Its code is here, so it checks the arguments.
            return Planned(cast(Any, job_type.kind(**values)), options)
        places = {name: one for name, one in values.items() if isinstance(one, Placeholder)}
        known = {name: one for name, one in values.items() if name not in places}
        return Planned(cast(Any, Pending(job_type, known, places)), options)

    def _place(self, flow: Flow, field: str, told: _Results) -> Placeholder:
        nodes = [_found(self._nodes, field, name) for name in told.names]
        first, place, why = nodes[0], cast(Any, None), ""
        if told.how is How.NODES:
            why = f"has a map in a list; write {{{RESULTS!r}: NAME}} for its results"
            if not any(isinstance(node, MapNode) for node in nodes):
                place = flow.results(cast(list[JobNode[Any]], nodes))
        elif told.how is How.MAP:
            why = f"{first.name!r} is no map; write {RESULT!r}, or a list of nodes"
            if isinstance(first, MapNode):
                place = first.results()
        else:
            why = f"{first.name!r} is a map; write {RESULTS!r}"
            if isinstance(first, JobNode):
                place = first.result()
        if place is None:
            raise InvalidInput(field=field, why=why)
        return cast(Placeholder, place)

    def _parsed(self, args: Args) -> _Values:
        """The arguments. One that stands for results does so as a whole."""
        found: dict[str, Raw | _Results] = {}
        for name, raw in args.items():
            field, body = f"args.{name}", bytes(raw)
            if len(body) > self._payload_max:
                raise PayloadTooLarge(field=field, size=len(body), max=self._payload_max)
            told = _told(field, _decoded(field, body))
            if told is not None:
                self._count(field, len(told.names))
            found[name] = raw if told is None else told
        return found

    def _count(self, field: str, names: int) -> None:
        self._named += names
        if self._named > FLOW_EDGES_MAX:
            raise InvalidInput(field=field, why=f"the flow has more than {FLOW_EDGES_MAX} edges")


def _options(one: NodeIn | EndIn, *without: str) -> dict[str, Any]:
    found = given(one, *without)
    try:
        policy(found.get("retry", "default"))
    except ConfigError as error:
        raise InvalidInput(field="retry", why=str(error.facts["why"])) from error
    return found


def _found(nodes: Mapping[str, Node], field: str, name: str) -> Node:
    node = nodes.get(name)
    if node is None:
        hint = did_you_mean(name, nodes)
        raise InvalidInput(field=field, why=f"the flow has no node {name!r}.{hint}")
    return node


def _before(one: NodeIn, args: _Values) -> Iterator[tuple[str, str]]:
    """The names of the nodes that a node comes after, each with the field that says it."""
    for name in one.after:
        yield "after", name
    if one.map is not UNSET:
        yield "map.over", one.map.over
    for argument, value in args.items():
        if isinstance(value, _Results):
            for name in value.names:
                yield f"args.{argument}", name


# -- arguments -------------------------------------------------------------------------------------


def _decoded(field: str, body: bytes) -> Any:
    if (fault := json_fault(body)) is not None:
        raise InvalidInput(field=field, why=fault)
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:  # For example a number that is too large.
        raise InvalidInput(field=field, why=f"is not JSON: {error}") from None


def _told(field: str, value: Any) -> _Results | None:
    """The results that an argument stands for; None for any other value."""
    if isinstance(value, dict) and len(value) == 1:
        [(key, named)] = value.items()
        if key == RESULT:
            if not isinstance(named, str):
                raise InvalidInput(field=field, why=f"{RESULT!r} must be the name of a node")
            return _Results(How.RESULT, (named,))
        if key == RESULTS:
            if isinstance(named, str):
                return _Results(How.MAP, (named,))
            if isinstance(named, list) and named and all(isinstance(one, str) for one in named):
                return _Results(How.NODES, named)
            why = f"{RESULTS!r} must be the name of a map, or a list of names of nodes"
            raise InvalidInput(field=field, why=why)
    if _has_results(value):
        why = f"{RESULT!r} and {RESULTS!r} can only be the one key of a whole argument"
        raise InvalidInput(field=field, why=why)
    return None


def _has_results(value: Any) -> bool:
    """Whether a part of a value looks like a placeholder."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if RESULT in one or RESULTS in one:
                return True
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return False
