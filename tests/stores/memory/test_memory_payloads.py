"""Payloads that the memory store hands over as objects: weighed, and never shared between runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from holdfast import App, Context, QueueFull
from holdfast.core.job import Failed, Lease
from holdfast.core.lifecycle import decide
from holdfast.store import Claim
from holdfast.stores.memory.payloads import copied, fixed, size_of

LEASE_US = 60_000_000


@pytest.fixture
async def app() -> AsyncIterator[App]:
    app = App("memory://", retry="brisk")

    @app.job(name="grow")
    async def grow(ctx: Context, names: list[str], by: dict[str, list[int]]) -> None: ...

    @app.job(name="greet")
    async def greet(ctx: Context, name: str) -> None: ...

    async with app:
        yield app


def made(app: App, type: str, **arguments: Any) -> Any:
    job_type = app.registry.named(type)
    assert job_type is not None
    return job_type.kind(**arguments)


async def claimed(app: App, nonce: str) -> Lease:
    wish = Claim(worker="w", nonce=nonce, limit=1, lease_us=LEASE_US)
    [lease] = await app.store.claim(wish)
    return lease


async def test_what_one_run_changes_the_next_does_not_see(app: App) -> None:
    """P4: a retry has the payload that was enqueued."""
    await app.tenant("acme").enqueue(made(app, "grow", names=["a"], by={"a": [1]}))
    first = await claimed(app, "n1")
    first.job.envelope.body.names.append("spoiled")
    first.job.envelope.body.by["a"].append(2)
    await app.store.ack([decide(Failed("no", after_us=0), first.job, first.token, 0.0)])

    again = (await claimed(app, "n2")).job.envelope.body

    assert (again.names, again.by) == (["a"], {"a": [1]})


async def test_what_the_sender_changes_later_is_not_seen(app: App) -> None:
    """P1: what was enqueued is kept as it was."""
    names = ["a"]
    job = made(app, "grow", names=names, by={})
    made_of = await app.tenant("acme").enqueue(job)
    names.append("b")
    job.names.append("c")

    record = await app.tenant("acme").get(made_of.id)

    assert record.envelope.body.names == ["a"]


async def test_what_a_reader_changes_is_not_kept(app: App) -> None:
    """P7: a look at a job changes nothing."""
    job = await app.tenant("acme").enqueue(made(app, "grow", names=["a"], by={}))
    (await app.tenant("acme").get(job.id)).envelope.body.names.clear()

    assert (await claimed(app, "n1")).job.envelope.body.names == ["a"]


async def test_a_payload_that_cannot_change_is_handed_over_as_it_is(app: App) -> None:
    """The memory store copies nothing that it need not copy."""
    job = made(app, "greet", name="Ada")
    await app.tenant("acme").enqueue(job)

    assert (await claimed(app, "n1")).job.envelope.body is job


async def test_objects_count_as_bytes_of_their_tenant(app: App) -> None:
    """P19: a cap on bytes holds for payloads that are never encoded."""
    acme = app.tenant("acme")
    await acme.scope().set(max_bytes=2000)
    await acme.enqueue(made(app, "greet", name="x" * 1500))

    with pytest.raises(QueueFull):
        await acme.enqueue(made(app, "greet", name="x" * 600))
    await acme.enqueue(made(app, "greet", name="x" * 100))


async def test_what_cannot_be_copied_is_handed_over_as_it_is() -> None:
    """A lock in a payload is that very lock."""
    lock = threading.Lock()

    assert copied([lock])[0] is lock
    assert not fixed([lock])
    assert size_of([lock]) > 0


class Note(msgspec.Struct, frozen=True):
    """A payload with parts that can be changed."""

    text: str
    parts: dict[str, list[int]]


def test_a_copy_shares_nothing_that_can_be_changed() -> None:
    """Also inside of a frozen struct, and where a value contains itself."""
    note = Note("a", {"b": [1]})
    made = copied(note)
    note.parts["b"].append(2)
    ring: list[Any] = [1]
    ring.append(ring)

    again = copied(ring)

    assert made == Note("a", {"b": [1]})
    assert again is not ring
    assert again[1] is again
