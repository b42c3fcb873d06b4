"""Limits, pauses, groups and slots by their handles: what a program sets for its customers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, InvalidInput, State
from holdfast.core.clock import SECOND
from holdfast.core.errors import QueueFull, StaleSetting, StoreUnsupported
from holdfast.core.job import EventKind
from holdfast.core.rate import Rate
from holdfast.core.scope import NO_SETTINGS, GroupRules, Pause, Scope, ScopeKind
from holdfast.listings import configured
from holdfast.scopes import STEP, handle, rate_text
from holdfast.store import Claim, Put, Setting
from holdfast.stores import open_store
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    store = open_store(url, ManualClock())
    if not store.capabilities.scopes:
        pytest.skip("this store keeps no scopes yet")
    app = App(store)

    @app.job(name="add", queue="sums")
    async def add(ctx: Context, a: int) -> int:
        return a

    async with app:
        yield app


def add(app: App, a: int = 1) -> Any:
    found = app.registry.named("add")
    assert found is not None
    return found.kind(a=a)


async def claimed(app: App, limit: int = 100) -> list[str]:
    claim = Claim(worker="w", nonce=secrets.token_hex(8), limit=limit, lease_us=60 * SECOND)
    return [lease.job.id for lease in await app.store.claim(claim)]


# -- settings --------------------------------------------------------------------------------------


async def test_nothing_is_set_at_first(app: App) -> None:
    """And the version says so: it is what a first change expects."""
    found = await app.tenant("acme").scope().get()

    assert (found.settings, found.version) == (NO_SETTINGS, 0)


async def test_set_changes_the_named_fields_only(app: App) -> None:
    """Two programs that care for different limits do not undo each other."""
    acme = app.tenant("acme").scope()
    await acme.set(max_running=5, rate="100/s", weight=3)

    after = await acme.set(max_running=7)

    assert after == await acme.get()
    assert (after.settings.max_running, after.settings.weight) == (7, 3)
    assert after.settings.rate == Rate(100, SECOND, 100)


async def test_none_takes_a_limit_away(app: App) -> None:
    """The last one gone, nothing is set any more."""
    mail = app.tenant("acme").queue("mail")
    await mail.set(max_running=5, rate="1/m")

    half = await mail.set(max_running=None)
    none = await mail.set(rate=None)

    assert (half.settings.max_running, half.settings.rate) == (None, Rate(1, 60 * SECOND, 1))
    assert (none.settings, none.version) == (NO_SETTINGS, 0)
    assert await configured(app.store) == {}


async def test_a_burst_goes_with_its_rate(app: App) -> None:
    """Given later it changes the rate that is there; without one it is refused."""
    acme = app.tenant("acme").scope()
    with pytest.raises(InvalidInput, match=r"burst.*give a rate too"):
        await acme.set(burst=5)
    await acme.set(rate="100/s", burst=10)

    after = await acme.set(burst=20)

    assert after.settings.rate == Rate(100, SECOND, 20)
    assert rate_text(after.settings.rate) == "100/s burst 20"


async def test_a_queue_holds_what_its_groups_have(app: App) -> None:
    """As a dict of the fields to change, or whole; the group's own word wins."""
    sums = app.tenant("acme").queue("sums")
    await sums.set(groups={"max_running": 2, "rate": "10/s"})

    after = await sums.set(groups={"ordered": True, "rate": None})
    none = await sums.set(groups=GroupRules())

    assert after.settings.groups == GroupRules(max_running=2, ordered=True)
    assert none.settings.groups == GroupRules()
    with pytest.raises(InvalidInput, match=r"groups\.max_runing.*Did you mean 'max_running'"):
        await sums.set(groups={"max_runing": 2})  # type: ignore[arg-type]


async def test_a_change_that_expects_another_version_is_refused(app: App) -> None:
    """Compare-and-set: nothing is changed, and the error says what to do."""
    acme = app.tenant("acme").scope()
    first = await acme.set(max_running=1)
    await acme.set(max_running=2, expect=first.version)

    with pytest.raises(StaleSetting, match="read it again"):
        await acme.set(max_running=3, expect=first.version)

    assert (await acme.get()).settings.max_running == 2


