"""The states of a job, the legal transitions, and all decisions about them. Pure.

enqueued <-> scheduled (run_at in the future)
   | claim (attempt+1, new token, fence+1)
   v
processing --complete--> completed
   |  |  \\--fail, attempts left--> retrying (run_at) --due--> enqueued
   |  |  \\--fail for good, or no attempts left--> failed (dead letter, reason code)
   |  \\--release, snooze, shutdown--> enqueued or scheduled, attempt given back
   \\--lease expired--> enqueued again, or failed when no attempts are left
waiting (for its parents in a flow) -> enqueued or scheduled, or failed or canceled with a parent,
   or completed with its parents if it has nothing else to do
any non-terminal --cancel--> canceled
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from holdfast.core.bounds import ERROR_CHARS_MAX, MISSES_MAX
from holdfast.core.clock import Micros
from holdfast.core.errors import (
    InvalidLeaseToken,
    JobAlreadyTerminal,
    JobCanceled,
    LeaseExpired,
    Refused,
)
from holdfast.core.job import (
    TERMINAL,
    Abandoned,
    Completed,
    EventKind,
    Failed,
    JobRecord,
    Outcome,
    Parked,
    Reason,
    Released,
    Snoozed,
    State,
)
from holdfast.core.journal import Entry
from holdfast.core.redact import Redacted

MOVES: dict[State, frozenset[State]] = {
    State.WAITING: frozenset(
        {State.ENQUEUED, State.SCHEDULED, State.COMPLETED, State.CANCELED, State.FAILED}
    ),
    State.SCHEDULED: frozenset({State.ENQUEUED, State.CANCELED, State.FAILED}),
    State.ENQUEUED: frozenset({State.PROCESSING, State.SCHEDULED, State.CANCELED, State.FAILED}),
    State.PROCESSING: frozenset(
        {
            State.COMPLETED,
            State.RETRYING,
            State.FAILED,
            State.ENQUEUED,
            State.SCHEDULED,
            State.CANCELED,
        }
    ),
    State.RETRYING: frozenset({State.ENQUEUED, State.SCHEDULED, State.CANCELED, State.FAILED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELED: frozenset(),
}


class Transition(Redacted, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The change that a store must apply if the lease is still valid."""

    tenant: str
    id: str
    token: str | None
    """The token of the lease; None if the upkeep acts on an expired job."""
    to: State
    delay_us: Micros = 0
    run_at: Micros | None = None
    """An instant, used instead of a delay."""
    give_back: bool = False
    """Whether the attempt is given back."""
    miss: bool = False
    lapsed: bool = False
    """Whether the upkeep acts because of a deadline. Valid only if the deadline is still in the
    past.
    """
    reason: Reason | None = None
    error: str | None = None
    result: Any = None
    entries: tuple[Entry, ...] = ()
    """Written to the job's journal in the same step."""
    awaits: str | None = None
    """For `to=SCHEDULED`: the signal or join that makes the job ready before its instant. If it has
    come already the job is ready at once.
    """


