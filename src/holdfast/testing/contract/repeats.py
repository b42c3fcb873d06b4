"""Repeats: a claim that is repeated after a lost answer leases no further jobs."""

from __future__ import annotations

from holdfast.core.bounds import CLAIM_REPEAT_S
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, State
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import GLOBEX, ids, rules


async def test_a_repeated_claim_gives_the_leases_of_the_first(bench: Bench) -> None:
    """P15: the same jobs, tokens, attempts and deadlines; no other job is touched."""
    await bench.put("a", "b", "c", rules=rules(max_attempts=1))
    first = await bench.claim(2, nonce="lost")
    bench.clock.advance(1)

    again = await bench.claim(2, nonce="lost")

    assert sorted(ids(again)) == sorted(ids(first)) == ["a", "b"]
    assert {each.token for each in again} == {each.token for each in first}
    assert {each.until for each in again} == {each.until for each in first}
    assert [each.job.attempt for each in again] == [1, 1]
    assert await bench.state("c") is State.ENQUEUED
    for lease in again:
        assert (await bench.end(lease, Completed())).state is State.COMPLETED


async def test_a_repeated_claim_never_takes_other_jobs(bench: Bench) -> None:
    """P15: also when it asks for more, or the first one's jobs have ended."""
    await bench.put("a", "b", "c", "d")
    first = await bench.claim(2, nonce="lost")
    await bench.end(first[0], Completed())

    again = await bench.claim(4, nonce="lost")

    assert ids(again) == [first[1].job.id]
    await bench.end(first[1], Completed())
    assert await bench.claim(4, nonce="lost") == []
    assert await bench.state("c") is State.ENQUEUED


async def test_a_repeated_claim_gives_no_lease_that_was_lost(bench: Bench) -> None:
    """P2, P15: what lapsed, or was canceled, is not handed out again by the same claim."""
    await bench.put("a", "b")
    await bench.claim(2, nonce="lost", lease_us=10 * SECOND)
    await bench.cancel("b")
    bench.clock.advance(11)

    assert await bench.claim(2, nonce="lost") == []
    assert ids(await bench.claim(2)) == ["a"]


async def test_a_repeated_claim_gives_no_lease_of_another_claim(bench: Bench) -> None:
    """P2: a job that lapsed and was claimed by somebody else is theirs."""
    await bench.put("a")
    await bench.claim(1, nonce="lost", lease_us=10 * SECOND)
    bench.clock.advance(11)
    [theirs] = await bench.claim(1, nonce="theirs")

    assert await bench.claim(1, nonce="lost") == []
    assert (await bench.end(theirs, Completed())).state is State.COMPLETED


async def test_a_repeated_claim_over_many_tenants_and_queues_is_whole(bench: Bench) -> None:
    """P15: wherever its jobs stood."""
    await bench.put("a", "b", queue="mail")
    await bench.put("c", queue="audio")
    await bench.put("a", tenant=GLOBEX)
    first = await bench.claim(10, nonce="lost")

    again = await bench.claim(10, nonce="lost")

    names = [
        sorted((one.job.tenant, one.job.id, one.token) for one in each) for each in (first, again)
    ]
    assert names[0] == names[1]
    assert len(again) == 4


async def test_a_repeated_claim_gives_only_what_it_names(bench: Bench) -> None:
    """P7: the nonce of another's claim opens no job of another tenant or queue."""
    await bench.put("a", "b", queue="mail")
    await bench.put("c", queue="audio")
    await bench.put("d", tenant=GLOBEX, queue="mail")
    await bench.claim(10, nonce="lost")

    theirs = await bench.claim(10, nonce="lost", tenants=(GLOBEX,))
    audio = await bench.claim(10, nonce="lost", queues=("audio",))

    assert ids(theirs) == ["d"]
    assert ids(audio) == ["c"]
    assert await bench.claim(10, nonce="lost", tenants=("nobody",)) == []


async def test_a_claim_that_found_nothing_may_be_repeated(bench: Bench) -> None:
    """P15: nothing was leased, so the repeat may lease."""
    assert await bench.claim(1, nonce="lost") == []
    await bench.put("a")

    assert ids(await bench.claim(1, nonce="lost")) == ["a"]


async def test_a_claim_is_known_for_a_minute(bench: Bench) -> None:
    """P15: as long as CLAIM_REPEAT_S says, and not for ever."""
    await bench.put("a", "b")
    await bench.claim(1, nonce="lost", lease_us=10 * SECOND)
    bench.clock.advance(CLAIM_REPEAT_S - 1)
    assert await bench.claim(1, nonce="lost") == []

    bench.clock.advance(2)

    assert len(await bench.claim(1, nonce="lost")) == 1
