"""Every store against the model: thousands of random steps, the same ones on every run."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.core.clock import Clock
from holdfast.store import Store
from holdfast.testing.contract.machine import machine_for

STEPS_EACH = 80


@pytest.mark.parametrize(
    ("examples", "steps_least"),
    [
        pytest.param(50, 2_000, id="few"),
        pytest.param(220, 10_000, id="many", marks=pytest.mark.slow),
    ],
)
def test_a_store_does_what_the_model_says(
    make: Callable[[str, Clock | None], Store],
    done: Callable[[], None],
    record_property: Callable[[str, object], None],
    examples: int,
    steps_least: int,
) -> None:
    """P1-P14: no sequence of verbs makes a store and the promises disagree."""
    numbers = itertools.count()

    def anew(clock: Clock) -> Store:
        done()
        return make(f"machine{next(numbers)}", clock)

    machine = machine_for(anew)

    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=STEPS_EACH)
    )

    record_property("steps", machine.steps)
    assert machine.steps >= steps_least
