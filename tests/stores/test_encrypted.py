"""With keys, nothing that jobs carry is in any store in a form that can be read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores.dumps import Dump, traces

from holdfast import App, Context, Flow, State
from holdfast.core.clock import SECOND
from holdfast.core.job import Reason
from holdfast.core.journal import Entry, EntryKind
from holdfast.dispatch import Dispatcher, inner_of
from holdfast.encryption import Keys, stored_ring
from holdfast.store import Claim, Extension, Store
from holdfast.testing import drain

Made = Callable[[str, Any], Store]
MARKER = "the-marker-4c1f82-of-nobody"
KEYS = {"m1": b"k" * 32}


def app_on(store: Store, keys: Any) -> tuple[App, Any]:
    """An app whose jobs carry the marker in every way there is, and those jobs."""
    app = App(inner_of(store), keys=keys, tenant="acme")

    @app.job(max_attempts=1)
    async def carry(ctx: Context, text: str) -> str:
        await ctx.step("seen", str, text)
        ctx.log(f"line of {text}")
        async for _ in ctx.cursor("at", lambda at: None if at else (["page"], text)):
            pass
        ctx.progress(1, note=text)
        return text

    @app.job(max_attempts=2)
    async def fails(ctx: Context, text: str) -> None:
        raise ValueError(f"cannot do {text}")

    @app.job
    async def waits(ctx: Context) -> str:
        return str(await ctx.wait_for("word", str))

    @app.job
    async def lists(ctx: Context, text: str) -> list[str]:
        return [text, text]

    @app.job
    async def joins(ctx: Context, texts: list[str]) -> int:
        return len(texts)

    return app, {"carry": carry, "fails": fails, "waits": waits, "lists": lists, "joins": joins}


async def use(app: App, jobs: Any) -> None:
    """Lets jobs carry the marker through the store, and leaves them in every state."""
    acme = app.default
    await app.enqueue(jobs["carry"](MARKER), id="carried")
    await app.enqueue(jobs["fails"](MARKER), id="failed")
    await app.enqueue(jobs["waits"](), id="waits")
    await drain(app)
    await acme.signal("waits", "word", MARKER)
    await acme.schedule("nightly").set(jobs["carry"](MARKER), every=3600)
    flow = Flow("all")
    mapped = flow.map(jobs["carry"], over=flow.add(jobs["lists"](MARKER)))
    last = flow.add(jobs["joins"](texts=mapped.results()))
    flow.undo(last, jobs["carry"](MARKER))
    flow.finally_(jobs["carry"](MARKER))
    run = await acme.start(flow)
    await drain(app)
    assert (await run.status()).state == "completed"
    assert (await acme.get("waits")).state is State.COMPLETED
    await app.enqueue(jobs["carry"](MARKER), id="left")
    await app.enqueue(jobs["carry"](MARKER), id="held")
    await hold(app)


async def hold(app: App) -> None:
    """Leases the jobs that are left, which tell the marker in a heartbeat."""
    claim = Claim(worker="w", nonce="n", limit=1, lease_us=3600 * SECOND)
    [lease] = await app.store.claim(claim)
    entries = (
        Entry(EntryKind.STEP, "one", f'"{MARKER}"'.encode()),
        Entry(EntryKind.POSITION, "two", f'"{MARKER}"'.encode()),
        Entry(EntryKind.LOG, "", f'["{MARKER}"]'.encode()),
    )
    extension = Extension(
        tenant="acme",
        id=lease.job.id,
        token=lease.token,
        lease_us=SECOND,
        progress=MARKER,
        entries=entries,
    )
    [answer] = await app.store.extend([extension])
    assert answer.error is None


@pytest.fixture
def dump(request: pytest.FixtureRequest, server: Any, url: Any, tmp_path: Path) -> Dump:
    """What reads everything that a store has kept."""
    return Dump(request.node.callspec.params["server"], server, url, tmp_path)


async def test_no_marker_is_in_the_store_or_in_a_log(
    make: Made, dump: Dump, caplog: pytest.LogCaptureFixture
) -> None:
    """Searched in every file, table, key and object, in several codings; and it comes back."""
    app, jobs = app_on(make("jobs", None), Keys(KEYS, require=True))
    with caplog.at_level(logging.DEBUG):
        async with app:
            await use(app, jobs)
            found = await dump.of(app.store)
            failed = await app.default.get("failed")
            assert f"cannot do {MARKER}" in str(failed.error)
            events = (await app.store.events("acme", 0, 1000, "failed")).events
            assert MARKER in str(events[-1].note)

    assert len(found) > 1000
    assert traces(MARKER, found) == []
    assert MARKER not in caplog.text


async def test_the_search_finds_a_marker_that_is_not_encrypted(make: Made, dump: Dump) -> None:
    """Otherwise it would prove nothing."""
    app, jobs = app_on(make("jobs", None), None)
    async with app:
        await app.enqueue(jobs["carry"](MARKER))
        assert traces(MARKER, await dump.of(app.store))


async def test_an_erased_tenant_fails_alone(make: Made) -> None:
    """Its jobs are dead letters that say why; nothing new is taken; others go on."""
    app, jobs = app_on(make("jobs", None), Keys(KEYS))
    async with app:
        globex = app.tenant("globex")
        await app.enqueue(jobs["carry"]("secret"), id="old")
        await globex.enqueue(jobs["carry"]("secret"), id="theirs")
        await stored_ring(app.store).erase("acme")
        with pytest.raises(Exception, match="keys of tenant 'acme' were erased"):
            await app.enqueue(jobs["carry"]("secret"), id="new")
        await drain(app)
        old, theirs = await app.default.get("old"), await globex.get("theirs")

    assert (old.state, old.reason) == (State.FAILED, Reason.DECODE)
    assert "keys of tenant 'acme' were erased" in str(old.error)
    assert (theirs.state, theirs.result) == (State.COMPLETED, b'"secret"')


async def test_processes_that_begin_at_once_share_the_key_of_a_tenant(make: Made) -> None:
    """Whatever each has stored, the others read."""
    stores = [make("jobs", None) for _ in range(4)]
    if not stores[0].capabilities.shared:
        pytest.skip(f"{type(inner_of(stores[0])).__name__} declares shared=False")
    apps = [app_on(store, Keys(KEYS)) for store in stores]
    for app, _ in apps:
        await app.open()
    try:
        await asyncio.gather(
            *(
                app.enqueue(jobs["carry"](f"text {n}"), id=f"j{n}")
                for n, (app, jobs) in enumerate(apps)
            )
        )
        await drain(apps[0][0])
        for n, (app, _) in enumerate(apps):
            for other in range(4):
                assert (await app.default.get(f"j{other}")).result == f'"text {other}"'.encode(), n
        [state] = [state async for state in stored_ring(apps[0][0].store).states()]
        assert len(state.keys) == 1
    finally:
        for app, _ in apps:
            await app.close()


async def test_keys_can_be_rotated_while_jobs_run(make: Made) -> None:
    """Tenants' keys and master keys: nothing is lost, and every job reads what it carries."""
    store = make("jobs", None)
    app, jobs = app_on(store, Keys({"new": b"n" * 32, "old": b"o" * 32}))
    async with app:
        ring = stored_ring(app.store)

        async def produce() -> None:
            for n in range(60):
                await app.enqueue(jobs["carry"](f"text {n}"), id=f"j{n}")

        async def rotate() -> None:
            for _ in range(10):
                await ring.rotate("acme")
                async for _ in ring.rewrap():
                    pass

        await asyncio.gather(produce(), rotate(), drain(app, max_jobs=30))
        await drain(app)
        for n in range(60):
            found = await app.default.get(f"j{n}")
            assert (found.state, found.result) == (State.COMPLETED, f'"text {n}"'.encode())


def test_a_store_without_keys_has_nothing_in_its_path(make: Made) -> None:
    """No wrapper, so no cost."""
    store = make("jobs", None)
    app = App(store)
    assert app.store is store
    assert isinstance(app.store, Dispatcher)
    assert app.store.inner is inner_of(store)