class Held(Protocol):
    """What the rules need to know about a stored job."""

    @property
    def state(self) -> State: ...
    @property
    def token(self) -> str | None: ...
    @property
    def lease_until(self) -> Micros | None: ...
    @property
    def expires_at(self) -> Micros | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What a store writes for a transition."""

    state: State
    attempt: int
    run_at: Micros | None
    """None leaves it as it is."""
    reason: Reason | None
    error: str | None
    kind: EventKind


def decide(outcome: Outcome, job: JobRecord, token: str, chance: float) -> Transition:
    """The transition for an outcome of a handler.

    `chance` in [0, 1) is the randomness for the jitter of the retry policy.
    """
    tenant, id = job.tenant, job.id
    match outcome:
        case Completed(result=result):
            return completion(tenant, id, token, result)
        case Failed():
            return _failed(outcome, job, token, chance)
        case Released(miss=True, reason=reason) if job.misses + 1 >= MISSES_MAX:
            codec = reason is Reason.DECODE
            what = f"codec {job.envelope.codec!r}" if codec else f"type {job.type!r}"
            error = f"no worker knew the {what} in {MISSES_MAX} tries"
            failed = Failed(error=error, reason=reason, retryable=False)
            return _failed(failed, job, token, chance)
        case Released(delay_us=delay, miss=miss):
            return _given_back(job, token, delay, miss)
        case Snoozed(delay_us=delay):
            return _given_back(job, token, delay, False)
        case Parked():
            return _parked(outcome, job, token)
        case Abandoned():
            return _given_back(job, token, 0, False)


def completion(tenant: str, id: str, token: str, result: Any = None) -> Transition:
    """The transition for a handler that returned. It needs no other data of the job."""
    return Transition(tenant=tenant, id=id, token=token, to=State.COMPLETED, result=result)


def _failed(outcome: Failed, job: JobRecord, token: str, chance: float) -> Transition:
    final = not outcome.retryable or job.attempt >= job.max_attempts
    if final:
        last_word = Reason.MAX_ATTEMPTS if outcome.retryable else Reason.PERMANENT
        return Transition(
            tenant=job.tenant,
            id=job.id,
            token=token,
            to=State.FAILED,
            reason=outcome.reason or last_word,
            error=clip(outcome.error),
        )
    delay = outcome.after_us
    if delay is None:
        delay = job.rules.retry.delay(job.attempt, chance)
    return Transition(
        tenant=job.tenant,
        id=job.id,
        token=token,
        to=State.RETRYING,
        delay_us=delay,
        reason=outcome.reason,
        error=clip(outcome.error),
    )


def _given_back(job: JobRecord, token: str, delay: Micros, miss: bool) -> Transition:
    return Transition(
        tenant=job.tenant,
        id=job.id,
        token=token,
        to=State.SCHEDULED if delay > 0 else State.ENQUEUED,
        delay_us=delay,
        give_back=True,
        miss=miss,
    )


def _parked(outcome: Parked, job: JobRecord, token: str) -> Transition:
    return Transition(
        tenant=job.tenant,
        id=job.id,
        token=token,
        to=State.SCHEDULED,
        delay_us=outcome.delay_us,
        run_at=outcome.run_at,
        give_back=True,
        awaits=outcome.awaits,
    )


def lapse(job: JobRecord, token: str | None) -> Transition:
    """The transition for a job whose lease or time to live has expired.

    The attempt counts.
    """
    to, reason, error = State.ENQUEUED, None, None
    if job.state is not State.PROCESSING:
        to, reason, error = State.FAILED, Reason.EXPIRED, "its time to live expired while it waited"
    elif job.attempt >= job.max_attempts:
        to, reason = State.FAILED, Reason.LEASE_EXPIRED
        error = f"the lease of attempt {job.attempt} expired: its worker died or was cut off"
    return Transition(
        tenant=job.tenant,
        id=job.id,
        token=token,
        to=to,
        lapsed=True,
        reason=reason,
        error=error,
    )


def refusal(
    job: Held, token: str | None, now: Micros, lapsed: bool = False
) -> type[Refused] | None:
    """Why an action on an existing job is refused, in the order of P3; None if it is allowed."""
    if job.state is State.CANCELED:
        return JobCanceled
    if job.state in TERMINAL:
        return JobAlreadyTerminal
    if lapsed:
        return _lapse_refusal(job, token, now)
    if token is None or job.token != token:
        return InvalidLeaseToken
    if job.state is not State.PROCESSING or job.lease_until is None or job.lease_until <= now:
        return LeaseExpired
    return None


def _lapse_refusal(job: Held, token: str | None, now: Micros) -> type[Refused] | None:
    # The upkeep reads, then acts. In between the holder may have acked or extended.
    if job.state is State.PROCESSING:
        still = job.lease_until is not None and job.lease_until <= now
        return None if still and job.token == token else InvalidLeaseToken
    still = job.expires_at is not None and job.expires_at <= now
    return None if still and token is None else InvalidLeaseToken


def settle(job: Held, change: Transition, now: Micros, come: bool = False) -> Settled:
    """The new state of the record. Enforces the maximum of attempts for every caller.

    `come`: what the transition awaits has come already.
    """
    to, reason, error = change.to, change.reason, change.error
    if to is State.RETRYING and job.attempt >= job.max_attempts:
        to, reason = State.FAILED, reason or Reason.MAX_ATTEMPTS
    run_at = None
    if to in (State.RETRYING, State.SCHEDULED, State.ENQUEUED):
        run_at = change.run_at if change.run_at is not None else now + change.delay_us
        run_at = min(run_at, now) if come else run_at
        if to is State.SCHEDULED and run_at <= now:
            to = State.ENQUEUED
    return Settled(
        state=to,
        attempt=job.attempt - 1 if change.give_back else job.attempt,
        run_at=run_at,
        reason=reason,
        error=error,
        kind=_kind(to, change.lapsed),
    )


class Movable(Held, Protocol):
    """A stored job that can be changed in place."""

    state: State
    awaits: str | None
    attempt: int
    run_at: Micros
    lapses: int
    misses: int
    token: str | None
    reason: Reason | None
    error: str | None
    result: Any


def apply(job: Movable, change: Transition, now: Micros, come: bool = False) -> Settled:
    """Changes the job as `settle` says. The caller checks `refusal` before and writes it after."""
    settled = settle(job, change, now, come)
    job.lapses += change.lapsed and job.state is State.PROCESSING
    job.misses += change.miss
    job.state, job.attempt = settled.state, settled.attempt
    job.reason, job.error = settled.reason, settled.error or job.error
    if settled.run_at is not None:
        job.run_at = settled.run_at
    job.awaits = change.awaits if job.state is State.SCHEDULED else None
    if not change.lapsed:
        job.token = None  # An expired token stays, so that its late holder gets LeaseExpired.
    if job.state in TERMINAL:
        job.result = change.result
    return settled


def why(job: Movable) -> str | None:
    """The note of the event: reason and error of a failure."""
    if job.reason is None:
        return job.error if job.state is State.RETRYING else None
    return f"{job.reason.value}: {job.error}" if job.error else job.reason.value


def _kind(to: State, lapsed: bool) -> EventKind:
    if to is State.COMPLETED:
        return EventKind.COMPLETED
    if to is State.FAILED:
        return EventKind.FAILED
    if to is State.RETRYING:
        return EventKind.RETRYING
    return EventKind.RESCUED if lapsed else EventKind.RELEASED


def due_state(run_at: Micros, now: Micros) -> State:
    """The state of a job that waits for nothing but its instant."""
    return State.SCHEDULED if run_at > now else State.ENQUEUED


def seen(state: State, run_at: Micros, now: Micros) -> State:
    """The state as shown to readers: a due job counts as enqueued, even if its stored state was not
    updated yet.
    """
    if state in (State.SCHEDULED, State.RETRYING) and run_at <= now:
        return State.ENQUEUED
    return state


def clip(text: str) -> str:
    """The text cut to ERROR_CHARS_MAX. Head and tail are kept, because they name the causes."""
    if len(text) <= ERROR_CHARS_MAX:
        return text
    half = (ERROR_CHARS_MAX - 5) // 2
    return f"{text[:half]}\n...\n{text[-half:]}"
