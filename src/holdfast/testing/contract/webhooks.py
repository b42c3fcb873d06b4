"""Webhooks: which events are delivered, once each, and to whom."""

from __future__ import annotations

import pytest

from holdfast.core.edge_bounds import WEBHOOK_EVENTS, WEBHOOKS_MAX
from holdfast.core.errors import InvalidInput, StaleSetting, TenantFull, WebhookNotFound
from holdfast.core.job import By, Completed, Event, EventKind, Failed, State
from holdfast.store import Put
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, tenant_of
from holdfast.testing.contract.hooking import SECRET, URL, Hooking
from holdfast.webhooks.definition import PREFIX, SECRET_PREFIX, group_of, name_of, under
from holdfast.webhooks.stored import webhooks_page

# -- which events ----------------------------------------------------------------------------------


async def test_each_wanted_event_becomes_one_delivery(bench: Bench) -> None:
    """Of the kinds that the webhook names, and only of what happens after it was made."""
    await bench.put("past")
    hook = await Hooking(bench).set(kinds=["enqueued", "completed"])
    await bench.end(await bench.one(), Completed(b"secret result"))
    await bench.put("one", body=b"secret payload")

    await hook.rounds()
    await hook.rounds()

    told = await hook.told()
    assert [(event["kind"], event["job_id"]) for event in told] == [
        ("completed", "past"),
        ("enqueued", "one"),
    ]
    assert {event["tenant"] for event in told} == {ACME}
    assert [event["attempt"] for event in told] == [1, 0]
    assert [event["id"] for event in told] == [job.id for job in await hook.jobs()]
    assert all(b"secret" not in job.envelope.body for job in await hook.jobs())


async def test_types_and_queues_narrow_a_webhook(bench: Bench) -> None:
    """Both must fit."""
    hook = await Hooking(bench).set(types=["send", "call"], queues=["mail"])
    await bench.put("one")
    await bench.put("two", queue="audio")
    await bench.put("three", type="other")
    await bench.put("four", type="call")

    await hook.rounds()

    assert await hook.about() == ["one", "four"]


async def test_the_error_of_a_failure_is_sent_only_if_it_is_asked_for(bench: Bench) -> None:
    """Error texts quote what they failed on. The reason is always told."""
    quiet = await Hooking(bench, "quiet").set(kinds=["failed"])
    loud = await Hooking(bench, "loud").set(kinds=["failed"], include=["error"])
    await bench.end(await bench.held("one"), Failed("no such card: 4242", retryable=False))

    await quiet.rounds()

    [event] = await quiet.told()
    assert event["reason"] == "PERMANENT"
    assert "error" not in event
    [event] = await loud.told()
    assert (event["reason"], event["error"]) == ("PERMANENT", "no such card: 4242")


async def test_events_of_other_tenants_are_not_delivered(bench: Bench) -> None:
    """P7: also where two tenants give a webhook the same name."""
    acme = await Hooking(bench).set()
    globex = await Hooking(bench, tenant=GLOBEX).set()
    await bench.put("a")
    await bench.put("g", tenant=GLOBEX)

    await acme.rounds()

    assert await acme.about() == ["a"]
    assert await globex.about() == ["g"]


async def test_deliveries_cause_no_deliveries(bench: Bench) -> None:
    """One that wants every kind of every queue would otherwise never end."""
    every = [kind for kind in EventKind if kind is not EventKind.CONFIGURED]
    hook = await Hooking(bench).set(kinds=every)
    other = await Hooking(bench, "other").set(kinds=every)
    await bench.put("one")

    for _ in range(5):
        await hook.rounds()
        await hook.end()

    assert await hook.about() == ["one"]
    assert await other.about() == ["one"]


# -- order of rounds, and repeats ------------------------------------------------------------------


async def test_two_processes_that_do_the_upkeep_make_each_delivery_once(bench: Bench) -> None:
    """P15: two leaders do no harm, also if one is far behind."""
    hook = await Hooking(bench).set()
    slow = hook.leader()
    await hook.round(slow)
    for number in range(5):
        await bench.put(f"job-{number}")
        await hook.rounds()
    await hook.round(slow)
    await hook.round(slow)

    assert await hook.about() == [f"job-{number}" for number in range(5)]


