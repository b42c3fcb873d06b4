"""The rules of a job's life: every outcome, every refusal, every move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import ERROR_CHARS_MAX, MISSES_MAX
from holdfast.core.clock import SECOND
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
    Envelope,
    EventKind,
    Failed,
    JobRecord,
    Outcome,
    Reason,
    Released,
    Rules,
    Snoozed,
    State,
)
from holdfast.core.lifecycle import MOVES, Transition, clip, decide, lapse, refusal, seen, settle
from holdfast.core.retry import Backoff, Jitter, RetryPolicy

NOW = 1_000 * SECOND
RETRY = RetryPolicy(kind=Backoff.FIXED, base_s=10.0, jitter=Jitter.NONE)

RECORD = JobRecord(
    tenant="acme",
    id="a",
    queue="mail",
    envelope=Envelope("send", "json", 1, b"{}"),
    rules=Rules(max_attempts=3, retry=RETRY),
    priority=0,
    key=None,
    group=None,
    tags=(),
    origin=None,
    seq=1,
    state=State.PROCESSING,
    attempt=1,
    fence=1,
    lapses=0,
    misses=0,
    created_at=0,
    updated_at=0,
    run_at=0,
)

OUTCOMES: list[Outcome] = [
    Completed(b"1"),
    Failed("boom"),
    Failed("boom", retryable=False),
    Failed("slow", reason=Reason.TIMEOUT),
    Failed("later", after_us=SECOND),
    Released(),
    Released(SECOND),
    Released(miss=True),
    Snoozed(SECOND),
    Snoozed(0),
    Abandoned(),
]


def record(**changes: Any) -> JobRecord:
    return msgspec.structs.replace(RECORD, **changes)


@dataclass
class Row:
    """A stored job, as much of it as the rules look at."""

    state: State = State.PROCESSING
    token: str | None = "t"
    lease_until: int | None = NOW + SECOND
    expires_at: int | None = None
    attempt: int = 1
    max_attempts: int = 3


# -- moves ----------------------------------------------------------------------------------------


def test_every_state_has_its_moves() -> None:
    """P6: the map is complete, and final states have no way out."""
    assert set(MOVES) == set(State)
    assert {state for state, to in MOVES.items() if not to} == TERMINAL


def test_every_job_that_is_not_final_can_be_canceled() -> None:
    """P5: cancel works wherever a job stands."""
    for state in set(State) - TERMINAL:
        assert State.CANCELED in MOVES[state]


def test_only_a_claim_leads_to_processing() -> None:
    """P11: no transition starts an attempt, and only a ready job can start one."""
    assert {state for state, to in MOVES.items() if State.PROCESSING in to} == {State.ENQUEUED}


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_makes_a_legal_move(outcome: Outcome, attempt: int) -> None:
    """P4: what decide asks for and what settle writes are both on the map."""
    change = decide(outcome, record(attempt=attempt), "t", 0.5)
    settled = settle(Row(attempt=attempt), change, NOW)

    assert change.to in MOVES[State.PROCESSING]
    assert settled.state in MOVES[State.PROCESSING]
    assert (change.tenant, change.id, change.token) == ("acme", "a", "t")
    assert not change.lapsed


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
@pytest.mark.parametrize("attempt", [1, 3])
def test_every_lapse_makes_a_legal_move(state: State, attempt: int) -> None:
    """P11: an expiry, of a lease or of a time to live, is on the map."""
    change = lapse(record(state=state, attempt=attempt), "t")
    settled = settle(Row(state=state, attempt=attempt), change, NOW)

    assert settled.state in MOVES[state]
    assert change.lapsed


# -- decide ---------------------------------------------------------------------------------------


def test_completion_carries_its_result() -> None:
    """P4: the result travels with the transition."""
    change = decide(Completed({"n": 1}), RECORD, "t", 0.0)

    assert (change.to, change.result, change.give_back) == (State.COMPLETED, {"n": 1}, False)


def test_a_failure_with_attempts_left_is_retried_by_its_policy() -> None:
    """P11: the policy's delay, as a length."""
    change = decide(Failed("boom"), RECORD, "t", 0.0)

    assert (change.to, change.delay_us, change.run_at) == (State.RETRYING, 10 * SECOND, None)
    assert (change.error, change.reason) == ("boom", None)


def test_a_wished_delay_replaces_the_policy() -> None:
    """P11: also when it is nothing at all."""
    assert decide(Failed("x", after_us=7), RECORD, "t", 0.0).delay_us == 7
    assert decide(Failed("x", after_us=0), RECORD, "t", 0.0).delay_us == 0


