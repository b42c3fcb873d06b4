"""The words of `explain`, one for each gate: stores find the facts, this says them alike. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from holdfast.clock import Micros
from holdfast.job import State
from holdfast.plural import many
from holdfast.scope import Explanation, Gate, GateKind, GroupGate, Scope, ScopeSettings


class Waiting(Protocol):
    """What must be known of a job that does not run."""

    @property
    def state(self) -> State: ...
    @property
    def run_at(self) -> Micros: ...
    @property
    def expires_at(self) -> Micros | None: ...


class Usage(msgspec.Struct, frozen=True):
    """How a scope stands now."""

    running: int
    slots: int
    """Held by outsiders and counted; 0 where they do not count."""
    holders: Callable[[], tuple[str, ...]]
    """Who takes its places; asked for only when they are all taken."""
    token_at: Micros | None
    """When its rate has the next token; None when it has one, or no rate."""


def ended(state: State) -> Explanation:
    return Explanation(gates=(Gate(kind=GateKind.ENDED, words=f"it is {state.value}"),))


def running(worker: str | None, attempt: int, until: Micros | None) -> Explanation:
    words = f"worker {worker} runs it, attempt {attempt}"
    return Explanation(gates=(Gate(kind=GateKind.RUNNING, words=words, until=until),))


def own_gates(job: Waiting, now: Micros) -> Iterator[Gate]:
    """What holds a job by itself, whatever its scopes say: not ended, and no lease valid."""
    if job.expires_at is not None and job.expires_at <= now:
        yield Gate(kind=GateKind.EXPIRED, words="its time to live has passed")
    if job.state is State.PROCESSING:
        words = "the lease of its last attempt has expired: upkeep will fail it"
        yield Gate(kind=GateKind.EXPIRED, words=words)
    elif job.state is State.WAITING:
        yield Gate(kind=GateKind.ORDER, words="it waits for other jobs of its workflow")
    elif job.state in (State.SCHEDULED, State.RETRYING) and job.run_at > now:
        why = "its next attempt is due later" if job.state is State.RETRYING else "it is due later"
        yield Gate(kind=GateKind.SCHEDULE, words=why, until=job.run_at)


def scope_gates(scope: Scope, rules: ScopeSettings | GroupGate, usage: Usage) -> Iterator[Gate]:
    """What a scope's pause, limit and rate hold back."""
    name = f"{scope.kind.value} {scope.part or scope.tenant}"
    if rules.paused is not None:
        words = f"{name} is paused by {rules.paused.author}: {rules.paused.reason}"
        yield Gate(kind=GateKind.PAUSE, words=words, scope=scope)
    if rules.max_running is not None and usage.running + usage.slots >= rules.max_running:
        words = f"{name} runs {many(usage.running, 'job')}"
        words += f", {many(usage.slots, 'slot')} held" if usage.slots else ""
        words += f", its limit is {rules.max_running}"
        yield Gate(kind=GateKind.LIMIT, words=words, scope=scope, holders=usage.holders())
    if usage.token_at is not None:
        words = f"{name} has started as many as its rate allows"
        yield Gate(kind=GateKind.RATE, words=words, scope=scope, until=usage.token_at)


def order_gate(scope: Scope, first: str) -> Gate:
    """An ordered group whose head is another job."""
    words = f"group {scope.part} is ordered, job {first} comes first"
    return Gate(kind=GateKind.ORDER, words=words, scope=scope, holders=(first,))


def explanation(gates: list[Gate], ahead: int | None, tenants: int) -> Explanation:
    """All of it; `ahead` is None where a gate is closed."""
    if ahead:
        turn = Gate(kind=GateKind.TURN, words=f"{ahead} ready jobs of its line come first")
        gates = [*gates, turn]
    return Explanation(gates=tuple(gates), ahead=ahead, tenants=tenants)
