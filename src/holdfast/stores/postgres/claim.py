"""Claim: one function of the server, and what it returns."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.bounds import ASIDE_MAX, CLAIM_REPEAT_S, REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.clock import Micros, micros
from holdfast.core.job import Lease
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import LINES_PER_CLAIM
from holdfast.store import Claim
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.journal import brought, read_remembered
from holdfast.stores.postgres.rows import read_leases
from holdfast.stores.postgres.step import Step

_TENANT, _QUEUE, _PRIORITY, _SEQ, _RUN_AT, _JOURNAL, _IS_ROW = (
    1,
    3,
    9,
    14,
    21,
    26,
    27,
)  # Their places in the type `lease`; the visit is the first.
_BEHIND = -1
"""In place of an instant: the claim ended early."""


class Claimed(NamedTuple):
    """What a claim gave."""

    leases: list[Lease]
    unreadable: list[Transition]
    """The failures of jobs that cannot be read."""
    wakes: bool
    """All sleepers must look again."""
    full_us: Micros | None
    """The whole store is full, and for so long if no job ends."""
    behind: bool
    """There was too much to read. A part of it is done; the same claim must be made again."""
    edges_left: bool
    """Edges of ended jobs are left to follow."""

    @property
    def nothing(self) -> bool:
        """Whether it found no job."""
        return not (self.leases or self.unreadable)


async def claim_jobs(step: Step, claim: Claim, probe: bool) -> Claimed:
    """`probe`: look without the lock of claims first, since there may be nothing."""
    rows = await step.rows(
        sql.CLAIM,
        claim.worker,
        claim.nonce,
        claim.limit,
        claim.lease_us,
        claim.tenants,
        claim.queues,
        claim.exclude_groups,
        step.given,
        probe,
        step.events_on,
        step.channel,
        REPAIR_MAX,
        REPAIR_PASSES_MAX,
        LINES_PER_CLAIM,
        micros(CLAIM_REPEAT_S),
        ASIDE_MAX,
    )
    taken = [row for row in rows if row[_SEQ] is not None]
    # Under limits of the platform a claim may visit a line more than once.
    visits: dict[tuple[str, str], int] = {}
    for row in taken:
        line = row[_TENANT], row[_QUEUE]
        visits[line] = min(row[0], visits.get(line, row[0]))
    taken.sort(key=lambda row: (visits[row[_TENANT], row[_QUEUE]], -row[_PRIORITY], row[_SEQ]))
    remembering = {row[_SEQ]: row[_JOURNAL] for row in taken if row[_JOURNAL] is not None}
    stored = await read_remembered(step, remembering) if remembering else {}
    leases, unreadable = read_leases(taken, claim, lambda seq: brought(stored.get(seq, [])))
    told = [row[_RUN_AT] for row in rows if row[_SEQ] is None and row[_IS_ROW]]
    full_us = next((each for each in told if each is not None and each >= 0), None)
    return Claimed(leases, unreadable, None in told, full_us, _BEHIND in told, rows[0][-1])
