"""What a flow is in a store: its head, its nodes, and the names that are reserved for them. Pure.

A flow is a set of jobs, its nodes, and one more job, its head. The id of the head is the id of the
flow. The head is `waiting` until every node has ended: its join counts them, so it is what a reader
of the flow looks at. It completes with its last node. It runs if a node has not completed, if it
is to be canceled, or if it has last jobs: then it makes the compensations and the last jobs.

    id             type               what it does
    FLOW           holdfast.flow      the head
    FLOW-NUMBER    any                a node. A node has greater numbers than those it comes after
    FLOW-NUMBER    holdfast.map       a node that makes a job of each item of a list
    FLOW-begin     holdfast.begin     releases the first nodes of a flow that is made in several
                                      calls: the last call makes it, so all nodes run, or none
    FLOW-guard     holdfast.guard     removes what is left of such a start that was cut off
    FLOW-cancel    holdfast.cancel    finishes a cancel that was cut off
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.core.bounds import FLOW_NODES_MAX, TAG_MAX, UNDO_MAX
from holdfast.core.check import OWN, RESERVED, check_name, is_reserved
from holdfast.core.codec import JSON, REFS
from holdfast.core.job import Envelope, JobRecord, NewJob, Rules
from holdfast.core.journal import Edge
from holdfast.core.placeholder import How
from holdfast.core.spec import JobSpec

QUEUE = "holdfast.flows"
"""The queue of the jobs that the library makes for flows. Every worker serves it."""
HEAD = "holdfast.flow"
MAP = "holdfast.map"
BEGIN = "holdfast.begin"
GUARD = "holdfast.guard"
CANCEL = "holdfast.cancel"
TYPES = frozenset({HEAD, MAP, BEGIN, GUARD, CANCEL})
CANCEL_SIGNAL = "holdfast.cancel"
"""The signal to a head that says that its flow is to be canceled."""
ITEMS = "items"
"""The join of a map: the jobs of its items."""
KEPT = "holdfast.kept"
"""A join that no head has. An edge to it keeps the result of a job until the head has ended."""
NAME_MAX = TAG_MAX
"""The name of a flow is a tag of its head."""

OWN_RULES = Rules(max_attempts=100, keep_us=0, keep_failed_us=24 * 3600 * 1_000_000)
"""Of the jobs that a flow needs besides its nodes."""

Numbers = dict[str, list[tuple[int, int]]]
"""Nodes by the flow that made them: ranges of their numbers, both ends included."""


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a head."""

    name: str
    nodes: int
    """All nodes, the ones of earlier runs included."""
    maps: Numbers = {}
    """The nodes that are maps."""
    taken: Numbers = {}
    """Nodes that an earlier run has completed, so that this one does not have them again."""
    undo: tuple[tuple[int, JobSpec], ...] = ()
    """Compensations, by the number of the node that they undo."""
    last: tuple[JobSpec, ...] = ()
    """The jobs of `finally_`."""
    origin: str | None = None
    """The flow that this one retries."""
    begins: bool = False
    """Whether it has a job that releases the first nodes."""

    def ids(self, flow: str) -> list[str]:
        """The id of each node, by its number."""
        found = [node_id(flow, number) for number in range(self.nodes)]
        for origin, number in each_node(self.taken):
            found[number] = node_id(origin, number)
        return found

    def own(self, flow: str) -> list[str]:
        """The ids of the nodes that this run has made, by number."""
        taken = {number for _, number in each_node(self.taken)}
        return [node_id(flow, number) for number in range(self.nodes) if number not in taken]


class NodeFields(msgspec.Struct, frozen=True, gc=False):
    """What a job has because it is a node of a flow; see `NewJob`."""

    id: str
    edges: tuple[Edge, ...]
    parents: int
    fresh: bool


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder in the form in which it is stored."""

    how: How
    nodes: Numbers


class Pledge(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a job with placeholders: its codec is REFS."""

    args: dict[str, msgspec.Raw]
    refs: dict[str, Results]