async def test_a_change_without_a_version_tries_again(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's change in between stays; ours is made on top of it."""
    acme, other = app.tenant("acme").scope(), app.tenant("acme").scope()
    put, raced = app.store.settings, list[bool]()

    async def racing(puts: Any = (), **listed: Any) -> list[Setting]:
        if puts and not raced:
            raced.append(True)
            await other.set(weight=9)
        return await put(puts, **listed)

    monkeypatch.setattr(app.store, "settings", racing)
    after = await acme.set(max_running=4)

    assert (after.settings.weight, after.settings.max_running) == (9, 4)


async def test_it_does_not_try_for_ever(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that always says stale is heard."""
    put, tries = app.store.settings, 0

    async def stale(puts: Sequence[Put] = (), **listed: Any) -> list[Setting]:
        nonlocal tries
        if puts:
            tries += 1
            raise StaleSetting(field="version", name=puts[0].name, version=2, expected=1)
        return await put(puts, **listed)

    monkeypatch.setattr(app.store, "settings", stale)
    with pytest.raises(StaleSetting):
        await app.tenant("acme").scope().set(max_running=4)

    assert tries == 10


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("scope", {"max_running": 0}, "max_running: is 0"),
        ("scope", {"max_running": -1}, "max_running: is -1"),
        ("scope", {"max_running": True}, "must be a whole number"),
        ("scope", {"rate": "100"}, "rate: is '100', must be a number and a unit"),
        ("scope", {"rate": 100}, "must be a number and a unit"),
        ("scope", {"rate": "0/s"}, "rate: is 0"),
        ("scope", {"weight": 0}, "weight: is 0, must be 1 to 1000"),
        ("scope", {"weight": 1001}, "weight: is 1001"),
        ("scope", {"slots_count": 1}, "slots_count: must be true or false"),
        ("scope", {"max_runing": 1}, "Did you mean 'max_running'"),
        ("scope", {"groups": {"ordered": True}}, "is a setting of a queue, not a tenant"),
        ("scope", {}, "name at least one of"),
        ("queue", {"max_queued": 5}, "is a setting of a tenant, not a queue"),
        ("group", {"weight": 5}, "is a setting of a tenant, not a group"),
    ],
)
async def test_a_wrong_setting_is_named_and_changes_nothing(
    app: App, kind: str, changes: dict[str, Any], words: str
) -> None:
    """Zero, no unit, out of range, of another kind of scope."""
    acme = app.tenant("acme")
    scope = acme.scope() if kind == "scope" else getattr(acme, kind)("x")

    with pytest.raises(InvalidInput, match=words):
        await scope.set(**changes)

    assert await configured(app.store) == {}


def test_a_scope_that_cannot_be_named_is_refused_where_it_is_named() -> None:
    """Before anything is asked of the store."""
    acme = App("memory://").tenant("acme")

    with pytest.raises(InvalidInput, match="group: has 257 characters"):
        acme.group("g" * 257)
    with pytest.raises(InvalidInput, match="queue: must not be empty"):
        acme.queue("")
    with pytest.raises(InvalidInput, match="not both"):
        handle(App("memory://").store, "acme", queue="q", group="g")


async def test_a_store_without_scopes_says_so() -> None:
    """A limit that is not kept would be a lie."""
    store = MemoryStore()
    store.capabilities = msgspec.structs.replace(store.capabilities, scopes=False)

    async with App(store) as app:
        with pytest.raises(StoreUnsupported, match="does not support limits"):
            await app.tenant("acme").scope().set(max_running=1)
        with pytest.raises(StoreUnsupported):
            await app.tenant("acme").groups()


# -- effect ----------------------------------------------------------------------------------------


async def test_a_limit_holds_from_the_moment_it_is_set(app: App) -> None:
    """And no longer than it is set."""
    acme = app.tenant("acme")
    await acme.enqueue_many(add(app, a) for a in range(5))
    await acme.queue("sums").set(max_running=2)

    assert len(await claimed(app)) == 2
    await acme.queue("sums").set(max_running=None)
    assert len(await claimed(app)) == 3


async def test_a_full_tenant_is_told_when_to_try_again(app: App) -> None:
    """Nothing of the refused job is written."""
    acme = app.tenant("acme")
    await acme.scope().set(max_queued=1)
    await acme.enqueue(add(app))

    with pytest.raises(QueueFull, match="at most 1") as full:
        await acme.enqueue(add(app))

    assert full.value.facts["retry_after_s"]
    assert (await acme.scope().counts()).counts == {State.ENQUEUED: 1}


async def test_a_pause_stops_claims_and_says_why(app: App) -> None:
    """Reason and author are kept until it is resumed; other tenants go on."""
    acme, globex = app.tenant("acme"), app.tenant("globex")
    mine, other = await acme.enqueue(add(app)), await globex.enqueue(add(app))

    paused = await acme.scope().pause("invoice 17 is overdue", "ada")
    first = await claimed(app)
    await acme.scope().resume("ada")
    second = await claimed(app)

    assert paused.settings.paused == Pause("invoice 17 is overdue", "ada", platform=True)
    assert (first, second) == ([other.id], [mine.id])
    assert (await acme.scope().resume("ada")).settings == NO_SETTINGS


async def test_what_does_not_exist_cannot_be_paused(app: App) -> None:
    """A misspelt pause would pause nothing, in silence."""
    acme = app.tenant("acme")
    with pytest.raises(InvalidInput, match="there is no tenant 'acme'"):
        await acme.scope().pause("why", "ada")
    await acme.enqueue(add(app), group="crawl")

    with pytest.raises(InvalidInput, match=r"no queue 'sum' of tenant 'acme'.*mean 'sums'"):
        await acme.queue("sum").pause("why", "ada")
    with pytest.raises(InvalidInput, match=r"no group 'crawl-7'.*mean 'crawl'"):
        await acme.group("crawl-7").resume("ada")
    with pytest.raises(InvalidInput, match="reason: must not be empty"):
        await acme.queue("sums").pause("", "ada")
    with pytest.raises(InvalidInput, match="author: must not be empty"):
        await acme.queue("sums").resume("")
    assert await configured(app.store) == {}


async def test_changes_are_in_the_event_log(app: App) -> None:
    """Who changed what, and when, can be read later."""
    acme = app.tenant("acme")
    await acme.scope().set(max_running=3)
    await acme.scope().pause("why", "ada")

    page = await app.store.events("acme", 0, 10)

    assert [event.kind for event in page.events] == [EventKind.CONFIGURED] * 2
    assert '"author":"ada"' in (page.events[1].note or "")


async def test_every_scope_with_settings_is_listed(app: App) -> None:
    """Of one tenant, or of all."""
    acme = app.tenant("acme")
    await acme.scope().set(weight=2)
    await acme.queue("a/b").set(max_running=1)
    await acme.group("g").set(ordered=True)
    await app.tenant("acme2").scope().set(weight=3)

    mine, everybody = await configured(app.store, "acme"), await configured(app.store)

    assert set(mine) == {
        Scope("acme"),
        Scope("acme", ScopeKind.QUEUE, "a/b"),
        Scope("acme", ScopeKind.GROUP, "g"),
    }
    assert set(everybody) == {*mine, Scope("acme2")}


# -- groups ----------------------------------------------------------------------------------------


async def test_groups_are_listed_by_name_after_a_cursor(app: App) -> None:
    """With their counts; another tenant's are not."""
    acme = app.tenant("acme")
    for name in ("b", "a", "c", "a"):
        await acme.enqueue(add(app), group=name)
    await app.tenant("globex").enqueue(add(app), group="x")

    first = await acme.groups(limit=2)
    rest = await acme.groups(after=first[-1].queue)

    assert [(one.queue, one.counts[State.ENQUEUED]) for one in first] == [("a", 2), ("b", 1)]
    assert [one.queue for one in rest] == ["c"]


async def test_the_jobs_of_a_group_come_in_pages(app: App) -> None:
    """In the order of their enqueue."""
    acme = app.tenant("acme")
    ids = [(await acme.enqueue(add(app), group="g")).id for _ in range(3)]
    await acme.enqueue(add(app))

    first = await acme.group("g").jobs(limit=2)
    rest = await acme.group("g").jobs(after=first.cursor, limit=2)

    assert [job.id for job in (*first.jobs, *rest.jobs)] == ids
    assert rest.cursor is None


async def test_a_group_is_canceled_in_steps_that_tell_how_far_they_are(app: App) -> None:
    """Only what has not ended, and only of this group."""
    acme, number = app.tenant("acme"), 2 * STEP + 7
    await acme.enqueue_many((add(app, a) for a in range(number)), group="g")
    other = await acme.enqueue(add(app))

    steps = [step async for step in acme.group("g").cancel()]
    again = [step async for step in acme.group("g").cancel()]

    assert [step.done for step in steps] == [STEP, 2 * STEP, number]
    assert {step.total for step in steps} == {number}
    assert [(step.done, step.total) for step in again] == [(0, 0)]
    assert (await acme.group("g").counts()).counts == {State.CANCELED: number}
    assert (await acme.get(other.id)).state is State.ENQUEUED


# -- slots -----------------------------------------------------------------------------------------


async def test_slots_are_pushed_renewed_and_removed(app: App) -> None:
    """A push renews; a removal may be repeated; what has expired is gone."""
    group = app.tenant("acme").group("crawl")
    first = await group.push_slot("page-1", 10)
    await group.push_slot("page-2", 5, note="worker 9")
    renewed = await group.push_slot("page-1", 60)

    both, number = await group.slots(), await group.count_slots()
    app.store.inner._clock.advance(6)  # type: ignore[attr-defined]
    later = await group.slots()
    await group.remove_slot("page-1")
    await group.remove_slot("page-1")

    assert renewed.until > first.until
    assert [(slot.id, slot.note) for slot in both] == [("page-1", ""), ("page-2", "worker 9")]
    assert (number, [slot.id for slot in later]) == (2, ["page-1"])
    assert (await group.slots(), await group.count_slots()) == ([], 0)


async def test_slots_take_places_if_the_scope_says_so(app: App) -> None:
    """What runs elsewhere counts against the same limit."""
    acme = app.tenant("acme")
    await acme.enqueue_many((add(app, a) for a in range(3)), group="crawl")
    crawl = acme.group("crawl")
    await crawl.push_slot("elsewhere", 60)
    await crawl.set(max_running=2, slots_count=True)

    assert len(await claimed(app)) == 1
    await crawl.remove_slot("elsewhere")
    assert len(await claimed(app)) == 1


async def test_a_slot_without_a_name_or_a_length_is_refused(app: App) -> None:
    """Nothing is held then."""
    crawl = app.tenant("acme").group("crawl")

    with pytest.raises(InvalidInput, match="id: must not be empty"):
        await crawl.push_slot("", 5)
    with pytest.raises(InvalidInput, match="seconds: is 0 s"):
        await crawl.push_slot("a", 0)
    assert await crawl.slots() == []
