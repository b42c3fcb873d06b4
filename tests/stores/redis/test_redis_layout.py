"""What the keys hold: nothing is left behind that would grow for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.servers.redis_node import RedisNode

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Failed
from holdfast.core.rate import Rate
from holdfast.store import Act, Take
from holdfast.stores.redis.options import parse
from holdfast.stores.redis.scripts import VERBS, script
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    changing,
    group_of,
    job,
    queue_of,
    rules,
    tenant_of,
)

Open = Callable[..., Awaitable[RedisStore]]

LASTING = {"heads", "meta", "settings", "ruled", "events"}
"""Keys of a store that once had jobs: numbers that must not start over, and an empty stream."""


async def test_what_has_ended_leaves_nothing_behind(bench: Bench, node: RedisNode) -> None:
    """P13: after lives of all kinds and a prune, no key is left that would grow for ever."""
    await bench.configure(group_of(), max_running=1)
    await bench.configure(queue_of(), rate=Rate(100, SECOND, 100))
    await bench.configure(tenant_of(), weight=3)
    await bench.put("a", "b", group="crawl", ttl_us=900 * SECOND)
    await bench.put("c", key="k", rules=rules(key_us=5 * SECOND))
    await bench.put("d", delay_us=3 * SECOND, tags=("t",))
    await bench.put("late", ttl_us=SECOND)
    await bench.store.hold([Take(tenant_of().slot("s"), "me", SECOND)])
    bench.clock.advance(3)
    for lease in await bench.claim(10):
        await bench.extend(lease, progress="half")
        await bench.end(lease, Failed("boom", retryable=lease.job.id == "c"))
    bench.clock.advance(30)
    for lease in await bench.claim(10):
        await bench.end(lease, Completed(b"done"))
    await bench.upkeep()
    await bench.store.change(changing(Act.REPLAY))
    while leases := await bench.claim(10):
        for lease in leases:
            await bench.end(lease, Completed())
    for scope in (group_of(), queue_of(), tenant_of()):
        await bench.configure(scope)
    bench.clock.advance(24 * 3600)

    for _ in range(2):
        await bench.store.prune(1000, 0)

    store = bench.store
    assert isinstance(store, RedisStore)
    left = {key.decode().partition("}:")[2] for key in _keys(node, store.options.prefix)}
    assert left <= LASTING
    assert node.ask("XLEN", f"{{{store.options.prefix}0}}:events") == 0
    assert await bench.store.count(None) == []


def _keys(node: RedisNode, prefix: str) -> list[bytes]:
    """Those that do not go by themselves."""
    found: list[bytes] = node.ask("KEYS", f"{{{prefix}*")
    return [key for key in found if node.ask("PTTL", key) < 0]


async def test_without_an_event_log_none_is_kept(node: RedisNode, opened: Open) -> None:
    """P14: events=off stores no facts; all else is the same."""
    url = node.fresh()
    store = await opened(f"{url}&events=off")
    await store.enqueue([job("a")])

    assert not store.capabilities.event_log
    assert not [key for key in _keys(node, parse(url).prefix) if b"events" in key]
    assert (await store.events(None, 0, 10)).events == []


@pytest.mark.parametrize("name", sorted(VERBS))
def test_scripts_are_short_and_stand_alone(name: str) -> None:
    """Each is made of its parts; none of them is sent with its comments."""
    one = script(name)

    assert b"\n--" not in one.text
    assert len(one.sha) == 40
