"""A state machine that calls random verbs on a store and compares each answer with the model.

machine = machine_for(make)                # make(clock) returns a new, empty store each time
run_state_machine_as_test(machine, settings=settings(max_examples=250))
assert machine.steps >= 10_000
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from holdfast.core.bounds import EXPIRED_MAX, PRUNE_MAX
from holdfast.core.clock import SECOND, Clock, Micros
from holdfast.core.job import (
    Abandoned,
    Completed,
    Failed,
    Lease,
    NewJob,
    Outcome,
    Reason,
    Released,
    Snoozed,
    State,
)
from holdfast.core.journal import Key
from holdfast.core.lifecycle import Transition, decide, lapse
from holdfast.core.scope import Scope, ScopeSettings
from holdfast.store import Claim, Extension, Store
from holdfast.testing.contract.builders import RETRY, job
from holdfast.testing.contract.checks import (
    check_lapsed,
    check_lease,
    check_order,
)
from holdfast.testing.contract.machine_change import ChangeRules
from holdfast.testing.contract.machine_flows import YEAR, FlowRules
from holdfast.testing.contract.machine_scopes import ScopeRules
from holdfast.testing.contract.model import lapse_answers
from holdfast.testing.contract.model_item import Item
from holdfast.testing.contract.model_scopes import Usage
from holdfast.testing.contract.strategies import (
    QUEUES,
    TENANTS,
    entries,
    lengths,
    limits,
    options,
    outcomes,
    picks,
    scopes,
    some_groups,
    some_queues,
    some_tenants,
)

T = TypeVar("T")
Names = tuple[str, ...] | None


class StoreMachine(ScopeRules, FlowRules, ChangeRules):
    """Random verbs on a store, each answer compared with the model."""

    def teardown(self) -> None:
        try:
            self.compare()
            self.drain()
            self.compare()
            self.check_events()
        finally:
            self.run(self.store.close())
            self.loop.close()

    # -- journey ---------------------------------------------------------------------------------

    @initialize(
        many=st.lists(options, min_size=8, max_size=16),
        limit=st.integers(0, 4),
        said=st.lists(st.tuples(scopes, limits), max_size=4),
    )
    def begin(
        self, many: list[dict[str, Any]], limit: int, said: list[tuple[Scope, ScopeSettings]]
    ) -> None:
        if self.store.capabilities.scopes:
            for scope, settings in said:
                self.say(scope, settings)
        self.enqueue(many)
        self.take(limit, 10 * SECOND)

    @rule(many=st.lists(options, min_size=2, max_size=8))
    def enqueue(self, many: list[dict[str, Any]]) -> None:
        now = self.step()
        self.add([job(self.new_id(), **each) for each in many], now)

    @precondition(lambda self: self.model.items)
    @rule(pick=picks, gone=st.booleans())
    def enqueue_again(self, pick: int, gone: bool) -> None:
        """A job that is there, or one of those that were deleted last."""
        now = self.step()
        lost = self.model.gone[-5:]
        self.add([lost[pick % len(lost)] if gone and lost else self.item(pick).new], now)

    def add(self, jobs: list[NewJob], now: Micros) -> None:
        answers = self.run(self.store.enqueue(jobs))
        expected = [self.model.enqueue(each, now) for each in jobs]
        assert [(answer.id, answer.created) for answer in answers] == expected
        assert all(answer.error is None for answer in answers)

    @rule(
        limit=st.integers(0, 6),
        length=lengths,
        of=some_tenants,
        queues=some_queues,
        without=some_groups,
    )
    def claim(
        self, limit: int, length: Micros, of: Names, queues: Names, without: tuple[str, ...]
    ) -> None:
        self.step()
        self.take(limit, length + SECOND, of, queues, without)

    def take(
        self,
        limit: int,
        length: Micros,
        of: Names = None,
        queues: Names = None,
        without: tuple[str, ...] = (),
    ) -> list[Lease]:
        now = self.clock.now()
        self.claims += 1
        claim = Claim(
            worker="w1",
            nonce=f"n{self.claims}",
            limit=limit,
            lease_us=length,
            tenants=of,
            queues=queues,
            exclude_groups=without,
        )
        leases = self.run(self.store.claim(claim))
        asked = [(t, q) for t in of or TENANTS for q in queues or QUEUES]
        ready = self.model.lines(asked, now, without)
        for lease in leases:
            check_lease(lease, self.model.get(lease.job.tenant, lease.job.id))
            assert lease.until == now + length
            assert lease.token not in self.tokens
            self.tokens.add(lease.token)
            self.model.take(lease, now)
        check_order(leases, ready, limit, Usage(self.words, self.model.items, now))
        self.leases += leases
        return leases

    @precondition(lambda self: self.leases)
    @rule(
        pick=picks,
        length=lengths,
        forged=st.sampled_from([False, False, False, True]),
        drawn=entries,
    )
    def extend(self, pick: int, length: Micros, forged: bool, drawn: list[Key]) -> None:
        """P16: a refused extension writes nothing."""
        now = self.step()
        lease = self.lease(pick)
        token = "forged" if forged else lease.token
        tenant, id = lease.job.tenant, lease.job.id
        written = self.new_entries(drawn)
        wish = Extension(tenant=tenant, id=id, token=token, lease_us=length, entries=written)
        [answer] = self.run(self.store.extend([wish]))
        expected = self.model.extend((tenant, id), token, length, now, written)
        assert (type(answer.error) if answer.error else answer.until) == expected

    @precondition(lambda self: self.leases)
    @rule(
        picks=st.lists(picks, min_size=1, max_size=3),
        outcome=outcomes,
        forged=st.sampled_from([False, False, False, True]),
        drawn=entries,
    )
    def ack(self, picks: list[int], outcome: Outcome, forged: bool, drawn: list[Key]) -> None:
        """One or several jobs, in one call."""
        now = self.step()
        leases = {(lease.job.tenant, lease.job.id): lease for lease in map(self.lease, picks)}
        changes = []
        for lease in leases.values():
            change = decide(outcome, lease.job, "forged" if forged else lease.token, 0.5)
            changes.append(msgspec.structs.replace(change, entries=self.new_entries(drawn)))
        answers = self.run(self.store.ack(changes))
        for lease, change, answer in zip(leases.values(), changes, answers, strict=True):
            name, token = (change.tenant, change.id), change.token or ""
            refused = self.model.refused(name, token, now)
            assert (type(answer.error) if answer.error else None) is refused
            if refused is None:
                self.model.write(name, change.entries, now)
                self.settle(lease, outcome, now)
        self.follow()

    def settle(self, lease: Lease, outcome: Outcome, now: Micros) -> None:
        """The expected effect of each outcome, from the docs on the life of a job."""
        item = self.model.get(lease.job.tenant, lease.job.id)
        assert item is not None
        match outcome:
            case Completed(result=result):
                self.model.end(item, State.COMPLETED, now, result=result)
            case Failed(retryable=False):
                self.model.end(item, State.FAILED, now, Reason.PERMANENT)
            case Failed(reason=Reason.TIMEOUT) if item.spent:
                self.model.end(item, State.FAILED, now, Reason.TIMEOUT)
            case Failed(after_us=after, reason=reason):
                self.model.retry(item, now + (RETRY if after is None else after), now)
                item.reason = item.reason or reason
            case Released(delay_us=delay) | Snoozed(delay_us=delay):
                self.model.give_back(item, now + delay)
            case Abandoned():
                self.model.give_back(item, now)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, delay=lengths)
    def retry_at(self, pick: int, delay: Micros) -> None:
        """A transition with an instant, even if no attempts are left."""
        now = self.step()
        lease = self.lease(pick)
        tenant, id, token = lease.job.tenant, lease.job.id, lease.token
        wish = Transition(tenant=tenant, id=id, token=token, to=State.RETRYING, run_at=now + delay)
        [answer] = self.run(self.store.ack([wish]))
        refused = self.model.refused((tenant, id), token, now)
        assert (type(answer.error) if answer.error else None) is refused
        item = self.model.get(tenant, id)
        if refused is None and item is not None:
            spent = item.spent
            self.model.retry(item, now + delay, now)
            assert (answer.state is State.FAILED) == spent
        self.follow()

    # -- time and upkeep -------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 10, 30, 600]))
    def advance(self, seconds: int) -> None:
        self.step()
        self.clock.advance(seconds)

    @rule(pick=picks, early=st.booleans(), then=st.sampled_from(["claim", "look", "prune", ""]))
    def advance_to_a_deadline(self, pick: int, early: bool, then: str) -> None:
        """Moves the clock to the instant of an event, or a microsecond before it, and checks it."""
        instants = self.model.instants(self.step())
        if instants:
            self.clock.set(instants[pick % len(instants)] - early)
        if then == "claim":
            self.take(6, SECOND)
        elif then == "look":
            self.look()
        elif then == "prune":
            self.prune()

    @rule()
    def look(self) -> None:
        now = self.step()
        seen = self.run(self.store.expired(EXPIRED_MAX))
        names = {(one.job.tenant, one.job.id) for one in seen}
        must, may = self.model.expired(now)
        assert must <= names <= must | may
        assert len(names) == len(seen)
        overdue = [one.overdue_us for one in seen]
        assert overdue == sorted(overdue, reverse=True)
        for one in seen:
            check_lapsed(one, self.model.get(one.job.tenant, one.job.id), now)
        self.looks = seen

    @precondition(lambda self: self.looks)
    @rule()
    def act_on_the_look(self) -> None:
        """Acts on a fresh read, or on an old one."""
        now = self.step()
        changes = [lapse(one.job, one.token) for one in self.looks]
        for change, answer in zip(changes, self.run(self.store.ack(changes)), strict=True):
            error = type(answer.error) if answer.error else None
            item = self.model.get(change.tenant, change.id)
            assert error in lapse_answers(item, change.token, now)
            if error is None and item is not None:
                self.lapsed(item, change, now)
        self.follow()

    def lapsed(self, item: Item, change: Transition, now: Micros) -> None:
        if change.token is None:
            item.lapses += item.lapsed(now)  # Rescued first, or it could not have expired.
            self.model.end(item, State.FAILED, now, Reason.EXPIRED)
        elif item.spent:
            item.lapses += 1
            self.model.end(item, State.FAILED, now, Reason.LEASE_EXPIRED)
        else:
            self.model.rescue(item)

    @rule()
    def prune(self) -> None:
        now = self.step()
        gone, may = self.model.prunable(now)
        pruned = self.run(self.store.prune(PRUNE_MAX, YEAR))
        gone += [item for item in may if self.peek(*item.name) is None]
        assert (pruned.jobs, pruned.events, pruned.more) == (len(gone), 0, False)
        self.model.pruned(gone, now)


def machine_for(make: Callable[[Clock], Store]) -> type[StoreMachine]:
    """A machine class for the stores of `make`, with its own count of steps."""
    return type("StoreMachineOf", (StoreMachine,), {"make": staticmethod(make), "steps": 0})
