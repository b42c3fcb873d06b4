"""One job of the model, and what a reader may be shown of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.clock import Micros
from holdfast.core.errors import (
    HoldfastError,
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    LeaseExpired,
)
from holdfast.core.job import TERMINAL, NewJob, Reason, State
from holdfast.testing.contract.model_journal import Notes

Error = type[HoldfastError]
Line = tuple[str, str]
Name = tuple[str, str]
"""Tenant and id."""


@dataclass
class Item:
    """A job. ENQUEUED stands for enqueued and scheduled: the time tells them apart."""

    new: NewJob
    seq: int
    priority: int
    created_at: Micros
    run_at: Micros
    expires_at: Micros | None
    state: State = State.ENQUEUED
    attempt: int = 0
    fence: int = 0
    lapses: int = 0
    token: str | None = None
    until: Micros = 0
    finished_at: Micros = 0
    reason: Reason | None = None
    result: object = None
    replayed_as: str | None = None
    unsure: bool = False
    """Canceled after its lease expired: a claim may or may not have rescued it before."""
    notes: Notes = field(default_factory=Notes)
    awaits: str | None = None
    come_late: bool = False
    """What it awaited came when it was due: it may still be shown as awaiting it."""
    again: Micros = 0
    """Before this instant `prune` need not look at it again."""
    releases: int = 0
    """How often the last of its parents has ended: once at most."""
    sent: int = 0
    """Signals that were stored."""
    whole: bool = False
    """Whether as many edges as it awaits led to it when it was made."""
    blames: bool = False
    """Whether it ended because of a parent."""

    @property
    def name(self) -> Name:
        return self.new.tenant, self.new.id

    @property
    def line(self) -> Line:
        return self.new.tenant, self.new.queue

    @property
    def spent(self) -> bool:
        return self.attempt >= self.new.rules.max_attempts

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    def lapsed(self, now: Micros) -> bool:
        return self.state is State.PROCESSING and self.until <= now

    def stale(self, now: Micros) -> bool:
        """Whether it is past its time to live."""
        return self.expires_at is not None and self.expires_at <= now

    def faces(self, now: Micros) -> set[State]:
        """The states a reader may be shown."""
        if self.lapsed(now) and not self.spent:
            return {State.PROCESSING, State.ENQUEUED}
        if self.state is State.ENQUEUED and self.run_at > now:
            return {State.SCHEDULED}
        if self.state is State.RETRYING and self.run_at <= now:
            return {State.ENQUEUED}
        return {self.state}

    def eligible(self, now: Micros) -> bool:
        """P9, P10: due, or its lease expired with attempts left; and within its time to live."""
        if self.stale(now) or self.over or self.state is State.WAITING:
            return False
        if self.state is State.PROCESSING:
            return self.until <= now and not self.spent
        return self.run_at <= now

    @property
    def keep_until(self) -> Micros:
        """When the record of an ended job may go."""
        rules = self.new.rules
        failed = self.state is State.FAILED
        return self.finished_at + (rules.keep_failed_us if failed else rules.keep_us)

    def shown_awaits(self, now: Micros) -> set[str | None]:
        """What a reader may be told that it awaits."""
        if self.state is State.WAITING:
            return {self.awaits}
        if self.state is not State.ENQUEUED or self.run_at <= now:
            return {None}
        return {self.awaits, None} if self.come_late else {self.awaits}

    def refusal(self, token: str, now: Micros) -> Error | None:
        """P3, for an item that was found."""
        if self.state is State.CANCELED:
            return JobCanceled
        if self.over:
            return JobAlreadyTerminal
        if self.token != token:
            return InvalidLeaseToken
        return LeaseExpired if self.state is not State.PROCESSING or self.until <= now else None
