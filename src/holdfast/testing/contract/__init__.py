"""The behaviour suite: tests that every store must pass. It needs a fixture and one line:

    # conftest.py
    import pytest
    pytest.register_assert_rewrite("holdfast.testing.contract")

    from holdfast.testing import ManualClock
    from holdfast.testing.contract.bench import Bench

    @pytest.fixture
    async def bench(tmp_path):
        clock = ManualClock()
        bench = Bench(lambda: MyStore(tmp_path, clock), clock)     # opens the same data each time
        bench.spoil = make_a_stored_record_unreadable              # async (store, ref); optional
        bench.begin = begin_a_transaction_of_a_caller              # async with; optional
        await bench.open()
        yield bench
        await bench.close()

    # test_contract.py
    from holdfast.testing.contract import suite
    globals().update(suite())

Each bench starts with an empty store on its own ManualClock; no test sleeps. A store declares in
its `capabilities` what it cannot do, and the tests that need it are skipped with that reason.
`machine.py` compares a store with a model of the promises; `racing.py` lets claimers race for jobs.
Both need only a function that makes a store.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

TOPICS = (
    "enqueue",
    "whole",
    "idempotency",
    "claim",
    "repeats",
    "order",
    "attempts",
    "effects",
    "extend",
    "ack",
    "refusals",
    "using",
    "steps",
    "steps_kept",
    "journal_bytes",
    "signals",
    "joins",
    "joins_ends",
    "ending_with_parents",
    "flows",
    "flows_ends",
    "flows_start",
    "cancel",
    "change",
    "signed",
    "upkeep",
    "keeping",
    "find",
    "count",
    "tallies",
    "events",
    "settings",
    "hold",
    "shadow",
    "shadow_ends",
    "configured",
    "ceilings",
    "limits",
    "live_limits",
    "groups",
    "ordered",
    "rates",
    "slots",
    "pause",
    "platform",
    "platform_turns",
    "tiers",
    "fairness",
    "caps",
    "caps_journals",
    "shares",
    "unreadable",
    "explain",
    "wait",
    "tenants",
    "life",
    "schedules",
    "schedule_rules",
    "schedule_deaths",
    "webhooks",
    "webhooks_deaths",
    "sources",
    "source_listings",
    "source_ways",
    "source_deaths",
    "dog_queue",
)
"""The modules of the suite, in the order of the verbs."""


def suite(*topics: str) -> dict[str, Callable[..., Any]]:
    """The tests of these topics (default: all), by name, for the globals of a test module."""
    tests: dict[str, Callable[..., Any]] = {}
    for topic in topics or TOPICS:
        for name, test in _tests(importlib.import_module(f"{__name__}.{topic}")):
            if name in tests:
                raise ValueError(f"two tests of the suite are called {name}")
            tests[name] = test
    return tests


def _tests(module: ModuleType) -> list[tuple[str, Callable[..., Any]]]:
    return [(name, each) for name, each in vars(module).items() if name.startswith("test_")]
