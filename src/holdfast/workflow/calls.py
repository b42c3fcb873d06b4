"""The calls of a tenant about flows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

from holdfast.core.bounds import ID_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput, StoreUnsupported, did_you_mean
from holdfast.core.flow import check_flow_name
from holdfast.core.job import State
from holdfast.dispatch import name_of
from holdfast.enqueue import Enqueuer
from holdfast.store import Store
from holdfast.workflow.batch import Batch
from holdfast.workflow.flow import Flow
from holdfast.workflow.plan import plan_flow
from holdfast.workflow.run import FlowPage, FlowRun, FlowState, Owner, flows_page
from holdfast.workflow.start import start

Startable: TypeAlias = Flow | Batch

_STATES = {
    FlowState.RUNNING: (State.WAITING,),
    FlowState.CANCELING: (State.WAITING,),
    FlowState.FINISHING: (State.ENQUEUED, State.SCHEDULED, State.PROCESSING, State.RETRYING),
    FlowState.COMPLETED: (State.COMPLETED,),
    FlowState.FAILED: (State.FAILED,),
    FlowState.CANCELED: (State.CANCELED,),
}


class FlowCalls:
    """Mixed into `holdfast.Tenant`."""

    name: str
    _store: Store
    _enqueuer: Enqueuer

    async def start(self, flow: Startable) -> FlowRun:
        """Starts a flow or a batch: all of its jobs are stored, or none. Safe to repeat: the same
        flow, and another one of the same name and key, give the same run.

        Raises FlowRefused, which names the node, if one of them is refused.
        """
        if not isinstance(flow, Flow | Batch):
            why = f"must be a Flow or a Batch, not {type(flow).__name__}"
            raise InvalidInput(field="flow", why=why)
        check_supported(self._store)
        built = flow.built()
        fresh = built.unsent and built.key is None
        plan = plan_flow(built, self.name, self._enqueuer, fresh=fresh)
        built.unsent = False
        created = await start(self._store, self._enqueuer.whole, plan, fresh=fresh)
        return FlowRun(plan.id, cast(Owner, self), self._store, self._enqueuer, created=created)

    def flow(self, id: str) -> FlowRun:
        """A handle for a flow that was started."""
        return FlowRun(check_name("id", id, ID_MAX), cast(Owner, self), self._store, self._enqueuer)

    async def flows(
        self,
        *,
        name: str | None = None,
        states: Iterable[FlowState | str] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """A page of the flows, newest first. Pass its cursor as `after` to get the next page."""
        if name is not None:
            check_flow_name(name)
        check_supported(self._store)
        wanted = [_state(state) for state in states]
        found = {state for each in wanted for state in _STATES[each]}
        page = await flows_page(
            self._store, self.name, name=name, states=sorted(found), after=after, limit=limit
        )
        if not wanted:
            return page
        return FlowPage([flow for flow in page.flows if flow.state in wanted], page.cursor)


def _state(given: FlowState | str) -> FlowState:
    try:
        return FlowState(given)
    except ValueError:
        hint = did_you_mean(str(given), FlowState)
        raise InvalidInput(field="states", why=f"there is no {given!r}.{hint}") from None


def check_supported(store: Store) -> None:
    """Refuses a store that cannot have flows."""
    if not store.capabilities.steps:
        raise StoreUnsupported(store=name_of(store), feature="flows")
