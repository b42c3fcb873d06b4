"""Was anything lost or doubled? The demo's verdict, from the records and from the event log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from holdfast.audit import Audit, Breach
from holdfast.clock import seconds
from holdfast.job import TERMINAL, Event, EventKind, JobRecord, Reason, State
from holdfast.store import Ref


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the jobs. Good when nothing is lost, open or doubled and no promise broken."""

    completed: int
    dead: int
    canceled: int
    rescued: int
    """Jobs whose lease lapsed and that went on."""
    spent: int
    """Jobs whose lease lapsed on their last attempt: dead letters."""
    lost: list[Ref]
    """Enqueued, and no record of them."""
    unfinished: list[Ref]
    doubled: list[Ref]
    """Completed more than once, or a number of times that their record denies."""
    breaches: list[Breach]
    """Overlapping leases, and whatever else the audit of the event log found."""
    length_s: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.unfinished or self.doubled or self.breaches)


def judge(ids: set[Ref], records: Iterable[JobRecord], events: Iterable[Event]) -> Verdict:
    """Looks at every enqueued job twice: at its record, and at its events in their order."""
    found = {Ref(job.tenant, job.id): job for job in records}
    mine = [event for event in events if Ref(event.tenant, event.job_id) in ids]
    audit = Audit()
    audit.feed(mine)
    completions = _count(mine, EventKind.COMPLETED)
    states = [found[ref].state for ref in ids if ref in found]
    times = [event.at for event in mine]
    return Verdict(
        completed=states.count(State.COMPLETED),
        dead=states.count(State.FAILED),
        canceled=states.count(State.CANCELED),
        rescued=len(_count(mine, EventKind.RESCUED)),
        spent=[job.reason for job in found.values()].count(Reason.LEASE_EXPIRED),
        lost=_sorted(ref for ref in ids if ref not in found),
        unfinished=_sorted(ref for ref in ids & found.keys() if found[ref].state not in TERMINAL),
        doubled=_sorted(
            ref for ref in ids & found.keys() if completions[ref] != _expected(found[ref])
        ),
        breaches=audit.breaches,
        length_s=seconds(max(times, default=0) - min(times, default=0)),
    )


def _count(events: Iterable[Event], kind: EventKind) -> Counter[Ref]:
    return Counter(Ref(event.tenant, event.job_id) for event in events if event.kind is kind)


def _expected(job: JobRecord) -> int:
    """How many completions the log must have."""
    return 1 if job.state is State.COMPLETED else 0


def _sorted(refs: Iterable[Ref]) -> list[Ref]:
    return sorted(refs, key=lambda ref: (ref.tenant, ref.id))