def test_the_last_failure_is_final() -> None:
    """P11: MAX_ATTEMPTS, or the reason that the failure itself gives."""
    last = record(attempt=3)

    assert decide(Failed("x"), last, "t", 0.0).reason is Reason.MAX_ATTEMPTS
    assert decide(Failed("x"), last, "t", 0.0).to is State.FAILED
    timeout = decide(Failed("x", reason=Reason.TIMEOUT), last, "t", 0.0)
    assert (timeout.to, timeout.reason) == (State.FAILED, Reason.TIMEOUT)


def test_a_permanent_failure_is_final_at_once() -> None:
    """P11: PERMANENT, or the reason that the failure itself gives."""
    plain = decide(Failed("x", retryable=False), RECORD, "t", 0.0)
    decoding = decide(Failed("x", reason=Reason.DECODE, retryable=False), RECORD, "t", 0.0)

    assert (plain.to, plain.reason) == (State.FAILED, Reason.PERMANENT)
    assert (decoding.to, decoding.reason) == (State.FAILED, Reason.DECODE)


@pytest.mark.parametrize("outcome", [Released(), Released(5), Snoozed(5), Snoozed(0), Abandoned()])
def test_what_is_given_back_costs_nothing(outcome: Outcome) -> None:
    """P11: ready at once, or scheduled after its delay."""
    change = decide(outcome, RECORD, "t", 0.0)

    assert change.give_back
    assert change.to is (State.SCHEDULED if change.delay_us else State.ENQUEUED)
    assert (change.reason, change.error) == (None, None)


def test_misses_end_in_the_dead_letters() -> None:
    """P11: a type that nobody knows is released a bounded number of times."""
    early = decide(Released(miss=True), record(misses=MISSES_MAX - 2), "t", 0.0)
    last = decide(Released(miss=True), record(misses=MISSES_MAX - 1), "t", 0.0)
    plain = decide(Released(), record(misses=MISSES_MAX), "t", 0.0)

    assert (early.to, early.miss, early.give_back) == (State.ENQUEUED, True, True)
    assert (last.to, last.reason, last.give_back) == (State.FAILED, Reason.UNKNOWN_TYPE, False)
    assert "'send'" in (last.error or "")
    assert plain.to is State.ENQUEUED


# -- lapse ----------------------------------------------------------------------------------------


def test_a_lapsed_lease_with_attempts_left_is_ready_again() -> None:
    """P11: the attempt stays counted."""
    change = lapse(record(attempt=2), "t")

    assert (change.to, change.reason, change.give_back) == (State.ENQUEUED, None, False)
    assert (change.token, change.lapsed) == ("t", True)


def test_a_lapsed_lease_without_attempts_left_is_final() -> None:
    """P11: LEASE_EXPIRED, naming the attempt."""
    change = lapse(record(attempt=3), "t")

    assert (change.to, change.reason) == (State.FAILED, Reason.LEASE_EXPIRED)
    assert "attempt 3" in (change.error or "")


@pytest.mark.parametrize("state", [State.ENQUEUED, State.SCHEDULED, State.RETRYING, State.WAITING])
def test_a_job_that_waited_too_long_is_final(state: State) -> None:
    """P11: EXPIRED, whatever it waited for."""
    change = lapse(record(state=state, attempt=0), None)

    assert (change.to, change.reason, change.token) == (State.FAILED, Reason.EXPIRED, None)


# -- refusal --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "token", "expected"),
    [
        (Row(), "t", None),
        (Row(), "other", InvalidLeaseToken),
        (Row(), None, InvalidLeaseToken),
        (Row(token=None, state=State.ENQUEUED), None, InvalidLeaseToken),
        (Row(lease_until=NOW), "t", LeaseExpired),
        (Row(lease_until=NOW - 1), "t", LeaseExpired),
        (Row(lease_until=NOW + 1), "t", None),
        (Row(lease_until=NOW), "other", InvalidLeaseToken),
        (Row(state=State.ENQUEUED), "t", LeaseExpired),
        (Row(state=State.CANCELED), "t", JobCanceled),
        (Row(state=State.CANCELED, lease_until=NOW), "other", JobCanceled),
        (Row(state=State.COMPLETED), "t", JobAlreadyTerminal),
        (Row(state=State.FAILED, lease_until=NOW), "other", JobAlreadyTerminal),
    ],
)
def test_refusals_come_in_their_order(
    row: Row, token: str | None, expected: type[Refused] | None
) -> None:
    """P3: canceled, then terminal, then token, then expiry."""
    assert refusal(row, token, NOW) is expected


