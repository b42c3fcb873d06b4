"""Answers of a store, and the errors in them that callers raise."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

from holdfast.core.errors import HoldfastError, JobNotFound
from holdfast.core.journal import Signaled
from holdfast.store import Acked, Canceled, Enqueued, Extended

Answer = Enqueued | Extended | Acked | Canceled | Signaled


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(lambda error: Enqueued("a", False, error), id="enqueue"),
        pytest.param(lambda error: Extended("a", error=error), id="extend"),
        pytest.param(lambda error: Acked("a", error=error), id="ack"),
        pytest.param(lambda error: Canceled("a", False, error), id="cancel"),
        pytest.param(lambda error: Signaled("a", False, error), id="signal"),
    ],
)
def test_an_answer_whose_error_was_raised_is_freed(
    refused: Callable[[HoldfastError], Answer],
) -> None:
    """P19: a caller that is refused again and again uses up no memory.

    The error refers to the frame that raised it, and the frame to the answer: a circle that only
    the garbage collector can free.
    """

    def raised() -> weakref.ref[HoldfastError]:
        answer = refused(JobNotFound(id="a"))
        assert answer.error is not None
        try:
            raise answer.error
        except HoldfastError as error:
            return weakref.ref(error)

    found = raised()
    gc.collect()

    assert found() is None
