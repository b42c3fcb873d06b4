"""`app.platform()`: limits, rates and pauses over all tenants, by the handles of a program."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, InvalidInput, State
from holdfast.core.clock import SECOND
from holdfast.core.errors import StaleSetting, StoreUnsupported
from holdfast.core.job import By, EventKind
from holdfast.core.rate import Rate
from holdfast.core.scope import NO_SETTINGS, BlockerKind, Pause, Scope, ScopeKind
from holdfast.operate import platform
from holdfast.platform import PlatformHandle
from holdfast.scopes import ScopeHandle, handle, words
from holdfast.store import Claim, Put
from holdfast.stores import open_store
from holdfast.testing import ManualClock


def registered(app: App) -> Any:
    @app.job(queue="mail")
    async def send_email(ctx: Context, to: str = "ada") -> None:
        """Nothing to do."""

    return send_email


@pytest.fixture
async def app() -> AsyncIterator[App]:
    app = App(open_store("memory://", ManualClock()))
    registered(app)
    async with app:
        yield app


Pick = Callable[[PlatformHandle], ScopeHandle]
PICKS: dict[str, Pick] = {
    "the platform": lambda top: top,
    "queue 'mail' of the platform": lambda top: top.queue("mail"),
    "type 'send_email' of the platform": lambda top: top.type("send_email"),
}
each_scope = pytest.mark.parametrize("name", PICKS)


async def fill(app: App, *tenants: str) -> None:
    for tenant in tenants:
        for _ in range(3):
            await app.tenant(tenant).enqueue(registered_type(app))


def registered_type(app: App) -> Any:
    found = app.registry.named("send_email")
    assert found is not None
    return found.kind(to="ada")


async def claimed(app: App) -> int:
    claim = Claim(worker="w", nonce=secrets.token_hex(8), limit=100, lease_us=60 * SECOND)
    return len(await app.store.claim(claim))


@each_scope
async def test_a_limit_of_the_platform_is_set_shown_and_counted(app: App, name: str) -> None:
    """P13: over all tenants, with the handle that a tenant's scope has."""
    scope = PICKS[name](app.platform())
    await fill(app, "acme", "globex")
    assert (await scope.get()).settings == NO_SETTINGS

    done = await scope.set(max_running=2, rate="100/s")

    assert (done.settings.max_running, done.settings.rate) == (2, Rate(100, SECOND, 100))
    assert done == await scope.get()
    assert words(done.scope) == name
    assert await claimed(app) == 2
    assert (await scope.counts()).counts == {State.PROCESSING: 2}
    with pytest.raises(StaleSetting):
        await scope.set(max_running=5, expect=done.version + 1)


@each_scope
async def test_the_platform_is_paused_and_resumed(app: App, name: str) -> None:
    """With a reason and an author; each change is an event of no tenant."""
    scope = PICKS[name](app.platform())
    await fill(app, "acme")

    paused = await scope.pause("the provider is down", "ann")
    assert paused.settings.paused == Pause("the provider is down", "ann", platform=True)
    assert await claimed(app) == 0
    resumed = await scope.resume("bob", "it is back")

    assert resumed.settings == NO_SETTINGS
    assert await claimed(app) == 3
    page = await app.store.events(None, 0, 100)
    told = [one for one in page.events if one.kind is EventKind.CONFIGURED]
    assert {(one.tenant, one.job_id) for one in told} == {("", scope.scope.name)}
    assert len(told) == 2


async def test_a_queue_may_be_limited_before_its_first_job(app: App) -> None:
    """There is no list of queues; a type is known by its app."""
    await app.platform().queue("later").pause("not yet", "ann")
    await app.platform().pause("maintenance", "ann")

    assert (await app.platform().queue("later").get()).version == 1


# -- types -----------------------------------------------------------------------------------------


async def test_a_type_that_nobody_registered_is_refused(app: App) -> None:
    """With the name that was meant; nothing is changed. A resume of a misspelt type is refused too:
    the type that was meant would stay paused.
    """
    wrong = app.platform().type("send_emial")

    for act in (wrong.set(max_running=1), wrong.pause("down", "ann"), wrong.resume("ann")):
        with pytest.raises(InvalidInput, match="Did you mean 'send_email'") as caught:
            await act
        assert caught.value.facts["field"] == "type"
    assert (await wrong.get()).version == 0


async def test_a_type_of_another_process_is_known_by_the_store(app: App) -> None:
    """Apps publish their types, so that an operator needs none of their code."""
    with pytest.raises(InvalidInput):
        await platform(app.store).type("send_emial").set(max_running=1)

    done = await platform(app.store).type("send_email").set(max_running=1)

    assert done.version == 1