@pytest.mark.parametrize(
    ("row", "token", "expected"),
    [
        (Row(lease_until=NOW), "t", None),
        (Row(lease_until=NOW + 1), "t", InvalidLeaseToken),
        (Row(lease_until=NOW), "other", InvalidLeaseToken),
        (Row(lease_until=NOW), None, InvalidLeaseToken),
        (Row(lease_until=None), "t", InvalidLeaseToken),
        (Row(state=State.ENQUEUED), "t", InvalidLeaseToken),
        (Row(state=State.ENQUEUED, token=None, expires_at=NOW), None, None),
        (Row(state=State.ENQUEUED, token=None, expires_at=NOW), "t", InvalidLeaseToken),
        (Row(state=State.RETRYING, token=None, expires_at=NOW + 1), None, InvalidLeaseToken),
        (Row(state=State.SCHEDULED, token=None), None, InvalidLeaseToken),
        (Row(state=State.PROCESSING, expires_at=NOW), None, InvalidLeaseToken),
        (Row(state=State.CANCELED, lease_until=NOW), "t", JobCanceled),
        (Row(state=State.FAILED, expires_at=NOW), None, JobAlreadyTerminal),
    ],
)
def test_upkeep_is_refused_unless_the_deadline_still_stands(
    row: Row, token: str | None, expected: type[Refused] | None
) -> None:
    """P5: between the look and the act the holder may have acked, extended or been canceled."""
    assert refusal(row, token, NOW, lapsed=True) is expected


# -- settle ---------------------------------------------------------------------------------------


def change(to: State, **options: Any) -> Transition:
    return Transition(tenant="acme", id="a", token="t", to=to, **options)


def test_delays_become_instants_of_the_stores_clock() -> None:
    """P8: a length is added to now; an instant is kept and wins."""
    assert settle(Row(), change(State.RETRYING, delay_us=5), NOW).run_at == NOW + 5
    assert settle(Row(), change(State.RETRYING, delay_us=5, run_at=7), NOW).run_at == 7
    assert settle(Row(), change(State.COMPLETED), NOW).run_at is None


def test_a_schedule_that_is_due_is_ready() -> None:
    """P10: nothing is scheduled for the past."""
    assert settle(Row(), change(State.SCHEDULED, delay_us=0), NOW).state is State.ENQUEUED
    assert settle(Row(), change(State.SCHEDULED, run_at=NOW), NOW).state is State.ENQUEUED
    assert settle(Row(), change(State.SCHEDULED, delay_us=1), NOW).state is State.SCHEDULED


def test_the_budget_is_enforced_whatever_is_asked() -> None:
    """P11: a retry beyond max_attempts is a failure, with a reason."""
    spent = Row(attempt=3)

    plain = settle(spent, change(State.RETRYING, delay_us=5, error="x"), NOW)
    timeout = settle(spent, change(State.RETRYING, reason=Reason.TIMEOUT), NOW)

    assert (plain.state, plain.reason, plain.error) == (State.FAILED, Reason.MAX_ATTEMPTS, "x")
    assert (plain.run_at, plain.kind) == (None, EventKind.FAILED)
    assert timeout.reason is Reason.TIMEOUT


def test_only_what_is_given_back_lowers_the_attempts() -> None:
    """P11: release yes, retry and rescue no."""
    assert settle(Row(attempt=2), change(State.ENQUEUED, give_back=True), NOW).attempt == 1
    assert settle(Row(attempt=2), change(State.RETRYING), NOW).attempt == 2
    assert settle(Row(attempt=2), change(State.ENQUEUED, lapsed=True), NOW).attempt == 2


@pytest.mark.parametrize(
    ("to", "lapsed", "kind"),
    [
        (State.COMPLETED, False, EventKind.COMPLETED),
        (State.FAILED, False, EventKind.FAILED),
        (State.FAILED, True, EventKind.FAILED),
        (State.RETRYING, False, EventKind.RETRYING),
        (State.ENQUEUED, False, EventKind.RELEASED),
        (State.SCHEDULED, False, EventKind.RELEASED),
        (State.ENQUEUED, True, EventKind.RESCUED),
    ],
)
def test_each_settlement_is_told_as_what_it_is(to: State, lapsed: bool, kind: EventKind) -> None:
    """P14: one kind of event for each kind of fact."""
    assert settle(Row(), change(to, lapsed=lapsed, delay_us=5), NOW).kind is kind


# -- seen and clip --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State))
def test_a_due_job_is_seen_as_enqueued(state: State) -> None:
    """P10: only scheduled and retrying depend on the time."""
    timed = state in (State.SCHEDULED, State.RETRYING)

    assert seen(state, NOW + 1, NOW) is state
    assert seen(state, NOW, NOW) is (State.ENQUEUED if timed else state)


@pytest.mark.parametrize("extra", [-1, 0, 1, 2, 99_999])
def test_a_text_is_clipped_to_its_limit(extra: int) -> None:
    """P15: head and tail stay, where causes are found; a text that fits is untouched."""
    text = "head" + "x" * (ERROR_CHARS_MAX + extra - 8) + "tail"

    clipped = clip(text)

    assert len(clipped) <= ERROR_CHARS_MAX
    assert clipped.startswith("head")
    assert clipped.endswith("tail")
    assert (clipped == text) is (extra <= 0)
