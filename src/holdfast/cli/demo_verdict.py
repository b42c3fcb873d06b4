"""Checks the records and the event log of the demo: was any job lost or completed twice?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from holdfast.audit import Audit, Breach
from holdfast.core.clock import seconds
from holdfast.core.job import TERMINAL, Event, EventKind, JobRecord, Reason, State
from holdfast.store import Ref


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result. Good if no job is lost, unfinished or doubled and no promise is broken."""

    completed: int
    dead: int
    canceled: int
    rescued: int
    """Jobs whose lease expired and that ran again."""
    spent: int
    """Jobs whose lease expired on their last attempt: now dead letters."""
    lost: list[Ref]
    """Jobs that were enqueued and have no record."""
    unfinished: list[Ref]
    doubled: list[Ref]
    """Jobs completed more than once, or a number of times that contradicts their record."""
    breaches: list[Breach]
    """Overlapping leases and other violations that the audit of the event log found."""
    length_s: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.unfinished or self.doubled or self.breaches)


def judge(ids: set[Ref], records: Iterable[JobRecord], events: Iterable[Event]) -> Verdict:
    """Checks every enqueued job twice: by its record, and by its events in order."""
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
    """The number of completions that the event log must contain."""
    return 1 if job.state is State.COMPLETED else 0


def _sorted(refs: Iterable[Ref]) -> list[Ref]:
    return sorted(refs, key=lambda ref: (ref.tenant, ref.id))
