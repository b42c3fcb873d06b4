"""Flows without await; `sync.py` is the bridge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from holdfast.core.check import check_seconds
from holdfast.core.errors import WaitTimeout
from holdfast.core.job import By
from holdfast.tenant import Tenant
from holdfast.workflow.calls import Startable
from holdfast.workflow.retry import RetryMode
from holdfast.workflow.run import FlowNode, FlowPage, FlowRun, FlowState, FlowStatus

LATE_S = 1.0
"""How long after its time-out a wait may end if the bridge does not answer."""


class Caller(Protocol):
    """The part of the bridge that is used here."""

    @property
    def call(self) -> Any: ...


class SyncFlowRun:
    """`holdfast.FlowRun` without await."""

    def __init__(self, bridge: Caller, run: FlowRun) -> None:
        self._bridge = bridge
        self._call = bridge.call
        self._run = run
        self.id = run.id
        self.created = run.created

    def status(self) -> FlowStatus:
        found: FlowStatus = self._call(self._run.status())
        return found

    def wait(self, *, timeout: float = 30.0) -> FlowStatus:
        most_s = check_seconds("timeout", timeout) + LATE_S
        try:
            found: FlowStatus = self._call(self._run.wait(timeout=timeout), timeout_s=most_s)
        except TimeoutError:
            raise WaitTimeout(id=self.id, timeout_s=timeout) from None
        return found

    def nodes(self, *, after: int | None = None, limit: int = 100) -> list[FlowNode]:
        found: list[FlowNode] = self._call(self._run.nodes(after=after, limit=limit))
        return found

    def cancel(self, *, by: By | None = None) -> bool:
        done: bool = self._call(self._run.cancel(by=by))
        return done

    def retry(self, mode: RetryMode | str = "failed_and_downstream") -> SyncFlowRun:
        return SyncFlowRun(self._bridge, self._call(self._run.retry(mode)))


class SyncFlowCalls:
    """Mixed into `SyncTenant`."""

    _bridge: Any
    _tenant: Tenant

    def start(self, flow: Startable) -> SyncFlowRun:
        return SyncFlowRun(self._bridge, self._bridge.call(self._tenant.start(flow)))

    def flow(self, id: str) -> SyncFlowRun:
        return SyncFlowRun(self._bridge, self._tenant.flow(id))

    def flows(
        self,
        *,
        name: str | None = None,
        states: Iterable[FlowState | str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> FlowPage:
        work = self._tenant.flows(name=name, states=states, after=after, limit=limit)
        found: FlowPage = self._bridge.call(work)
        return found
