"""An app with keys: what it stores, what it refuses, and what waits for a key."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.encryption.vault import KEYS, REQUIRED, SECRET, Door, Vault

from holdfast import App, Context, Flow, State
from holdfast.core.errors import (
    CodecNotFound,
    ConfigError,
    DecodeError,
    InvalidInput,
    KeyErased,
    KeyUnavailable,
)
from holdfast.core.job import Envelope, Reason
from holdfast.core.mapped import ENCRYPTED
from holdfast.encryption import Keys, stored_ring
from holdfast.encryption.stored import name_of
from holdfast.store import Find, Put, Selection
from holdfast.testing import ManualClock, drain
from holdfast.testing.contract.builders import job
from holdfast.worker import Worker


async def stored(vault: Vault, id: str) -> Any:
    """The record as it is in the store."""
    page = await vault.plain.find(Find(select=Selection(tenant=None, ids=(id,))))
    return page.jobs[0]


# -- with and without ------------------------------------------------------------------------------


async def test_a_job_runs_as_without_keys(vault: Vault) -> None:
    """Its payload and its result are in the store in encrypted form only."""
    app, act = vault.app()
    async with app:
        made = await app.enqueue(act(SECRET))
        await drain(app)
        assert await app.default.wait(made.id, timeout=1) == SECRET
    found = await stored(vault, made.id)
    assert found.envelope.codec == "encrypted+json"
    assert SECRET.encode() not in found.envelope.body + found.result


async def test_jobs_of_before_are_read(vault: Vault) -> None:
    """What they write from now on is encrypted."""
    await vault.plain.enqueue([_json("old")])
    app, _ = vault.app()
    async with app:
        await drain(app)
        assert (await app.default.get("old")).result == b'"plain"'
    found = await stored(vault, "old")
    assert found.envelope.codec == "json"
    assert b"plain" not in found.result


async def test_plain_jobs_can_be_refused(vault: Vault) -> None:
    """With `require` whoever can write to the store cannot slip a payload in."""
    app, _ = vault.app(REQUIRED)
    async with app:
        await vault.plain.enqueue([_json("slipped")])
        await drain(app)
        found = await app.default.get("slipped")
    assert (found.state, found.reason) == (State.FAILED, Reason.DECODE)
    assert "is not encrypted, which is required here" in str(found.error)


async def test_a_plain_payload_cannot_say_that_it_is_encrypted(vault: Vault) -> None:
    """Also without `require`."""
    app, _ = vault.app()
    async with app:
        await vault.plain.enqueue([_json("odd", codec="encrypted+json")])
        await drain(app)
        found = await app.default.get("odd")
    assert (found.state, found.reason) == (State.FAILED, Reason.DECODE)
    assert "is plain, and its codec says that it is encrypted" in str(found.error)


async def test_a_worker_without_keys_leaves_jobs_to_others(vault: Vault) -> None:
    """It releases them as it does for any codec that it does not know."""
    app, act = vault.app()
    plain, _ = vault.app(keys=None)
    async with app, plain:
        made = await app.enqueue(act("text"))
        [released] = await drain(plain)
        assert released.outcome == msgspec.structs.replace(
            released.outcome, miss=True, reason=Reason.DECODE
        )
        found = await app.default.get(made.id)
        assert (found.state, found.attempt) == (State.SCHEDULED, 0)


def _json(id: str, codec: str = "json") -> Any:
    new = job(id, type="act")
    return msgspec.structs.replace(new, envelope=Envelope("act", codec, 1, b'{"text":"plain"}'))


# -- attacks on the store --------------------------------------------------------------------------


async def test_payloads_cannot_be_swapped(vault: Vault) -> None:
    """Between jobs of a tenant, and between tenants; each such job fails alone."""
    app, act = vault.app()
    async with app:
        await app.enqueue(act("mine"), id="mine")
        await app.tenant("globex").enqueue(act("theirs"), id="theirs")
        mine, theirs = await stored(vault, "mine"), await stored(vault, "theirs")
        forged = [
            msgspec.structs.replace(job("moved", type="act"), envelope=mine.envelope),
            msgspec.structs.replace(job("stolen", type="act"), envelope=theirs.envelope),
        ]
        await vault.plain.enqueue(forged)
        await drain(app)
        records = {id: await app.default.get(id) for id in ("mine", "moved", "stolen")}

    assert records["mine"].state is State.COMPLETED
    assert "was encrypted for another job, 'mine'" in str(records["moved"].error)
    assert "has no key" in str(records["stolen"].error)
    assert records["stolen"].reason is Reason.DECODE


async def test_a_wrapped_key_cannot_be_moved_to_another_tenant(vault: Vault) -> None:
    """Its values wait, because the keys of the tenant may come back; nothing is shown."""
    app, act = vault.app()
    async with app:
        await app.tenant("globex").enqueue(act("theirs"), id="theirs")
        [theirs] = await vault.plain.settings(under=name_of("globex"))
        await vault.plain.settings([Put(name_of("acme"), theirs.value, 0)])
        with pytest.raises(KeyUnavailable, match="is not the one that wrapped"):
            await app.enqueue(act("mine"))


# -- keys that are away or gone --------------------------------------------------------------------


async def test_jobs_wait_for_a_provider_that_is_away() -> None:
    """Without losing an attempt; new ones are refused with the reason."""
    door, clock = Door(), ManualClock()
    vault = Vault(clock)
    app, act = vault.app(door)
    async with app:
        await app.enqueue(act("text"), id="a")
        door.open = False
        fresh, other = vault.app(door)
        async with fresh:
            with pytest.raises(KeyUnavailable, match="the door is closed"):
                await fresh.enqueue(other("more"))
            await drain(fresh, max_jobs=1)
            found = await stored(vault, "a")
            assert (found.state, found.attempt) == (State.SCHEDULED, 0)
        door.open = True
        clock.advance(60.0)
        await drain(app)
        assert (await app.default.get("a")).state is State.COMPLETED
    await vault.close()


async def test_a_wrong_master_key_makes_jobs_wait(vault: Vault) -> None:
    """A process that was started with another key does no harm."""
    app, act = vault.app()
    wrong, _ = vault.app({"m1": b"x" * 32})
    async with app, wrong:
        await app.enqueue(act("text"), id="a")
        await drain(wrong, max_jobs=1)
        found = await stored(vault, "a")
        assert (found.state, found.attempt, found.error) == (State.SCHEDULED, 0, None)


async def test_an_erased_tenant_is_left_in_order(vault: Vault) -> None:
    """Its records can be listed, its flows canceled, its schedules paused and its jobs deleted."""
    app, act = vault.app()
    async with app:
        acme = app.default
        flow = Flow("f")
        flow.undo(flow.add(act("one")), act("undo"))
        run = await acme.start(flow)
        await acme.schedule("nightly").set(act("later"), every=60)
        await app.enqueue(act("text"), id="waiting")
        await stored_ring(app.store).erase("acme")

        page = await acme.find()
        assert {one.envelope.codec for one in page.jobs} >= {"unreadable"}
        assert (await run.status()).name == "f"
        assert await run.cancel()
        await acme.schedule("nightly").pause(reason="gone")
        [state] = await acme.schedules()
        assert state.paused is not None
        with pytest.raises(KeyErased):
            await acme.schedule("nightly").set(act("again"), every=60)
        with pytest.raises(KeyErased):
            await acme.signal("waiting", "word", 1)
        await drain(app)
        assert (await acme.get("waiting")).reason is Reason.DECODE


async def test_a_schedule_of_an_erased_tenant_pauses_itself() -> None:
    """It says why."""
    clock = ManualClock()
    vault = Vault(clock)
    app, act = vault.app()
    async with app:
        await app.default.schedule("nightly").set(act("later"), every=60)
        await stored_ring(app.store).erase("acme")
        clock.advance(61.0)
        await drain(app)
        [state] = await app.default.schedules()
        assert state.definition is not None
        assert state.definition.broken
        assert "keys of tenant 'acme' were erased" in state.definition.paused.reason  # type: ignore[union-attr]
    await vault.close()


async def test_a_schedule_waits_for_a_key_that_is_away() -> None:
    """It does not pause itself: its tick is tried again."""
    clock, door = ManualClock(), Door()
    vault = Vault(clock)
    app, act = vault.app(door)
    async with app:
        await app.default.schedule("nightly").set(act("later"), every=60)
        door.open = False
        fresh, _ = vault.app(door)
        clock.advance(61.0)
        async with fresh:
            await drain(fresh, max_jobs=1)
            [state] = await fresh.default.schedules()
            assert state.paused is None
    await vault.close()


async def test_a_worker_without_keys_leaves_schedules_and_flows(vault: Vault) -> None:
    """It would store what it cannot read as the payload of another job."""
    clock = ManualClock()
    vault = Vault(clock)
    app, act = vault.app()
    plain, _ = vault.app(keys=None)
    async with app, plain:
        await app.default.schedule("nightly").set(act("later"), every=60)
        flow = Flow("f")
        flow.finally_(act("last"))
        flow.add(act("fail this"))
        run = await app.default.start(flow)
        await drain(app, max_jobs=1)
        clock.advance(61.0)
        await drain(plain)
        clock.advance(61.0)
        await drain(app)
        assert (await run.status()).state == "failed"
        jobs = (await app.default.find(types=["act"])).jobs
        assert {one.state for one in jobs} <= {State.COMPLETED, State.FAILED}
        assert all(one.reason is not Reason.DECODE for one in jobs)
    await vault.close()


async def test_a_retry_of_a_flow_needs_the_keys(vault: Vault) -> None:
    """A process without them could only copy what belongs to other jobs."""
    app, act = vault.app()
    plain, _ = vault.app(keys=None)
    async with app, plain:
        flow = Flow("f")
        flow.add(act("fail this"))
        run = await app.default.start(flow)
        await drain(app)
        with pytest.raises(CodecNotFound):
            await plain.default.flow(run.id).retry()
        again = await app.default.flow(run.id).retry()
        await drain(app)
        assert (await again.status()).state == "failed"


async def test_a_replay_runs_what_it_copied(vault: Vault) -> None:
    """Also from a step, and a replay of a replay."""
    app, act = vault.app()
    async with app:
        await app.enqueue(act("fail this"), id="a")
        await drain(app)
        first = await app.default.replay("a")
        await drain(app)
        second = await app.default.replay(first)
        await drain(app)
        found = await app.default.get(second)
    assert found.state is State.FAILED
    assert "ValueError: fail this" in str(found.error)


# -- workers ---------------------------------------------------------------------------------------


async def test_an_outcome_is_sent_again_until_its_key_is_there() -> None:
    """A job that has run is not run again because a key was away for a moment."""
    door = Door()
    vault = Vault()
    app, _ = vault.app(door)
    ran: list[str] = []
    started, go = asyncio.Event(), asyncio.Event()

    @app.job
    async def slow(ctx: Context, text: str) -> str:
        ran.append(text)
        started.set()
        await go.wait()
        return text

    async with app:
        await app.enqueue(slow("once"), id="a")
        worker = Worker(app, poll_s=0.02, upkeep=False)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(10):
            await started.wait()
        app.store.inner.ring._known.clear()  # type: ignore[attr-defined]
        door.open = False
        go.set()
        async with asyncio.timeout(10):
            await door.refused.wait()
        door.open = True
        assert await app.default.wait("a", timeout=20) == "once"
        worker.stop()
        await running
    assert ran == ["once"]


# -- settings of an app ----------------------------------------------------------------------------


def test_bad_keys_are_refused_by_the_app() -> None:
    """When it is made, not when the first job is stored."""
    with pytest.raises(ConfigError, match="keys"):
        App("memory://", keys="nonsense")


async def test_keys_can_be_in_a_store_of_their_own(vault: Vault) -> None:
    """So a backup of the jobs does not hold them."""
    other = Vault()
    app, act = vault.app(Keys(KEYS, store=other.plain))
    async with app:
        await app.enqueue(act(SECRET), id="a")
        await drain(app)
        assert (await app.default.get("a")).state is State.COMPLETED
        assert len(await other.plain.settings(under=name_of("acme"))) == 1
    assert await vault.plain.settings(under=name_of("acme")) == []


async def test_keys_of_a_callable_are_not_rotated_here(vault: Vault) -> None:
    """The error says who does."""
    app, _ = vault.app(Door())
    with pytest.raises(ConfigError, match="come from a callable"):
        stored_ring(app.store)
    plain, _ = vault.app(keys=None)
    with pytest.raises(ConfigError, match="are not given"):
        stored_ring(plain.store)


async def test_an_object_cannot_be_encrypted(vault: Vault) -> None:
    """A store in memory takes objects; an app with keys encodes them."""
    app, act = vault.app()
    async with app:
        assert app.store.capabilities.encodes
        new = msgspec.structs.replace(job("a"), envelope=Envelope("act", "object", 1, act("x")))
        [answer] = await app.store.enqueue([new])
    assert isinstance(answer.error, InvalidInput)


async def test_a_long_codec_is_refused(vault: Vault) -> None:
    """Its name would not fit with the prefix."""
    app, _ = vault.app()
    async with app:
        new = msgspec.structs.replace(job("a"), envelope=Envelope("act", "c" * 60, 1, b""))
        [answer] = await app.store.enqueue([new])
    assert isinstance(answer.error, InvalidInput)
    assert len("c" * 60) + len(ENCRYPTED) > 64


async def test_a_result_that_was_changed_says_so(vault: Vault) -> None:
    """Whoever waits for it gets the error, and only for this job."""
    app, act = vault.app()
    async with app:
        await app.enqueue(act("text"), id="a")
        await drain(app)
        row = vault.plain._tables.rows["acme", "a"]  # type: ignore[attr-defined]
        row.result = row.result[:-1] + bytes((row.result[-1] ^ 1,))
        with pytest.raises(DecodeError, match="the result was changed after it was encrypted"):
            await app.default.wait("a", timeout=1)
