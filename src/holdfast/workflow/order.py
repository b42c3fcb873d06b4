"""The order of the nodes of a flow, or the cycle that it has."""

from __future__ import annotations

import heapq

from holdfast.core.errors import InvalidInput
from holdfast.workflow.flow import Flow, Node


def ordered(flow: Flow) -> list[Node]:
    """The nodes, each after those that it comes after, otherwise as they were added. Raises
    InvalidInput, which names the path, if there is a cycle.
    """
    if all(parent.index < node.index for node in flow.nodes for parent in node.parents):
        return list(flow.nodes)  # Most flows: each node was added after those it comes after.
    position = {node: number for number, node in enumerate(flow.nodes)}
    left = {node: len(node.parents) for node in flow.nodes}
    children: dict[Node, list[Node]] = {node: [] for node in flow.nodes}
    for node in flow.nodes:
        for parent in node.parents:
            children[parent].append(node)
    free = [position[node] for node, parents in left.items() if parents == 0]
    heapq.heapify(free)
    found: list[Node] = []
    while free:
        node = flow.nodes[heapq.heappop(free)]
        found.append(node)
        for child in children[node]:
            left[child] -= 1
            if left[child] == 0:
                heapq.heappush(free, position[child])
    if len(found) < len(flow.nodes):
        path = " -> ".join(node.name for node in _cycle(left))
        raise InvalidInput(field="flow", why=f"{flow.name!r} has a cycle: {path}")
    return found


def _cycle(left: dict[Node, int]) -> list[Node]:
    """One cycle among the nodes that still have parents: the first node is also the last."""
    node = next(node for node, parents in left.items() if parents)
    path: dict[Node, int] = {}
    while node not in path:
        path[node] = len(path)
        node = next(parent for parent in node.parents if left[parent])
    around = list(path)[path[node] :]
    return [node, *reversed(around[1:]), node]
