"""The base of the machine: a store, the model, a clock and the leases so far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from holdfast.core.clock import Clock, Micros
from holdfast.core.job import Lease
from holdfast.store import Lapsed, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.model import Model
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
        self.made = self.claims = 0
        self.loop = asyncio.new_event_loop()
        self.store = type(self).make(self.clock)
        self.run(self.store.open())

    def run(self, call: Awaitable[T]) -> T:
        return self.loop.run_until_complete(call)

    def step(self) -> Micros:
        type(self).steps += 1
        return self.clock.now()

    def lease(self, pick: int) -> Lease:
        """One of the last leases: most are valid, some ended long ago."""
        return self.leases[-1 - pick % min(len(self.leases), 10)]