async def test_the_limit_of_a_type_that_is_gone_can_be_removed() -> None:
    """It was known when it was set."""
    app = App("memory://")
    registered(app)
    async with app:
        await app.platform().type("send_email").set(max_running=1)
        await app.platform().type("send_email").pause("down", "ann")
        [published] = await app.store.settings(under="type/")
        await app.store.settings([Put(published.name, None, published.version)])

        gone = platform(app.store).type("send_email")
        await gone.set(max_running=None)
        assert (await gone.resume("ann")).settings == NO_SETTINGS


# -- bad input -------------------------------------------------------------------------------------


@each_scope
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max_running": 0}, r"max_running: is 0"),
        ({"rate": "100"}, r"rate: is '100', must be a number and a unit"),
        ({"weight": 2}, r"weight: is not a setting of the platform's scopes"),
        ({"slots_count": True}, r"slots_count: is not a setting"),
        ({"ceiling": {"max_running": 1}}, r"ceiling: is not a setting"),
        ({}, r"name at least one of"),
    ],
    ids=str,
)
async def test_bad_settings_of_the_platform_are_refused(
    app: App, name: str, changes: Any, told: str
) -> None:
    """The field is named, and nothing is changed."""
    scope = PICKS[name](app.platform())

    with pytest.raises(InvalidInput, match=told):
        await scope.set(**changes)
    with pytest.raises(InvalidInput, match="author"):
        await scope.pause("reason", "")
    assert (await scope.get()).version == 0


@each_scope
async def test_the_platform_has_no_slots(app: App, name: str) -> None:
    """They are of tenants."""
    with pytest.raises(InvalidInput, match="has no slots"):
        await PICKS[name](app.platform()).push_slot("s", 60)


@pytest.mark.parametrize(("queue", "group"), [("mail", None), (None, "g"), (None, None)])
def test_a_handle_of_a_tenant_needs_its_name(
    app: App, queue: str | None, group: str | None
) -> None:
    """An empty one would be the platform's queue."""
    with pytest.raises(InvalidInput, match="tenant: must not be empty"):
        handle(app.store, "", queue=queue, group=group)


@pytest.mark.parametrize("name", ["", "x" * 129, " mail"])
def test_names_of_queues_and_types_are_checked(app: App, name: str) -> None:
    """As everywhere."""
    for make in (app.platform().queue, app.platform().type):
        with pytest.raises(InvalidInput):
            make(name)


async def test_a_store_without_limits_of_the_platform_says_so(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the capability, and what reads nothing there works."""
    inner = app.store.inner
    less = msgspec.structs.replace(inner.capabilities, platform=False)
    monkeypatch.setattr(inner, "capabilities", less)

    for act in (
        app.platform().set(max_running=1),
        app.platform().pause("down", "ann"),
        app.platform().counts(),
    ):
        with pytest.raises(StoreUnsupported, match="limits of the platform"):
            await act
    assert (await app.platform().get()).version == 0


# -- explain, sync ---------------------------------------------------------------------------------


async def test_a_program_is_told_the_whole_gate(app: App) -> None:
    """It acts for the platform: with holders by tenant."""
    await app.platform().queue("mail").set(max_running=1)
    await fill(app, "acme", "globex")
    await claimed(app)
    page = await app.tenant("globex").find()

    found = await app.tenant("globex").explain(page.jobs[0].id)

    [gate] = [one for one in found.gates if one.kind is BlockerKind.LIMIT]
    assert gate.scope == Scope("", ScopeKind.QUEUE, "mail")
    assert gate.words == "queue mail of the platform runs 1 job, its limit is 1"
    assert [one.rpartition(": ")[2] for one in gate.holders] == ["1"]


def test_blocking_code_has_the_same_handles(tmp_path: Path) -> None:
    """Without await."""
    app = App("memory://")
    registered(app)
    with app.sync as sync:
        all = sync.platform()
        assert all.set(max_running=5).settings.max_running == 5
        assert all.queue("mail").pause("down", "ann").settings.paused is not None
        assert all.queue("mail").resume("ann").version == 0
        assert all.type("send_email").set(rate="1/s", by=By("ann", "why")).version == 1
        assert dict(all.counts().counts) == {State.PROCESSING: 0}
        with pytest.raises(InvalidInput, match="no app has registered"):
            all.type("send").set(max_running=1)


def test_the_app_lends_one_handle_for_all_tenants() -> None:
    """It is cheap, and it needs no open store."""
    assert isinstance(App("memory://").platform(), PlatformHandle)
    assert asyncio.iscoroutinefunction(App("memory://").platform().get)
