"""Placeholders: results of other jobs, as arguments of a job that is a node of a flow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class How(StrEnum):
    """Which results a placeholder stands for."""

    RESULT = "result"
    """The result of one node."""
    MAP = "map"
    """The results of the jobs that a map has made, in the order of its items."""
    NODES = "nodes"
    """The results of several nodes, in their order."""


class Placeholder:
    """Stands for the results of nodes that have not run yet."""

    __slots__ = ("how", "nodes")

    def __init__(self, how: How, nodes: Sequence[object]) -> None:
        self.how = how
        self.nodes = tuple(nodes)

    def __repr__(self) -> str:
        return f"<the {self.how.value} of {len(self.nodes)} nodes>"
