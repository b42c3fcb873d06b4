"""The base of the machine: a store, the model, a clock and the leases so far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from holdfast.core.clock import SECOND, Clock, Micros
from holdfast.core.job import JobRecord, Lease, NewJob, State
from holdfast.store import Lapsed, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.builders import finding
from holdfast.testing.contract.model import Model
from holdfast.testing.contract.model_item import Item
from holdfast.testing.contract.model_joins import follow
from holdfast.testing.contract.model_scopes import Words

T = TypeVar("T")


class MachineBase(RuleBasedStateMachine):
    """No rules yet."""

    make: ClassVar[Callable[[Clock], Store]]
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.words = Words()
        self.clock = ManualClock()
        self.leases: list[Lease] = []
        self.looks: list[Lapsed] = []
        self.tokens: set[str] = set()
        self.made = self.claims = self.written = 0
        """Numbers of ids, nonces and values so far."""
        self.loop = asyncio.new_event_loop()
        self.store = type(self).make(self.clock)
        self.run(self.store.open())

    def run(self, call: Awaitable[T]) -> T:
        return self.loop.run_until_complete(call)

    def step(self) -> Micros:
        type(self).steps += 1
        return self.clock.now()

    def lease(self, pick: int) -> Lease:
        """One that is valid, mostly, after a claim if there is none; else one of the last, some of
        which ended long ago.
        """
        valid: list[Lease] = []
        if pick % 4 != 3:
            valid = self.valid() or (self.take(4, 30 * SECOND) and self.valid())
        some = valid or self.leases[-10:]
        return some[-1 - pick % len(some)]

    def valid(self) -> list[Lease]:
        """The leases that still hold."""
        now = self.clock.now()
        found = []
        for lease in self.leases:
            item = self.model.get(lease.job.tenant, lease.job.id)
            if item is not None and item.refusal(lease.token, now) is None:
                found.append(lease)
        return found

    def new_id(self) -> str:
        self.made += 1
        return f"j{self.made}"

    def item(self, pick: int) -> Item:
        """One of all jobs."""
        return self.model.items[pick % len(self.model.items)]

    def parent(self, pick: int) -> Item:
        """A job that a living one awaits, if there are such."""
        parents = [
            item for item in self.model.items if not item.over and self.model.is_wanted(item)
        ]
        return parents[pick % len(parents)] if parents else self.item(pick)

    def peek(self, tenant: str, id: str) -> JobRecord | None:
        found = self.run(self.store.find(finding(tenant, ids=(id,)))).jobs
        assert len(found) <= 1
        return found[0] if found else None

    def follow(self) -> None:
        """Brings the model to what the end of jobs by the last call has done to others."""

        def shown(item: Item) -> State | None:
            found = self.peek(*item.name)
            return None if found is None else found.state

        follow(self.model, shown, self.clock.now())

    # -- what the parts of the machine call of each other ------------------------------------------

    def add(self, jobs: list[NewJob], now: Micros) -> None:
        raise NotImplementedError

    def take(self, limit: int, length: Micros) -> list[Lease]:
        raise NotImplementedError

    def look(self) -> None:
        raise NotImplementedError

    def act_on_the_look(self) -> None:
        raise NotImplementedError
