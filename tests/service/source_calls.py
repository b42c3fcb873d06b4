"""Calls of the routes of sources and of names of holds, for `calls.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.job import NewJob
from holdfast.core.scope import Scope
from holdfast.core.shadow import ShadowRead, ShadowRow, ShadowStep
from holdfast.core.source import SourcePlan, SourceState, Strategy
from holdfast.core.source import encode as encode_source
from holdfast.core.spec import JobSpec
from holdfast.worker_registry import PREFIX as WORKERS

if TYPE_CHECKING:
    from tests.service.calls import Pick

SOURCE_BODIES: dict[str, Callable[[Any], Any]] = {
    "push_source": lambda p: {"items": [{"id": p.id(), "version": 1, "body": {"is": p.mark}}]},
    "reconcile_source": lambda p: p.maybe(any_share=True),
    "pause_source": lambda p: {"reason": p.mark},
}


def source_state(queue: str) -> bytes:
    """The state of a source whose jobs go to a queue, behind the others."""
    job = JobSpec(type="mail", codec="json", version=1, body=b"{}", queue=queue, priority=-5)
    plan = SourcePlan(change=job, field="change", poll=job, strategy=Strategy.PUSH)
    return encode_source(SourceState(born=1, plan=plan))


def stepped(p: Pick, job: NewJob) -> ShadowStep:
    """A step of a source, with or without a job."""
    body = msgspec.json.encode(p.mark)
    return ShadowStep(
        tenant=p.tenant(),
        source=p.queue(),
        expect=p.of(["", "first"]),
        stamp=p.of(["first", "second"]),
        state=p.of([source_state(p.queue()), None]),
        put=(ShadowRow(p.id(), "=1", 1, 1, body=body),),
        jobs=p.of([(), (job,)]),
    )


def asked(p: Pick) -> ShadowRead:
    """A source and rows of it, or the sources of a tenant."""
    source = p.of([p.queue(), ""])
    return ShadowRead(tenant=p.tenant(), source=source, ids=(p.id(),), after="", limit=5)


def held_under(p: Pick) -> str:
    """A prefix of names of holds."""
    tenant = Scope(p.tenant())
    return str(p.of([tenant.slots, WORKERS, p.scope().slots, "", "slot/", "upkeep"]))
