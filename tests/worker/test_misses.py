"""A job that this worker cannot read, for want of its type or codec, is left for another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Context, Reason, State
from holdfast.core.bounds import MISSES_MAX
from holdfast.core.codec import JsonCodec
from holdfast.core.job import Envelope, NewJob
from holdfast.testing import drain

if TYPE_CHECKING:
    from tests.worker.conftest import Yard


class Rot13(JsonCodec):
    """A codec that only some workers have yet."""

    id = "rot13"


async def put_sealed(yard: Yard, type: str, codec: str, body: bytes) -> None:
    """A job `j` as another program wrote it."""
    found = yard.app.registry.named("work")
    assert found is not None
    sealed = Envelope(type, codec, 1, body)
    await yard.app.store.enqueue(
        [NewJob(tenant="acme", id="j", queue="default", envelope=sealed, rules=found.rules)]
    )


def work_of(yard: Yard) -> Any:
    @yard.app.job(max_attempts=1)
    async def work(ctx: Context, n: int) -> int:
        return n + 1

    return work


async def test_a_worker_without_the_codec_leaves_the_job_for_one_that_has_it(yard: Yard) -> None:
    """A rolling deploy that brings a codec loses nothing: no attempt, no dead letter."""
    work_of(yard)
    await put_sealed(yard, "work", "rot13", b'{"n": 1}')

    await drain(yard.app)
    job = await yard.job("j")
    assert (job.state, job.attempt, job.misses) == (State.SCHEDULED, 0, 1)
    assert job.run_at - yard.clock.now() == 5_000_000

    yard.app.codecs.register(Rot13())
    yard.clock.advance(5)
    await drain(yard.app)
    assert (await yard.job("j")).state is State.COMPLETED


async def test_a_codec_that_no_worker_has_is_a_dead_letter_in_the_end(yard: Yard) -> None:
    """As with types: growing delays, then DECODE, and the error names the codec."""
    work_of(yard)
    await put_sealed(yard, "work", "rot13", b'{"n": 1}')

    delays = []
    for _ in range(MISSES_MAX - 1):
        await drain(yard.app)
        delays.append((await yard.job("j")).run_at - yard.clock.now())
        yard.clock.advance(delays[-1] / 1e6)
    await drain(yard.app)

    assert delays == sorted(delays)
    job = await yard.job("j")
    assert (job.state, job.reason, job.misses) == (State.FAILED, Reason.DECODE, MISSES_MAX - 1)
    assert "codec 'rot13'" in (job.error or "")


async def test_what_a_known_codec_cannot_read_is_a_dead_letter_at_once(yard: Yard) -> None:
    """Another worker would read no more of it."""
    work_of(yard)
    await put_sealed(yard, "work", "json", b"{")

    await drain(yard.app)

    job = await yard.job("j")
    assert (job.state, job.reason, job.attempt) == (State.FAILED, Reason.DECODE, 1)
