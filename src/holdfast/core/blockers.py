"""The texts of `explain`, the same for all stores: one for each kind of blocker. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from holdfast.core.bounds import HOLDERS_MAX, INSTANT_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.journal import AWAITS_PARENTS, ENDS_WITH_PARENTS, EntryKind
from holdfast.core.plural import many
from holdfast.core.scope import (
    Blocker,
    BlockerKind,
    Explanation,
    GroupSettings,
    Scope,
    ScopeSettings,
)


class Waiting(Protocol):
    """The facts about a job that does not run."""

    @property
    def state(self) -> State: ...
    @property
    def run_at(self) -> Micros: ...
    @property
    def expires_at(self) -> Micros | None: ...
    @property
    def awaits(self) -> str | None: ...


class Usage(msgspec.Struct, frozen=True):
    """The current use of a scope's limits."""

    running: int
    slots: int
    """Held slots that count against the limit; 0 if they do not count."""
    holders: Callable[[], tuple[str, ...]]
    """The jobs and slots that use up the limit; read only if it is reached."""
    token_at: Micros | None
    """When its rate allows the next start; None if it allows one now or there is no rate."""


def ended(state: State) -> Explanation:
    return Explanation(gates=(Blocker(kind=BlockerKind.ENDED, words=f"it is {state.value}"),))


def running(worker: str | None, attempt: int, until: Micros | None) -> Explanation:
    words = f"worker {worker} runs it, attempt {attempt}"
    return Explanation(gates=(Blocker(kind=BlockerKind.RUNNING, words=words, until=until),))


def own_blockers(job: Waiting, now: Micros) -> Iterator[Blocker]:
    """The blocker of the job itself, apart from its scopes. The job has not ended and has no valid
    lease.
    """
    if job.expires_at is not None and job.expires_at <= now:
        yield Blocker(kind=BlockerKind.EXPIRED, words="its time to live has passed")
    if job.state is State.PROCESSING:
        words = "the lease of its last attempt has expired; the upkeep will fail it"
        yield Blocker(kind=BlockerKind.EXPIRED, words=words)
    elif job.state is State.WAITING:
        yield Blocker(kind=BlockerKind.AWAITS, words=awaited(AWAITS_PARENTS))
    elif job.state is State.SCHEDULED and job.awaits is not None and job.run_at > now:
        until = job.run_at if job.run_at < INSTANT_MAX else None
        yield Blocker(kind=BlockerKind.AWAITS, words=awaited(job.awaits), until=until)
    elif job.state in (State.SCHEDULED, State.RETRYING) and job.run_at > now:
        why = "its next attempt is due later" if job.state is State.RETRYING else "it is due later"
        yield Blocker(kind=BlockerKind.SCHEDULE, words=why, until=job.run_at)


def awaited(awaits: str) -> str:
    """What a job awaits, in words."""
    if awaits in (AWAITS_PARENTS, ENDS_WITH_PARENTS):
        return "it waits for the end of its parents"
    kind, _, name = awaits.partition(":")
    if kind == EntryKind.SIGNAL:
        return f"it waits for the signal {name!r}"
    return f"it waits for the end of the jobs of its {name!r}"


def scope_blockers(
    scope: Scope, rules: ScopeSettings | GroupSettings, usage: Usage
) -> Iterator[Blocker]:
    """The blockers of a scope: its pause, its limit and its rate."""
    name = scope.words
    if rules.paused is not None:
        words = f"{name} is paused by {rules.paused.author}: {rules.paused.reason}"
        yield Blocker(kind=BlockerKind.PAUSE, words=words, scope=scope)
    if rules.max_running is not None and usage.running + usage.slots >= rules.max_running:
        words = f"{name} runs {many(usage.running, 'job')}"
        words += f", {many(usage.slots, 'slot')} held" if usage.slots else ""
        words += f", its limit is {rules.max_running}"
        yield Blocker(kind=BlockerKind.LIMIT, words=words, scope=scope, holders=usage.holders())
    if usage.token_at is not None:
        words = f"{name} has started as many as its rate allows"
        yield Blocker(kind=BlockerKind.RATE, words=words, scope=scope, until=usage.token_at)


def by_tenant(running: Counter[str]) -> list[str]:
    """The tenants that hold the places of a scope of the platform, those with the most first."""
    most = sorted(running.items(), key=lambda each: (-each[1], each[0]))
    return [f"{tenant}: {number}" for tenant, number in most[:HOLDERS_MAX]]


def order_blocker(scope: Scope, first: str) -> Blocker:
    """The blocker of an ordered group in which another job is first."""
    words = f"group {scope.part} is ordered, job {first} comes first"
    return Blocker(kind=BlockerKind.ORDER, words=words, scope=scope, holders=(first,))


def explanation(blockers: list[Blocker], ahead: int | None, tenants: int) -> Explanation:
    """The whole explanation. `ahead` is None if the job has a blocker."""
    if ahead:
        turn = Blocker(
            kind=BlockerKind.TURN, words=f"{ahead} ready jobs are ahead of it in its queue"
        )
        blockers = [*blockers, turn]
    return Explanation(gates=tuple(blockers), ahead=ahead, tenants=tenants)
