"""The shapes of the native API for flows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.job import State
from holdfast.fields import Strict
from holdfast.service.shapes import Out
from holdfast.workflow.retry import RetryMode
from holdfast.workflow.run import FlowState


class FlowOut(Out):
    """How far a flow is."""

    id: str
    name: str
    state: FlowState
    total: int
    """The nodes of this run."""
    left: int
    """How many have not ended."""
    failed: int
    """How many have ended without having completed."""
    taken: int
    """The nodes that this run has taken over from the one that it retries."""
    created_at: datetime | None
    finished_at: datetime | None = None
    error: str | None = None
    origin: str | None = None
    """The flow that this one retries."""


class FlowsOut(Out):
    flows: Sequence[FlowOut]
    cursor: str | None = None


class FlowNodeOut(Out):
    """A node. Without a state, its record is gone."""

    number: int
    id: str
    type: str | None = None
    state: State | None = None
    attempt: int = 0
    error: str | None = None
    taken: bool = False


class FlowNodesOut(Out):
    nodes: Sequence[FlowNodeOut]
    after: int | None = None
    """The number to continue after; absent at the end."""


class FlowCanceledOut(Out):
    id: str
    canceled: bool
    """False if all nodes had ended already."""


class FlowStartedOut(Out):
    id: str
    created: bool
    """False if the flow of this name and key had been started before."""
    unknown_types: Sequence[str] = ()
    """Job types that no app has published: their jobs have default rules and wait for a worker."""


class FlowRetryIn(Strict):
    mode: RetryMode = RetryMode.FAILED_AND_DOWNSTREAM


class FlowRetriedOut(Out):
    id: str
    retried_as: str
    created: bool
    """False if the flow had been retried before."""
