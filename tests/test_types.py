"""Job types are published as settings, so that every process knows their rules."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import msgspec
import pytest

from holdfast import App, Context, RetryPolicy
from holdfast.core.bounds import TYPES_MAX
from holdfast.core.errors import StaleSetting, StoreError
from holdfast.core.job import Rules
from holdfast.store import Put, Store
from holdfast.stores import open_store
from holdfast.testing import Faults
from holdfast.types import PREFIX, Types


def an_app(store: Store, queue: str = "mail", priority: int = 0) -> App:
    app = App(store)

    @app.job(queue=queue, max_attempts=5, timeout=30, retry="brisk", priority=priority)
    async def send(ctx: Context, to: str) -> None: ...

    @app.job()
    async def plain(ctx: Context) -> None: ...

    return app


def puts(faults: Faults) -> list[list[str]]:
    """The names of each call that set something."""
    calls = faults.calls.get("settings", [])
    return [[put.name for put in call[0]] for call in calls if call and call[0]]


async def test_an_app_that_opens_publishes_its_types() -> None:
    """In the JSON that the module describes: other languages read it."""
    store = open_store("memory://")
    async with an_app(store, priority=2):
        found = {one.name: json.loads(one.value) for one in await store.settings(under=PREFIX)}

    brisk = {"kind": "list", "jitter": "none", "delays_s": [0.2, 0.4, 0.8]}
    keep = {"keep_us": 86_400_000_000, "keep_failed_us": 604_800_000_000}
    rules = {"max_attempts": 5, "retry": brisk, "timeout_us": 30_000_000, **keep}
    assert found == {
        "type/send": {"queue": "mail", "priority": 2, "rules": rules},
        "type/plain": {"queue": "default", "rules": keep},
    }


async def test_only_what_differs_is_written(tmp_path: Path) -> None:
    """An app that opens a thousand times a day writes once; the last one that opened decides."""
    faults = Faults(open_store(f"sqlite:///{tmp_path / 'jobs.db'}"))
    for queue in ("mail", "mail", "post"):
        async with an_app(faults.store, queue):
            [said] = [
                one.queue
                for one in (await Types(faults.store).known(["send"])).values()
                if one.name == "send"
            ]
            assert said == queue

    assert puts(faults) == [["type/send", "type/plain"], ["type/send"]]


async def test_a_type_that_is_registered_later_is_published_by_the_next_open() -> None:
    """A worker opens the app again."""
    app = an_app(open_store("memory://"))
    async with app:

        @app.job()
        async def late(ctx: Context) -> None: ...

        async with app:
            assert "late" in await Types(app.store).known([])


@pytest.mark.parametrize(
    "error",
    [StoreError(store="s", why="not allowed"), StaleSetting(name="n", version=2, expected=1)],
)
async def test_an_app_opens_where_it_may_not_publish_or_is_too_late(error: Exception) -> None:
    """A token that may only enqueue is enough to enqueue; a lost race is tried again."""
    faults = Faults(open_store("memory://"))
    faults.fail("settings", error=error)

    async with an_app(faults.store) as app:
        known = await Types(app.store).known([])

    assert bool(known) is isinstance(error, StaleSetting)


async def test_the_number_of_types_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A store that has too many goes on with those it has, and still changes them."""
    store = open_store("memory://")
    await store.open()
    value = b'{"queue":"q"}'
    await store.settings([Put(f"{PREFIX}t{n}", value, 0) for n in range(TYPES_MAX - 1)])
    await store.settings([Put(f"{PREFIX}send", value, 0)])

    with caplog.at_level(logging.WARNING, "holdfast.types"):
        async with an_app(store):
            known = await Types(store).known([])

    assert (len(known), known["send"].queue, "plain" in known) == (TYPES_MAX, "mail", False)
    assert "1 job types were not published" in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"queue":""}',
        b'{"queue":"q","priority":1e400}',
        b'{"queue":"q","rules":{"max_attempts":0}}',
        b'{"queue":"q","rules":{"timeout_us":-1}}',
        b'{"queue":"q","rules":{"retry":{"kind":"list"}}}',
        b'{"queue":"q","rules":{"retry":' + b"[" * 5000 + b"}}",
    ],
)
async def test_a_setting_that_is_no_type_fails_only_itself(value: bytes) -> None:
    """Somebody wrote it by hand."""
    store = open_store("memory://")
    async with an_app(store):
        await store.settings([Put(f"{PREFIX}bad", value, 0)])

        assert set(await Types(store).known([])) == {"send", "plain"}


async def test_types_are_remembered_for_a_few_seconds() -> None:
    """A missing one is looked for sooner, but not at each call."""
    faults, now = Faults(open_store("memory://")), 100.0
    types = Types(faults.store, lambda: now)
    await faults.store.open()

    async def reads(names: list[str], after: float) -> int:
        nonlocal now
        now += after
        before = faults.count("settings")
        await types.known(names)
        return faults.count("settings") - before

    assert [await reads([], 0), await reads([], 4), await reads([], 4)] == [1, 0, 1]
    assert [await reads(["new"], 0.1), await reads(["new"], 1), await reads(["new"], 0.1)] == [
        0,
        1,
        0,
    ]


async def test_what_is_published_is_what_jobs_are_stored_with() -> None:
    """Every rule of a type goes the whole way."""
    policy = RetryPolicy(base_s=1, cap_s=9)
    app = App("memory://")

    @app.job(retry=policy, keep=1, keep_failed=2, key_for=3, timeout=4, max_retries=5)
    async def work(ctx: Context) -> None: ...

    async with app:
        found = (await Types(app.store).known([]))["work"].rules

    assert found == Rules(
        max_attempts=6,
        retry=policy,
        timeout_us=4_000_000,
        keep_us=1_000_000,
        keep_failed_us=2_000_000,
        key_us=3_000_000,
    )
    assert msgspec.json.decode(msgspec.json.encode(found), type=Rules) == found
