"""A store behind a mapper: what is mapped, and that what cannot be mapped fails alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.payload.mirror import OWN, Mirror

from holdfast import App, Context, Fail, Flow, State
from holdfast.core.clock import SECOND
from holdfast.core.codec import Codecs
from holdfast.core.errors import (
    BatchRefused,
    DecodeError,
    InvalidInput,
    KeyErased,
    KeyUnavailable,
    StoreUnavailable,
)
from holdfast.core.job import Completed, Failed, Lease, Reason, Released
from holdfast.core.journal import Entry, EntryKind
from holdfast.core.lifecycle import Transition, decide
from holdfast.core.mapped import TEXT_MARK, UNREADABLE
from holdfast.dispatch import Dispatcher, inner_of
from holdfast.payload.through import ThroughStore
from holdfast.payload.values import Kind
from holdfast.store import Act, Change, Claim, Extension, Find, Put, Ref, Selection
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding, job

ERASED = KeyErased(tenant=ACME)
AWAY = KeyUnavailable(store="keys", why="the provider is away")
BROKEN = DecodeError(codec="mirror", type="job", why="it was changed")


class Hall(Bench):
    """A bench behind a mirror, and the plain store in it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.mirror = Mirror()
        self.plain = inner_of(open_store("memory://", clock))
        super().__init__(lambda: Dispatcher(ThroughStore(self.plain, self.mirror)), clock)


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    hall = Hall()
    await hall.open()
    yield hall
    await hall.close()


class Works:
    """An app behind a mirror, with jobs that remember, fail and tell."""

    def __init__(self, mirror: Mirror, clock: ManualClock) -> None:
        self.mirror = mirror
        self.plain = inner_of(open_store("memory://", clock))
        self.app = App(ThroughStore(self.plain, mirror), tenant=ACME)
        self.ran: list[str] = []

        @self.app.job(max_attempts=1)
        async def work(ctx: Context, text: str) -> str:
            self.ran.append(await ctx.step("seen", str, text))
            ctx.log(f"log {text}")
            ctx.progress(1, note=text)
            if text == "bad":
                raise Fail(f"never {text}")
            return text

        @self.app.job
        async def join(ctx: Context, texts: list[str]) -> str:
            return "+".join(texts)

        @self.app.job
        async def listed(ctx: Context) -> list[str]:
            return ["m1", "m2"]

        self.work, self.join, self.listed = work, join, listed

    async def record(self, id: str) -> Any:
        return await self.app.default.get(id)


@pytest.fixture
async def works() -> AsyncIterator[Works]:
    works = Works(Mirror(), ManualClock())
    async with works.app:
        yield works


def _claim() -> Claim:
    return Claim(worker="w", nonce="n", limit=1, lease_us=SECOND)


def _step(lease: Lease, value: bytes) -> Extension:
    entry = Entry(EntryKind.STEP, "seen", value)
    own = lease.job
    return Extension(
        tenant=own.tenant, id=own.id, token=lease.token, lease_us=SECOND, entries=(entry,)
    )


def _given_back(lease: Lease) -> Transition:
    return decide(Released(), lease.job, lease.token, 0.0)


# -- what is mapped --------------------------------------------------------------------------------


async def test_nothing_to_map_makes_no_call(hall: Hall) -> None:
    """Empty claims and pages do not ask the mapper."""
    assert await hall.claim(10) == []
    assert (await hall.store.find(finding())).jobs == []
    await hall.store.events(None, 0, 10)
    assert hall.mirror.calls == []


async def test_a_batch_is_mapped_by_one_call(hall: Hall) -> None:
    """Keys and blobs of a whole page are asked for once."""
    await hall.put(*(f"j{n}" for n in range(50)))
    await hall.claim(50)
    await hall.store.find(finding(limit=50))
    assert hall.mirror.calls == [("out", 50), ("run", 50), ("read", 50)]


async def test_every_kind_of_bytes_is_mapped(works: Works) -> None:
    """Nothing that a handler or a caller gives is stored as it is, and all comes back."""
    app, acme = works.app, works.app.default
    await acme.schedule("nightly").set(works.work("later"), every=60)
    flow = Flow("two")
    node = flow.add(works.work("one"))
    flow.add(works.join(texts=flow.results([node])))
    flow.finally_(works.work("at last"))
    await acme.start(flow)
    bad = await app.enqueue(works.work("bad"), id="bad")
    await acme.signal("bad", "hurry", "signal value")
    await drain(app)

    elsewhere = {Kind.POSITION, Kind.PROGRESS, Kind.OBJECT}  # Of heartbeats, and of sources.
    assert works.mirror.kinds == set(Kind) - elsewhere
    found = await works.record(bad.id)
    assert (found.state, found.error) == (State.FAILED, "never bad")
    journal = await acme.journal(bad.id)
    assert [step.value for step in journal.steps] == ["bad"]
    assert journal.log == ["log bad"]
    assert journal.errors[0].message == "never bad"
    assert journal.signals[0].value == "signal value"
    [state] = await acme.schedules()
    assert state.definition is not None
    assert state.definition.job.body == b'{"text":"later"}'


