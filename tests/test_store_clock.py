"""The store's clock, for what people say and read: that of the host may be far off (P8)."""

from __future__ import annotations

import time

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import Failed
from holdfast.core.lifecycle import decide
from holdfast.operate import examine
from holdfast.store import Claim, Selection
from holdfast.store_clock import LOOK_S, StoreClock
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import job

HOUR = 3600 * SECOND


@pytest.fixture
async def place() -> tuple[MemoryStore, ManualClock]:
    """A store whose clock is an hour ahead of the host's."""
    clock = ManualClock(time.time_ns() // 1000 + HOUR)
    store = MemoryStore(clock)
    await store.open()
    return store, clock


async def test_a_look_tells_the_stores_instant(place: tuple[MemoryStore, ManualClock]) -> None:
    """P8: not the host's."""
    store, clock = place

    seen = await StoreClock(store).look()

    assert abs(seen - clock.now()) < 60 * SECOND


async def test_a_look_is_trusted_for_a_while(
    place: tuple[MemoryStore, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages do not write to the store each time."""
    store, clock = place
    watch = StoreClock(store)
    await watch.look()
    clock.advance(1000)

    assert abs(await watch.look() - clock.now()) > 500 * SECOND
    later = time.monotonic() + LOOK_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert abs(await watch.look() - clock.now()) < 60 * SECOND


async def test_who_may_not_hold_names_goes_by_the_host() -> None:
    """A closed store, or a token that only reads."""
    seen = await StoreClock(MemoryStore()).look()

    assert abs(seen - time.time_ns() // 1000) < 60 * SECOND


async def test_since_and_before_are_lengths_of_the_stores_time(
    place: tuple[MemoryStore, ManualClock],
) -> None:
    """P8: `--since 15m` on a host whose clock is an hour behind."""
    from holdfast.cli.filters import dated
    from holdfast.cli.values import past

    store, clock = place
    select = Selection(tenant=None, created_from=past("15m"), failed_before=past("0s"))

    made = await dated(store, select)

    assert made.created_from is not None
    assert made.failed_before is not None
    assert abs(made.created_from - (clock.now() - 900 * SECOND)) < 60 * SECOND
    assert abs(made.failed_before - clock.now()) < 60 * SECOND
    assert await dated(store, Selection(tenant=None, created_from=5)) == Selection(
        tenant=None, created_from=5
    )


async def test_the_doctor_tells_of_jobs_that_could_not_be_read(
    place: tuple[MemoryStore, ManualClock],
) -> None:
    """P19: what was set aside is not forgotten."""
    from holdfast.core.job import Reason

    store, _ = place
    await store.enqueue([job("bad")])
    [lease] = await store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=60 * SECOND))
    failed = Failed("garbage", reason=Reason.DECODE, retryable=False)
    await store.ack([decide(failed, lease.job, lease.token, 0.0)])

    found = {one.what: one.words for one in await examine(store)}

    assert "1 job could not be read" in found["unreadable jobs"]
    assert "'bad'" in found["unreadable jobs"]