async def test_a_tenant_with_many_events_does_not_hold_up_another(bench: Bench) -> None:
    """P19: a round reads a share of each tenant, however many webhooks it has."""
    many = 2 * WEBHOOK_EVENTS + 10
    hooks = [await Hooking(bench, f"hook-{n}").set(types=["none"]) for n in range(3)]
    other = await Hooking(bench, tenant=GLOBEX).set()
    for start in range(0, many, 100):
        await bench.put(*(f"job-{n}" for n in range(start, min(start + 100, many))))
    await bench.put("small", tenant=GLOBEX)

    read: list[int] = []
    events = bench.store.events

    async def counted(tenant: str | None, after: int, limit: int) -> object:
        if tenant == ACME and after >= 0:
            read.append(limit)
        return await events(tenant, after, limit)

    duty = hooks[0].upkeep
    bench.store.events = counted  # type: ignore[method-assign, assignment]
    try:
        await hooks[0].round(duty)
    finally:
        del bench.store.events

    assert await other.about() == ["small"]
    assert sum(read) <= WEBHOOK_EVENTS


async def test_the_waiting_deliveries_of_a_webhook_are_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events wait in the log while a receiver is slow, and none is lost."""
    monkeypatch.setattr("holdfast.webhooks.reader.WEBHOOK_WAITING_MAX", 3)
    hook = await Hooking(bench).set()
    jobs = [f"job-{number}" for number in range(8)]
    await bench.put(*jobs)

    await hook.rounds()
    assert await hook.about() == jobs[:3]
    for _ in range(5):
        await hook.end()
        await hook.rounds()

    assert await hook.about() == jobs


async def test_a_full_tenant_gets_its_deliveries_when_there_is_room(bench: Bench) -> None:
    """They count against its cap as its other jobs do."""
    hook = await Hooking(bench).set()
    await bench.put("one", "two", "three")
    await bench.configure(tenant_of(), max_queued=4)

    await hook.rounds()
    assert await hook.about() == ["one"]
    await bench.configure(tenant_of(), max_queued=100)
    await hook.rounds()

    assert await hook.about() == ["one", "two", "three"]


async def test_deliveries_of_a_webhook_run_a_few_at_a_time(bench: Bench) -> None:
    """P13, P19: a slow receiver does not take all workers."""
    hook = await Hooking(bench).set()
    await bench.put(*(f"job-{number}" for number in range(9)))
    await hook.rounds()

    assert len(await hook.take()) == 4


# -- pauses and gaps -------------------------------------------------------------------------------


async def test_a_pause_keeps_events_until_it_ends(bench: Bench) -> None:
    """Waiting deliveries stop with it, and nothing is lost."""
    hook = await Hooking(bench).set()
    await bench.put("before")
    await hook.rounds()
    await hook.handle.pause("their data centre moves", "ann")
    await bench.put("meanwhile")
    await hook.rounds()

    assert await hook.about() == ["before"]
    assert await hook.take() == []
    await hook.handle.resume("ann")
    await hook.rounds()
    assert await hook.about() == ["before", "meanwhile"]
    assert await hook.end() == 2


async def test_a_resume_can_pass_over_what_happened_meanwhile(bench: Bench) -> None:
    """And deliver what happens from then on."""
    hook = await Hooking(bench).set()
    await hook.handle.pause("they asked for it", "ann")
    await bench.put("meanwhile")
    await hook.handle.resume("ann", skip=True)
    await bench.put("after")

    await hook.rounds()

    assert await hook.about() == ["after"]


async def test_a_pause_is_an_event_with_its_author(bench: Bench) -> None:
    """Whoever reads the events sees why deliveries stop."""
    hook = await Hooking(bench).set()

    await hook.handle.pause("their data centre moves", "ann")

    found = [event for event in await _settings_events(bench) if event.by is not None]
    assert found[-1].by == "ann: their data centre moves"
    assert group_of("billing") in found[-1].job_id


async def test_lost_events_are_told_to_the_receiver(bench: Bench) -> None:
    """P14: as a delivery, and in the state of the webhook."""
    hook = await Hooking(bench).set()
    await hook.handle.pause("a long night", "ann")
    await bench.put("lost")
    bench.clock.advance(7200)
    await bench.store.prune(1000, 0)
    await bench.put("kept")
    await hook.handle.resume("ann")

    await hook.rounds()
    await hook.rounds()

    told = await hook.told()
    assert [event["kind"] for event in told] == ["gap", "enqueued"]
    assert told[1]["job_id"] == "kept"
    position = (await hook.handle.status()).position
    assert position is not None
    assert position.gaps == 1


# -- definitions -----------------------------------------------------------------------------------


async def test_a_secret_is_shown_once(bench: Bench) -> None:
    """It is in one setting, and in nothing that is listed, told or enqueued."""
    hook = Hooking(bench)
    made = await hook.handle.set(url=URL, kinds=["enqueued"], headers={"authorization": SECRET})
    assert made.secret is not None
    await bench.put("one")
    await hook.rounds()
    rotated = await hook.handle.rotate(by=By("ann", "it was in a mail"))
    assert rotated.secret not in (None, made.secret)
    assert (await hook.handle.set(attempts=3)).secret is None

    shown = repr(await hook.handle.get()) + repr(await hook.handle.status())
    shown += repr(await hook.jobs()) + repr((await bench.store.events(ACME, 0, 1000)).events)
    shown += repr(await webhooks_page(bench.store, ACME)) + repr(made) + repr(rotated)
    for setting in await bench.store.settings(under="webhook"):
        if not setting.name.startswith(SECRET_PREFIX):
            shown += repr(setting)
    for secret in (made.secret, str(rotated.secret), SECRET):
        assert secret not in shown


async def test_a_deleted_webhook_leaves_nothing(bench: Bench) -> None:
    """A later one of the same name is another one, and gets no delivery of the first."""
    hook = await Hooking(bench).set()
    await bench.put("one")
    await hook.rounds()
    first = (await hook.jobs())[0]

    await hook.handle.delete(by=By("ann"))

    assert [job for job in await hook.jobs() if job.state is not State.CANCELED] == []
    assert await bench.store.settings(under="webhook") == []
    with pytest.raises(WebhookNotFound):
        await hook.handle.get()
    await hook.set()
    await bench.put("two")
    await hook.rounds()
    assert await hook.about() == ["two"]
    assert first.id not in [job.id for job in await hook.jobs()]


async def test_a_change_names_the_version_that_it_is_based_on(bench: Bench) -> None:
    """And one that changes nothing writes nothing, so that a program may set it at each start."""
    hook = await Hooking(bench).set()
    first = await hook.handle.get()
    again = await hook.handle.set(url=URL, kinds=["enqueued"], secret=SECRET)
    assert again.version == first.version

    await hook.handle.set(attempts=5, expect=first.version)
    with pytest.raises(StaleSetting):
        await hook.handle.set(attempts=6, expect=first.version)
    with pytest.raises(StaleSetting):
        await hook.handle.delete(expect=first.version)

    definition = (await hook.handle.get()).definition
    assert definition is not None
    assert (definition.attempts, definition.url) == (5, URL)
    assert [edit.what for edit in definition.edits] == ["set", "set"]


async def test_the_webhooks_of_a_tenant_are_bounded(bench: Bench) -> None:
    """P19: others still have room."""
    for number in range(WEBHOOKS_MAX):
        await Hooking(bench, f"hook-{number}").set()

    with pytest.raises(TenantFull):
        await Hooking(bench, "one-more").set()
    await Hooking(bench, "theirs", GLOBEX).set()
    await Hooking(bench, "hook-0").set(attempts=3)


@pytest.mark.parametrize("name", ["a", "a b", "ä/ö", "x" * 55, "4:acme/x", "%_\\*[", "webhook/"])
async def test_a_webhook_may_have_any_name(bench: Bench, name: str) -> None:
    """P19: and whatever it is, those before and after it get their deliveries."""
    hooks = [await Hooking(bench, one).set() for one in ("A", name, "~", "a c")]
    await bench.put("one")

    await hooks[0].rounds()

    assert [await hook.about() for hook in hooks] == [["one"]] * 4
    await hooks[1].handle.delete()
    assert len(await bench.store.settings(under=under(ACME))) == 3


async def test_a_webhook_that_cannot_be_read_is_shown_as_such(bench: Bench) -> None:
    """It stops nothing else, and can be set again."""
    hook = await Hooking(bench).set()
    try:
        await bench.store.settings([Put(name_of(ACME, "odd"), b"\xff{", 0)])
    except InvalidInput as refused:
        pytest.skip(f"this store takes no setting that cannot be read: {refused}")
    await bench.put("one")

    await hook.rounds()

    assert await hook.about() == ["one"]
    [_, odd] = (await webhooks_page(bench.store, ACME))[0]
    assert (odd.name, odd.definition) == ("odd", None)
    assert odd.fault is not None
    await Hooking(bench, "odd").set()
    assert len(await bench.store.settings(under=under(ACME, PREFIX))) == 2


async def _settings_events(bench: Bench) -> list[Event]:
    page = await bench.store.events(ACME, 0, 1000)
    return [event for event in page.events if event.kind is EventKind.CONFIGURED]