async def test_events_tell_the_error_in_plain_form(works: Works) -> None:
    """The note of a failure has the reason and the error."""
    await works.app.enqueue(works.work("bad"), id="bad")
    await drain(works.app)
    page = await works.app.store.events(ACME, 0, 100, "bad")
    stored = await works.plain.events(ACME, 0, 100, "bad")
    assert page.events[-1].note == "PERMANENT: never bad"
    assert str(stored.events[-1].note).startswith(f"PERMANENT: {TEXT_MARK}")


async def test_placeholders_and_joins_work(works: Works) -> None:
    """A node gets the results of its parents, whose payloads and results are mapped."""
    flow = Flow("sum")
    nodes = [flow.add(works.work(text)) for text in ("a", "b")]
    flow.add(works.join(texts=flow.results(nodes)))
    mapped = flow.map(works.work, over=flow.add(works.listed()))
    flow.add(works.join(texts=mapped.results()))
    run = await works.app.default.start(flow)
    await drain(works.app)
    assert (await run.status()).state == "completed"
    results = [(await works.record(node.id)).result for node in await run.nodes()]
    assert results == [b'"a"', b'"b"', b'"a+b"', b'["m1","m2"]', None, b'"m1+m2"']


async def test_plain_values_of_before_are_read(hall: Hall) -> None:
    """A mapper gives back what it has not made."""
    await hall.plain.enqueue([job("old", body=b"plain")])
    assert (await hall.one()).job.envelope.body == b"plain"


async def test_a_replay_keeps_what_was_mapped(hall: Hall) -> None:
    """A store copies mapped bytes; the copy is read as the origin was."""
    lease = await hall.held("a", body=b"payload")
    await hall.end(lease, Completed(b"done"))
    await hall.store.change(Change(select=finding().select, act=Act.REPLAY))
    replay = await hall.one()
    assert (replay.job.origin, replay.job.envelope.body) == ("a", b"payload")


# -- what cannot be read ---------------------------------------------------------------------------


async def test_a_job_that_cannot_be_read_fails_alone(works: Works) -> None:
    """The others of the claim run; it becomes a dead letter with the reason DECODE."""
    for id in ("a", "b", "c"):
        await works.app.enqueue(works.work(id), id=id)
    works.mirror.back["b"] = BROKEN
    await drain(works.app)
    works.mirror.back.clear()

    assert works.ran == ["a", "c"]
    found = await works.record("b")
    assert (found.state, found.reason) == (State.FAILED, Reason.DECODE)
    assert "it was changed" in found.error


async def test_a_step_that_cannot_be_read_fails_the_job(works: Works) -> None:
    """Without the step the run would do it again."""
    works.mirror.back[Kind.STEP] = BROKEN
    await works.app.enqueue(works.work("a"), id="a")
    lease = (await works.app.store.claim(_claim()))[0]
    await works.app.store.extend([_step(lease, b'"a"')])
    await works.app.store.ack([_given_back(lease)])
    [done] = await drain(works.app)
    assert isinstance(done.outcome, Failed)
    assert done.outcome.reason is Reason.DECODE
    assert works.ran == []


async def test_a_large_journal_that_cannot_be_read_fails_the_job(works: Works) -> None:
    """Also one that a lease leaves out."""
    await works.app.enqueue(works.work("a"), id="a")
    lease = (await works.app.store.claim(_claim()))[0]
    await works.app.store.extend([_step(lease, b'"%s"' % (b"x" * 20_000))])
    await works.app.store.ack([_given_back(lease)])
    works.mirror.back[Kind.STEP] = BROKEN
    [done] = await drain(works.app)
    assert isinstance(done.outcome, Failed)
    assert done.outcome.reason is Reason.DECODE


async def test_a_job_waits_for_a_key_that_is_away(works: Works) -> None:
    """It costs no attempt, and it runs when the key is there again."""
    clock = ManualClock()
    works = Works(Mirror(), clock)
    async with works.app:
        await works.app.enqueue(works.work("a"), id="a")
        works.mirror.back["a"] = AWAY
        await drain(works.app, max_jobs=1)
        works.mirror.back.clear()
        found = await works.record("a")
        assert (found.state, found.attempt) == (State.SCHEDULED, 0)

        clock.advance(60.0)
        await drain(works.app)
        assert works.ran == ["a"]


async def test_a_page_shows_what_cannot_be_read(hall: Hall) -> None:
    """The record is there; decoding its payload or its result says why it cannot be done."""
    lease = await hall.held("a", body=b"payload")
    await hall.end(lease, Completed(b"done"))
    await hall.put("b")
    hall.mirror.back["a"] = BROKEN
    records = {one.id: one for one in (await hall.store.find(finding())).jobs}
    assert records["b"].envelope.codec == "bytes"
    assert records["a"].envelope.codec == UNREADABLE
    with pytest.raises(DecodeError, match="it was changed"):
        Codecs().unseal(records["a"].envelope, bytes, 1, {})
    with pytest.raises(DecodeError, match="it was changed"):
        Codecs().unseal_result(UNREADABLE, records["a"].result)


