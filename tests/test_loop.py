"""The loop that background duties share, and what it logs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import loop
from holdfast.core.errors import StoreReadOnly, StoreUnavailable
from holdfast.loop import Outage, keep_turning

GONE = StoreUnavailable(store="db", why="it cannot be reached")


class _Duty:
    """Raises what it was given, one after the other, and then stops its loop."""

    name = "sweeping"

    def __init__(self, stop: asyncio.Event, *errors: Exception | None) -> None:
        self._stop = stop
        self._errors = list(errors)

    async def turn(self) -> float:
        error = self._errors.pop(0)
        if not self._errors:
            self._stop.set()
        if error is not None:
            raise error
        return 0.0


async def _logged(caplog: pytest.LogCaptureFixture, *errors: Exception | None) -> list[str]:
    stop = asyncio.Event()
    with caplog.at_level(logging.INFO, "holdfast"):
        await keep_turning(_Duty(stop, *errors), stop)
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RETRY_FIRST_S", 0.0)


async def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that is away for a minute must not hide everything else in the log."""
    began, ended = await _logged(caplog, None, GONE, GONE, GONE, None, None)

    assert began == "sweeping: store db: it cannot be reached; trying again until it works"
    assert ended.startswith("sweeping: works again after ")
    assert all(record.exc_info is None for record in caplog.records)


async def test_an_error_of_the_duty_itself_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody can find a mistake of ours without it."""
    [line] = await _logged(caplog, ValueError("odd"), None)

    assert line == "sweeping failed; trying again in 0.0 s"
    assert caplog.records[0].exc_info is not None


def test_another_kind_of_error_during_an_outage_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A store that comes back read-only is another problem than one that is away."""
    outage = Outage(logging.getLogger("holdfast"), "claiming jobs")

    with caplog.at_level(logging.INFO, "holdfast"):
        for error in (GONE, GONE, StoreReadOnly(store="db", why="a replica")):
            outage.seen(error)
        outage.over()
        outage.over()

    assert len(caplog.records) == 3