class Guard(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a guard. It is the smallest payload of a flow, so that a cap on bytes cannot
    refuse the guard and accept a node.
    """

    n: int
    """The number of nodes, those of earlier runs included."""
    b: bool = False
    """Whether a begin is the last job that is made. Guards of flows without one are not made any
    more; those that are stored do nothing.
    """


pledge_of = msgspec.json.Decoder(Pledge).decode
_FLOW = re.compile(r"flow-[0-9a-f]{32}")
guard_of = msgspec.json.Decoder(Guard).decode
_head = msgspec.json.Decoder(Head)


def head_of(job: JobRecord) -> Head:
    """The payload of a head. Raises DecodeError of msgspec if it is none."""
    return _head.decode(job.envelope.body)


def read_head(body: Any) -> Head | None:
    """What is in the payload of a head; None if it cannot be read."""
    try:
        return _head.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return None


def own_envelope(type: str, payload: Any) -> Envelope:
    """The payload of a job of a reserved type, which is JSON on every store."""
    return Envelope(type, JSON, 1, msgspec.json.encode(payload))


def made_from(job: NewJob) -> list[str]:
    """Checks a job of a flow that comes from outside. Returns the codecs of the payloads that
    workers will make from it. Raises ValueError, or an error of msgspec.
    """
    type, body = job.envelope.type, job.envelope.body
    if is_reserved(job.queue) != (type in TYPES) or (is_reserved(type) and type not in TYPES):
        raise ValueError(RESERVED)
    if type == HEAD:
        head = _head.decode(body)
        if not 1 <= head.nodes <= FLOW_NODES_MAX or len(head.undo) > UNDO_MAX:
            raise ValueError("it has too many nodes or compensations")
        for numbers in (head.maps, head.taken):
            _check_numbers(numbers)
        return _codecs([*(spec for _, spec in head.undo), *head.last])
    if type == GUARD and not 1 <= guard_of(body).n <= FLOW_NODES_MAX:
        raise ValueError("it has too many nodes")
    if type == MAP:
        check_pledge(body)
        return _codecs([msgspec.json.decode(pledge_of(body).args["spec"], type=JobSpec)])
    if job.envelope.codec == REFS:
        check_pledge(body)
    return []


def _codecs(specs: Sequence[JobSpec]) -> list[str]:
    for spec in specs:
        if spec.checked().codec == REFS:
            check_pledge(spec.body)
    return [spec.codec for spec in specs]


def check_pledge(body: bytes) -> Pledge:
    """The payload of a job with placeholders. Raises ValueError, or an error of msgspec. A worker
    checks it too: a service cannot look into one that is encrypted.
    """
    pledge = pledge_of(body)
    for results in pledge.refs.values():
        _check_numbers(results.nodes)
    return pledge


def _check_numbers(numbers: Numbers) -> None:
    """Refuses ranges that stand for more nodes than a flow can have."""
    every = [one for ranges in numbers.values() for one in ranges]
    if any(not 0 <= first <= last < FLOW_NODES_MAX for first, last in every):
        raise ValueError("it has a node that no flow has")
    if sum(last - first + 1 for first, last in every) > FLOW_NODES_MAX:
        raise ValueError("it has too many nodes")


# -- names -----------------------------------------------------------------------------------------


def flow_id(tenant: str, name: str, key: str) -> str:
    """The id of the flow with this key."""
    text = f"{len(tenant)}:{tenant}:{len(name)}:{name}:{key}"
    return f"flow-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def retry_id(tenant: str, origin: str) -> str:
    """The id of the retry of a flow: the same for every caller, so there is one."""
    return flow_id(tenant, "", origin)


def node_id(flow: str, number: int) -> str:
    return f"{flow}-{number}"


def own_id(flow: str, type: str) -> str:
    """The id of a job that a flow needs besides its nodes."""
    return f"{flow}-{type.removeprefix(OWN)}"


def flow_of(node: str) -> str:
    """The flow that a node, or a job beside the nodes, belongs to."""
    return node.rpartition("-")[0]


def is_flow_id(id: str) -> bool:
    """Whether an id has the form of the id of a flow."""
    return _FLOW.fullmatch(id) is not None


def check_flow_name(name: object) -> str:
    return check_name("name", name, NAME_MAX)


# -- numbers ---------------------------------------------------------------------------------------


def numbers_of(nodes: Iterable[tuple[str, int]]) -> Numbers:
    """The nodes as ranges."""
    found: Numbers = {}
    for flow, number in sorted(nodes, key=lambda node: node[1]):
        ranges = found.setdefault(flow, [])
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return found


def each_node(numbers: Numbers) -> Iterator[tuple[str, int]]:
    """The nodes, by number."""
    listed = [
        (flow, number)
        for flow, ranges in numbers.items()
        for first, last in ranges
        for number in range(first, last + 1)
    ]
    return iter(sorted(listed, key=lambda node: node[1]))