async def test_what_could_not_be_read_is_not_stored_again(hall: Hall) -> None:
    """A copy of such a record would lose the payload for good."""
    await hall.put("a")
    hall.mirror.back["a"] = BROKEN
    [found] = (await hall.store.find(finding())).jobs
    copy = msgspec.structs.replace(job("copy"), envelope=found.envelope)
    [answer] = await hall.add(copy)
    assert isinstance(answer.error, InvalidInput)


async def test_a_mapper_that_is_away_costs_no_lease(hall: Hall) -> None:
    """Every job of the claim waits; a claim that raised would have lost them."""
    await hall.put("a", "b")
    hall.mirror.away = StoreUnavailable(store="keys", why="it is down")
    leases = await hall.claim(2)
    assert {lease.job.envelope.codec for lease in leases} == {UNREADABLE}
    extended = await hall.extend(leases[0], progress="half")
    assert isinstance(extended.error, KeyUnavailable)
    assert extended.until > 0
    for lease in leases:
        assert (await hall.end(lease, Released())).error is None
    with pytest.raises(StoreUnavailable):  # Nothing is lost by it, as by any store that is away.
        await hall.add(job("c"))


# -- what cannot be stored -------------------------------------------------------------------------


async def test_an_enqueue_that_cannot_be_mapped_is_refused_alone(hall: Hall) -> None:
    """The others of the batch are created."""
    hall.mirror.out["b"] = ERASED
    answers = await hall.add(job("a"), job("b"), job("c"))
    assert [answer.error for answer in answers] == [None, ERASED, None]
    assert [answer.id for answer in answers] == ["a", "b", "c"]


async def test_of_a_whole_batch_none_is_created(hall: Hall) -> None:
    """All or none."""
    hall.mirror.out["b"] = ERASED
    answers = await hall.store.enqueue([job("a"), job("b")], whole=True)
    assert [type(answer.error) for answer in answers] == [BatchRefused, KeyErased]
    assert (await hall.store.find(finding())).jobs == []


async def test_an_outcome_that_can_never_be_stored_fails_the_job(hall: Hall) -> None:
    """It must not run again and again; the record says why."""
    lease = await hall.held("a")
    hall.mirror.out[Kind.RESULT] = ERASED
    acked = await hall.end(lease, Completed(b"done"))
    [found] = (await hall.store.find(finding())).jobs
    assert acked.state is State.FAILED
    assert found.reason is Reason.PERMANENT
    assert "keys of tenant 'acme' were erased" in str(found.error)


async def test_an_outcome_waits_for_a_key_that_is_away(hall: Hall) -> None:
    """The others of the batch are stored; this one may be sent again under its lease."""
    await hall.put("a", "b")
    leases = {lease.job.id: lease for lease in await hall.claim(2)}
    hall.mirror.out["a"] = AWAY
    answers = [await hall.end(leases[id], Completed(b"done")) for id in ("a", "b")]
    assert [type(answer.error) for answer in answers] == [KeyUnavailable, type(None)]
    hall.mirror.out.clear()
    assert (await hall.end(leases["a"], Completed(b"done"))).state is State.COMPLETED


async def test_a_heartbeat_renews_a_lease_without_its_key(hall: Hall) -> None:
    """Only what it carries is not stored."""
    lease = await hall.held("a")
    hall.mirror.out["a"] = AWAY
    hall.clock.advance(30.0)
    entry = Entry(EntryKind.STEP, "s", b"1")
    answer = await hall.extend(lease, progress="half", entries=(entry,))
    assert (answer.error, answer.until > lease.until) == (AWAY, True)
    assert await hall.journal("a") == {}


async def test_a_signal_that_cannot_be_mapped_is_refused_alone(hall: Hall) -> None:
    """Its answer has the reason."""
    await hall.put("a", "b")
    hall.mirror.out["a"] = ERASED
    assert (await hall.send("a", "s")).error == ERASED
    assert (await hall.send("b", "s")).stored


async def test_a_schedule_that_cannot_be_mapped_is_not_set(works: Works) -> None:
    """Settings are stored all or none."""
    works.mirror.out[Kind.SPEC] = ERASED
    with pytest.raises(KeyErased):
        await works.app.default.schedule("nightly").set(works.work("later"), every=60)
    other = Put("other", b"1", 0)
    assert len(await works.app.store.settings([other])) == 1


async def test_the_plain_store_has_only_mapped_bytes(works: Works) -> None:
    """What a process without the mapper sees says that it is mapped."""
    await works.app.enqueue(works.work("a"), id="a")
    await drain(works.app)
    select = Selection(tenant=ACME, ids=("a",))
    page = await works.plain.find(Find(select=select, journals=True))
    [found] = page.jobs
    assert found.envelope.codec == "blob+json"
    assert found.envelope.body.startswith(OWN)
    assert found.result.startswith(OWN)
    assert all(one.value.startswith(OWN) for one in page.journals[Ref(ACME, "a")].entries)
