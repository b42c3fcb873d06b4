"""Why does my job not run? Every gate is named, with who is in the way and an estimate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, JobNotFound, State
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Lease
from holdfast.core.lifecycle import decide
from holdfast.core.scope import BlockerKind
from holdfast.explain import pace
from holdfast.store import Claim, Take
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.worker_registry import PREFIX, Present, Worker, nobody_for, present_workers


class Place:
    """An app on a clock that stands still, and how its store is claimed from."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.claims = 0
        self.app = App(open_store(url, self.clock))

        @self.app.job(name="add", queue="sums")
        async def add(ctx: Context, a: int) -> int:
            return a

        self.add = add
        self.acme = self.app.tenant("acme")

    async def put(self, **options: Any) -> str:
        return (await self.acme.enqueue(self.add(a=1), **options)).id

    async def claim(self, limit: int = 1) -> list[Lease]:
        self.claims += 1
        claim = Claim(worker="w", nonce=f"n{self.claims}", limit=limit, lease_us=60 * SECOND)
        return await self.app.store.claim(claim)

    async def finish(self, lease: Lease) -> None:
        await self.app.store.ack([decide(Completed(), lease.job, lease.token, 0.0)])

    async def worker(self, **said: Any) -> None:
        """A worker that says it is there."""
        note = Present(
            **{
                "pid": 1,
                "tenants": None,
                "queues": ("sums",),
                "types": ("add",),
                "concurrency": 10,
                "running": 0,
                "held": 0,
                **said,
            }
        )
        text = msgspec.json.encode(note).decode()
        await self.app.store.hold([Take(f"{PREFIX}w", "w", 3600 * SECOND, text)])

    async def gates(self, id: str) -> list[BlockerKind]:
        return [gate.kind for gate in (await self.acme.explain(id)).gates]


@pytest.fixture(params=["memory", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    place = Place(url)
    if not place.app.store.capabilities.scopes:
        pytest.skip("this store keeps no scopes yet")
    async with place.app:
        yield place


async def test_a_job_that_can_be_claimed_has_no_gates(place: Place) -> None:
    """With a worker there that serves its queue and knows its type."""
    await place.worker()
    id = await place.put()

    found = await place.acme.explain(id)

    assert (found.gates, found.free, found.ahead, found.state) == ((), True, 0, State.ENQUEUED)


async def test_a_job_of_nobody_is_not_found(place: Place) -> None:
    """Also when it is another tenant's (P7)."""
    id = await place.put()

    with pytest.raises(JobNotFound):
        await place.app.tenant("globex").explain(id)
    with pytest.raises(JobNotFound):
        await place.acme.explain("nothing")


async def test_a_job_that_runs_or_has_ended_says_so(place: Place) -> None:
    """Nobody looks for a worker then."""
    await place.put(id="j")
    [lease] = await place.claim()
    running = await place.gates("j")
    await place.finish(lease)

    assert (running, await place.gates("j")) == ([BlockerKind.RUNNING], [BlockerKind.ENDED])


async def test_nobody_there_to_run_it_is_a_gate(place: Place) -> None:
    """No worker, none for its line, none that knows its type."""
    id = await place.put()
    told = []
    for said in (None, {"tenants": ("globex",)}, {"queues": ("mail",)}, {"types": ("other",)}):
        if said is not None:
            await place.worker(**said)
        found = await place.acme.explain(id)
        assert [gate.kind for gate in found.gates] == [BlockerKind.NO_WORKER]
        told.append(found.gates[0].words)

    assert told == [
        "no worker is present",
        "no worker serves queue 'sums' of 'acme' (1 worker present)",
        "no worker serves queue 'sums' of 'acme' (1 worker present)",
        "no worker of its queue knows type 'add' (1 worker)",
    ]
    assert (await place.acme.explain(id)).estimate_s is None


async def test_the_gates_of_every_scope_are_named(place: Place) -> None:
    """Schedule, pause, limit with who holds it, rate, order and turn."""
    await place.worker()
    await place.put(id="first", group="g")
    await place.put(id="second", group="g")
    await place.put(id="later", delay=60)
    await place.acme.group("g").set(ordered=True)
    await place.acme.queue("sums").set(rate="1/h")
    await place.claim()
    await place.acme.scope().pause("invoice 17", "ada")

    second, later = await place.acme.explain("second"), await place.acme.explain("later")

    kinds = {gate.kind for gate in second.gates}
    assert kinds == {BlockerKind.PAUSE, BlockerKind.RATE, BlockerKind.ORDER, BlockerKind.LIMIT}
    assert any("invoice 17" in gate.words and "ada" in gate.words for gate in second.gates)
    assert any("first" in gate.holders for gate in second.gates)
    assert BlockerKind.SCHEDULE in {gate.kind for gate in later.gates}
    assert later.not_before is not None
    assert later.not_before >= place.clock.now() + 60 * SECOND


async def test_the_place_in_line_and_the_pace_of_it_make_an_estimate(place: Place) -> None:
    """By what its line started lately; nothing started tells nothing."""
    await place.worker()
    ids = [await place.put() for _ in range(10)]
    before = await place.acme.explain(ids[-1])
    for _ in range(5):
        [lease] = await place.claim()
        place.clock.advance(2)
        await place.finish(lease)

    after = await place.acme.explain(ids[-1])

    assert (before.ahead, before.estimate_s) == (9, None)
    assert after.ahead == 4
    assert after.estimate_s == pytest.approx(10.0)
    assert after.gates[0].kind is BlockerKind.TURN
    assert await pace(place.app.store, "acme", "mail") is None


async def test_a_job_behind_a_limit_is_estimated_as_the_last_of_its_queue(place: Place) -> None:
    """A bound is better than nothing; a pause has none."""
    await place.worker()
    ids = [await place.put() for _ in range(6)]
    for _ in range(3):
        [lease] = await place.claim()
        place.clock.advance(1)
        await place.finish(lease)
    await place.claim()
    await place.acme.queue("sums").set(max_running=1)

    limited = await place.acme.explain(ids[-1])
    await place.acme.queue("sums").pause("why", "ada")
    paused = await place.acme.explain(ids[-1])

    assert limited.ahead is None
    assert limited.estimate_s == pytest.approx(2.0)
    assert paused.estimate_s is None


async def test_a_note_of_another_version_is_left_out(place: Place) -> None:
    """It neither breaks the roster nor counts as a worker."""
    await place.app.store.hold([Take(f"{PREFIX}old", "old", SECOND, "{}")])
    await place.app.store.hold([Take(f"{PREFIX}odd", "odd", SECOND, "nonsense")])

    assert await present_workers(place.app.store) == []


@pytest.mark.parametrize("cut", ["tenants", "queues", "types"])
async def test_a_list_that_was_cut_may_have_left_the_job_out(place: Place, cut: str) -> None:
    """Then nobody claims that there is no worker for it."""
    job = await place.acme.get(await place.put())
    lists: dict[str, Any] = {"tenants": None, "queues": None, "types": (job.type,), cut: ("other",)}
    note = Present(pid=1, concurrency=10, running=0, held=0, **lists)

    assert nobody_for(job, [Worker("w", 0, note)]) is not None
    note = msgspec.structs.replace(note, cut=(cut,))
    assert nobody_for(job, [Worker("w", 0, note)]) is None
