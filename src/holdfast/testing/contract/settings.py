"""Settings: names with a value, changed by compare-and-set, all of a batch or none."""

from __future__ import annotations

import pytest

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.errors import InvalidInput, StaleSetting
from holdfast.store import Put, Setting
from holdfast.testing.contract.bench import Bench


async def test_a_new_setting_starts_at_version_one(bench: Bench) -> None:
    """P15: version 0 says: not there yet."""
    assert await bench.store.settings([Put("a", b"1", 0)]) == [Setting("a", b"1", 1)]
    assert await bench.store.settings(under="a") == [Setting("a", b"1", 1)]


async def test_each_change_counts_the_version(bench: Bench) -> None:
    """P15: who has seen the last version may write the next."""
    await bench.store.settings([Put("a", b"1", 0)])

    assert await bench.store.settings([Put("a", b"2", 1)]) == [Setting("a", b"2", 2)]
    assert await bench.store.settings([Put("a", b"3", 2)]) == [Setting("a", b"3", 3)]


@pytest.mark.parametrize("version", [0, 2, 99])
async def test_a_stale_version_is_refused(bench: Bench, version: int) -> None:
    """P15: the loser of a race is told what it did not know, and changes nothing."""
    await bench.store.settings([Put("a", b"1", 0)])

    with pytest.raises(StaleSetting) as caught:
        await bench.store.settings([Put("a", b"2", version)])

    facts = caught.value.facts
    assert (facts["name"], facts["version"], facts["expected"]) == ("a", 1, version)
    assert await bench.store.settings(under="") == [Setting("a", b"1", 1)]


async def test_a_setting_that_is_not_there_has_version_zero(bench: Bench) -> None:
    """P15: changing what was never there, or was deleted, is stale too."""
    with pytest.raises(StaleSetting) as caught:
        await bench.store.settings([Put("a", b"1", 3)])

    assert caught.value.facts["version"] == 0
    assert await bench.store.settings(under="") == []


async def test_one_stale_put_stops_all(bench: Bench) -> None:
    """P15: a batch of settings is all or nothing, wherever the stale one stands."""
    await bench.store.settings([Put("a", b"1", 0), Put("b", b"1", 0)])
    fresh = [Put("a", b"2", 1), Put("c", b"2", 0)]
    stale = Put("b", b"2", 7)

    for puts in ([stale, *fresh], [fresh[0], stale, fresh[1]], [*fresh, stale]):
        with pytest.raises(StaleSetting):
            await bench.store.settings(puts)

    assert await bench.store.settings(under="") == [Setting("a", b"1", 1), Setting("b", b"1", 1)]


async def test_a_batch_is_answered_in_its_order(bench: Bench) -> None:
    """P15: the answers stand where the puts stood."""
    answers = await bench.store.settings([Put("b", b"1", 0), Put("a", b"2", 0)])

    assert answers == [Setting("b", b"1", 1), Setting("a", b"2", 1)]


async def test_no_value_deletes_a_setting(bench: Bench) -> None:
    """P15: a deleted name is free, and deleting compares the version as well."""
    await bench.store.settings([Put("a", b"1", 0)])
    with pytest.raises(StaleSetting):
        await bench.store.settings([Put("a", None, 5)])

    assert await bench.store.settings([Put("a", None, 1)]) == []

    assert await bench.store.settings(under="") == []
    [again] = await bench.store.settings([Put("a", b"2", 0)])
    assert again.value == b"2"


async def test_a_version_is_never_used_twice(bench: Bench) -> None:
    """P15: who read a setting before it was deleted and made anew is told so."""
    [first] = await bench.store.settings([Put("a", b"1", 0)])
    await bench.store.settings([Put("a", None, first.version)])
    [second] = await bench.store.settings([Put("a", b"2", 0)])

    with pytest.raises(StaleSetting):
        await bench.store.settings([Put("a", b"3", first.version)])

    assert second.version > first.version


@pytest.mark.parametrize(
    ("put", "field"),
    [
        (Put("", b"", 0), "name"),
        (Put("a" * 769, b"", 0), "name"),
        (Put("a", b"x" * 65537, 0), "value"),
    ],
)
async def test_a_setting_too_long_is_refused(bench: Bench, put: Put, field: str) -> None:
    """P15: every name and value has a named limit."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([put])

    assert caught.value.facts["field"] == field
    assert await bench.store.settings(under="") == []


async def test_settings_are_listed_by_prefix_in_order(bench: Bench) -> None:
    """P15: a prefix is plain text, no pattern."""
    names = ["queue/b", "queue/a", "limit/a", "queue", "queue%", "queue_x"]
    await bench.store.settings([Put(name, b"1", 0) for name in names])

    async def listed(under: str) -> list[str]:
        return [each.name for each in await bench.store.settings(under=under)]

    assert await listed("queue/") == ["queue/a", "queue/b"]
    assert await listed("queue%") == ["queue%"]
    assert await listed("queue_") == ["queue_x"]
    assert await listed("limit") == ["limit/a"]
    assert await listed("none") == []
    assert await listed("") == sorted(names)


async def test_puts_and_a_prefix_give_the_list_after_the_puts(bench: Bench) -> None:
    """P15: change and look in one step."""
    await bench.store.settings([Put("a/1", b"1", 0)])

    listed = await bench.store.settings([Put("a/2", b"2", 0), Put("b", b"3", 0)], under="a/")

    assert listed == [Setting("a/1", b"1", 1), Setting("a/2", b"2", 1)]


async def test_any_bytes_are_a_value(bench: Bench) -> None:
    """P15: a value is the caller's; an empty one is not a missing one."""
    value = bytes(range(256))
    await bench.store.settings([Put("a", value, 0), Put("empty", b"", 0)])

    listed = await bench.store.settings(under="")

    assert [(each.name, each.value) for each in listed] == [("a", value), ("empty", b"")]


async def test_a_batch_of_settings_over_the_limit_is_refused_whole(bench: Bench) -> None:
    """P15: InvalidInput names the field, and nothing is set."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.settings([Put(f"n{n}", b"1", 0) for n in range(BATCH_MAX + 1)])

    assert caught.value.facts["field"] == "puts"
    assert await bench.store.settings(under="") == []
    assert await bench.store.settings() == []


async def test_settings_survive_the_store_object(bench: Bench) -> None:
    """P1: a durable store keeps values and versions."""
    bench.needs("durable")
    await bench.store.settings([Put("a", b"1", 0)])
    await bench.store.settings([Put("a", b"2", 1)])

    await bench.reopen()

    assert await bench.store.settings(under="") == [Setting("a", b"2", 2)]
