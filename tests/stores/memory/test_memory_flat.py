"""What waits at limits of the platform costs later claims nothing, by the calls that they make."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.core.lifecycle import decide
from holdfast.core.scope import Pause, Scope, ScopeSettings, encode
from holdfast.store import Claim, Put
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.builders import job, over_all, type_of

PAUSED = ScopeSettings(paused=Pause("down", "ann"))
FULL = ScopeSettings(max_running=1)


class Calls:
    number = 0


@contextmanager
def counted() -> Iterator[Calls]:
    """Counts the calls of functions, those in C included."""
    calls = Calls()

    def count(frame: FrameType, event: str, arg: object) -> None:
        calls.number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


async def cost(scope: Scope, settings: ScopeSettings, waiting: int) -> int:
    """Calls made by a claim of one other job, and by an end that lets one in, with so many jobs of
    as many tenants waiting at the limit.
    """
    store = MemoryStore(ManualClock())
    await store.open()
    await store.settings([Put(scope.name, encode(settings), 0)])
    for start in range(0, waiting, 500):
        names = range(start, min(waiting, start + 500))
        await store.enqueue([job("j", tenant=f"t{n}") for n in names])
    held = []
    for n in range(waiting // 500 + 3):  # The first claims set aside what they meet.
        held += await store.claim(claim(f"first{n}", 1000))
    await store.enqueue([job("other", queue="audio", type="read")])
    with counted() as calls:
        [lease] = await store.claim(claim("then", 10))
        for each in held:
            await store.ack([decide(Completed(), each.job, each.token, 0.5)])
            assert len(await store.claim(claim("again", 10))) == 1
    assert lease.job.id == "other"
    await store.close()
    return calls.number


def claim(nonce: str, limit: int) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=limit, lease_us=60 * SECOND)


@pytest.mark.parametrize("settings", [PAUSED, FULL], ids=["paused", "full"])
@pytest.mark.parametrize("scope", [over_all(), type_of()], ids=["queue", "type"])
async def test_a_claim_does_not_meet_what_waits_at_a_limit(
    scope: Scope, settings: ScopeSettings
) -> None:
    """P9: as many calls with 4,000 jobs waiting as with 100."""
    few = await cost(scope, settings, 100)
    many = await cost(scope, settings, 4000)

    assert many <= few + 100
