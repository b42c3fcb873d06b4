"""Hold: a name held for a time, which is taken, renewed, taken over after expiry, or released."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.store import Hold, Take
from holdfast.testing.contract.bench import Bench

LENGTH = 10 * SECOND


async def take(bench: Bench, owner: str, length: int = LENGTH, note: str = "") -> Hold:
    return (await bench.store.hold([Take("leader", owner, length, note)]))[0]


async def test_a_free_name_is_taken(bench: Bench) -> None:
    """P8: the deadline is the store's now plus the length."""
    got = await take(bench, "w1", note="host 7")

    assert got == Hold("leader", "w1", bench.clock.now() + LENGTH, "host 7")
    assert await bench.store.hold(under="") == [got]


async def test_a_held_name_is_not_taken_by_another(bench: Bench) -> None:
    """P2: one holder at a time; the loser is told who holds it and until when."""
    first = await take(bench, "w1", note="first")
    bench.clock.advance(5)

    assert await take(bench, "w2", note="second") == first
    assert await bench.store.hold(under="") == [first]


async def test_a_holder_renews_its_name(bench: Bench) -> None:
    """P8: a renewal counts from now, and may change the note."""
    await take(bench, "w1", note="starting")
    bench.clock.advance(5)

    renewed = await take(bench, "w1", note="running")

    assert renewed == Hold("leader", "w1", bench.clock.now() + LENGTH, "running")
    bench.clock.advance(9)
    assert (await take(bench, "w2")).owner == "w1"


async def test_a_lapsed_name_is_taken_over_at_its_very_instant(bench: Bench) -> None:
    """P10: a dead holder's name is free when its time is up, without upkeep."""
    first = await take(bench, "w1")
    bench.clock.set(first.until - bench.store.capabilities.time_precision_us)
    assert (await take(bench, "w2")).owner == "w1"

    bench.clock.set(first.until)
    assert (await take(bench, "w2")).owner == "w2"
    assert (await take(bench, "w1")).owner == "w2"


async def test_a_holder_gives_its_name_back(bench: Bench) -> None:
    """P13: a length of 0 frees the name at once."""
    await take(bench, "w1")

    freed = await take(bench, "w1", 0)

    assert (freed.name, freed.owner) == ("leader", "")
    assert await bench.store.hold(under="") == []
    assert (await take(bench, "w2")).owner == "w2"


async def test_nobody_gives_back_what_another_holds(bench: Bench) -> None:
    """P2: only its holder frees a name."""
    first = await take(bench, "w1")

    assert await take(bench, "w2", 0) == first
    assert await bench.store.hold(under="") == [first]


async def test_giving_back_may_be_repeated(bench: Bench) -> None:
    """P15: freeing what is free is no error."""
    assert (await take(bench, "w1", 0)).owner == ""
    await take(bench, "w1")
    assert (await take(bench, "w1", 0)).owner == ""
    assert (await take(bench, "w1", 0)).owner == ""


async def test_each_take_of_a_batch_has_its_own_answer(bench: Bench) -> None:
    """P15: one name that another holds does not spoil the others."""
    await bench.store.hold([Take("b", "w1", LENGTH)])

    holds = await bench.store.hold([Take(name, "w2", LENGTH) for name in ("c", "b", "a")])

    assert [(hold.name, hold.owner) for hold in holds] == [("c", "w2"), ("b", "w1"), ("a", "w2")]


async def test_held_names_are_listed_by_prefix_in_order(bench: Bench) -> None:
    """P15: a prefix is plain text, and lapsed names are not held."""
    names = ["worker/b", "worker/a", "leader", "worker_x", "worker%"]
    await bench.store.hold([Take(name, "w1", LENGTH) for name in names])
    await bench.store.hold([Take("worker/short", "w1", SECOND)])

    async def listed(under: str) -> list[str]:
        return [hold.name for hold in await bench.store.hold(under=under)]

    assert await listed("worker/") == ["worker/a", "worker/b", "worker/short"]
    bench.clock.advance(1)
    assert await listed("worker/") == ["worker/a", "worker/b"]
    assert await listed("worker_") == ["worker_x"]
    assert await listed("") == sorted(names)
    bench.clock.advance(9)
    assert await listed("") == []


async def test_takes_and_a_prefix_give_the_list_after_the_takes(bench: Bench) -> None:
    """P15: announce oneself and see the others in one step."""
    await bench.store.hold([Take("worker/a", "w1", LENGTH)])

    listed = await bench.store.hold([Take("worker/b", "w2", LENGTH)], under="worker/")

    assert [(hold.name, hold.owner) for hold in listed] == [("worker/a", "w1"), ("worker/b", "w2")]


async def test_a_batch_of_takes_over_the_limit_is_refused_whole(bench: Bench) -> None:
    """P15: InvalidInput names the field, and nothing is held."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.hold([Take(f"n{n}", "w1", LENGTH) for n in range(BATCH_MAX + 1)])

    assert caught.value.facts["field"] == "takes"
    assert await bench.store.hold(under="") == []
    assert await bench.store.hold() == []
