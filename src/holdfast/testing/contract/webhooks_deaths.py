"""Webhooks: deaths of the upkeep at every call, and receivers that fail for long."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import WebhookNotFound
from holdfast.core.job import EventKind
from holdfast.core.schedule import ITSELF
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME
from holdfast.testing.contract.hooking import Hooking
from holdfast.testing.contract.ticking import Deadly, Died
from holdfast.webhooks import stored
from holdfast.webhooks.definition import group_of

CALLS_MAX = 60


@pytest.mark.parametrize("late", [False, True])
async def test_the_upkeep_may_die_at_every_call_of_a_round(bench: Bench, late: bool) -> None:
    """P15: the next leader goes on, with no delivery lost and none made twice, although those that
    were sent meanwhile are there as ended jobs only.
    """
    hook = await Hooking(bench).set()
    made: list[str] = []
    calls, finished = 0, 0
    while finished < 2:
        calls += 1
        assert calls < CALLS_MAX
        made += [f"job-{calls}-{part}" for part in range(2)]
        await bench.put(*made[-2:])
        try:
            await hook.round(hook.leader(Deadly(bench.store, calls, late=late)))
            finished += 1
        except Died:
            if calls % 2:
                await hook.end()
        await hook.round(hook.leader())

    assert calls > 7
    about = await hook.about()
    assert len(about) == len(set(about))
    assert about == made


@pytest.mark.parametrize("late", [False, True])
async def test_a_process_may_die_at_every_call_of_making_a_webhook(
    bench: Bench, late: bool
) -> None:
    """There is a whole webhook, with its secret and its position, or none."""
    calls = 0
    while True:
        calls += 1
        assert calls < CALLS_MAX
        hook = Hooking(bench, f"hook-{calls}")
        try:
            await hook.set(Deadly(bench.store, calls, late=late))
        except Died:
            await _whole_or_none(hook)
            continue
        break
    await _whole_or_none(hook)

    assert calls > 4


async def _whole_or_none(hook: Hooking) -> None:
    store = hook.bench.store
    try:
        await hook.handle.get()
        there = True
    except WebhookNotFound:
        there = False
    secrets, _ = await stored.secrets_of(store, ACME, hook.name)
    position, _ = await stored.position_of(store, ACME, hook.name)
    assert (secrets is not None) == (position is not None) == there
    if there:
        await hook.handle.delete()


# -- receivers that fail ---------------------------------------------------------------------------


async def test_a_webhook_that_fails_for_long_pauses_itself(bench: Bench) -> None:
    """With the reason, its deliveries too, and as an event. A success in between begins anew."""
    hook = await Hooking(bench).set(pause_after=3600)
    await _fail(hook, 10)
    await stored.worked(bench.store, await hook.handle.get())
    bench.clock.advance(7200)
    await _fail(hook, 4)
    await hook.rounds()
    assert (await hook.handle.get()).paused is None
    bench.clock.advance(3601)
    await _fail(hook, 1)
    await bench.put("one")

    await hook.rounds()

    paused = (await hook.handle.get()).paused
    assert paused is not None
    assert paused.author == ITSELF
    assert "5 failures in 1.0 h" in paused.reason
    assert await hook.about() == []
    events = (await bench.store.events(ACME, 0, 1000)).events
    [told] = [
        one
        for one in events
        if one.kind is EventKind.CONFIGURED and (one.by or "").startswith(ITSELF)
    ]
    assert group_of("billing") in told.job_id

    await hook.handle.resume("ann")
    await hook.rounds()
    assert await hook.about() == ["one"]
    assert (await hook.handle.status()).health is None


async def test_a_receiver_that_wants_no_more_pauses_its_webhook(bench: Bench) -> None:
    """At once, and no other one."""
    hook = await Hooking(bench).set()
    other = await Hooking(bench, "other").set()
    state = await hook.handle.get()
    await stored.failed(bench.store, state, "it answered 410", bench.clock.now(), gone=True)
    await bench.put("one")

    await hook.rounds()

    paused = (await hook.handle.get()).paused
    assert paused is not None
    assert paused.reason == "it answered 410"
    assert await hook.about() == []
    assert await other.about() == ["one"]


async def _fail(hook: Hooking, times: int) -> None:
    """As so many failed deliveries do, a second apart."""
    for _ in range(times):
        state = await hook.handle.get()
        hook.bench.clock.advance(1)
        now = hook.bench.clock.now()
        await stored.failed(hook.bench.store, state, "status 500", now)
    assert now > SECOND
