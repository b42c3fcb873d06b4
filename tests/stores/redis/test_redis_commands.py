"""What a call costs in commands, and that the settings of others change nothing but that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.servers.redis_node import RedisNode

from holdfast.core.clock import SECOND
from holdfast.core.job import Completed
from holdfast.core.scope import TENANT_KINDS
from holdfast.store import Claim
from holdfast.stores.redis.options import parse
from holdfast.stores.redis.store import RedisStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, MAIL, finding, job, rules, tenant_of

OF_SETTINGS = {"rules", "ruled", "settings", "setting_names", "tails"}
OF_CONTROL = {"cmdstat_evalsha", "cmdstat_info", "cmdstat_config|resetstat", "cmdstat_config"}
ENQUEUE_MAX = 17
"""Commands of a single enqueue that opens its line."""
CLAIM_MAX = 22
"""Commands of a claim that takes the only job."""

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of a priority": {"priority": 7},
    "gone at once": {"rules": rules(keep_us=0)},
    "on its last attempt": {"rules": rules(max_attempts=1)},
    "tagged": {"tags": ("a", "b")},
    "of a group": {"group": "g"},
    "mortal": {"ttl_us": 900 * SECOND},
    "delayed": {"delay_us": SECOND},
}


async def live(bench: Bench, kind: dict[str, Any], claims: dict[str, Any]) -> list[Any]:
    """What is seen of the jobs of two lines: enqueued singly and twice, claimed, some ended."""
    store = bench.store
    seen: list[Any] = []
    for number in range(8):
        for queue in (MAIL, "audio") if number == 3 else (MAIL,):
            one = job(f"{queue}{number}", queue=queue, **({} if number == 6 else kind))
            seen += await store.enqueue([one]) + await store.enqueue([one])
        bench.clock.advance(1)
        if number % 2:
            leases = await bench.claim(1 if number == 5 else 10, **claims)
            seen += [msgspec.structs.replace(lease.job, seq=0) for lease in leases]
            seen += [await bench.end(lease, Completed()) for lease in leases[:1]]
    jobs = (await store.find(finding(limit=100))).jobs
    seen += [msgspec.structs.replace(each, seq=0) for each in jobs]
    events = (await store.events(ACME, 0, 100)).events
    seen += [msgspec.structs.replace(each, cursor=0) for each in events]
    for by in TENANT_KINDS:
        seen += await store.count(ACME, by=by)
        seen += await store.count(ACME, by=by, recount=True)
    return seen


@pytest.mark.parametrize("claims", [{}, {"queues": (MAIL,)}, {"tenants": (ACME,)}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
async def test_settings_of_another_tenant_change_nothing(
    node: RedisNode, kind: str, claims: dict[str, Any]
) -> None:
    """P19: beside a tenant with a setting, all that is seen and stored is the same."""
    told, kept = [], []
    for with_setting in (False, True):
        url, clock = node.fresh(), ManualClock()
        bench = Bench(lambda: RedisStore.from_url(url, clock), clock)  # noqa: B023
        await bench.open()
        if with_setting:
            await bench.configure(tenant_of(GLOBEX), weight=2)

        told.append(await live(bench, KINDS[kind], claims))
        found = node.ask("KEYS", f"{{{parse(url).prefix}*")
        kept.append({key.decode().partition("}:")[2] for key in found} - OF_SETTINGS)
        await bench.close()

    assert told[0] == told[1]
    assert kept[0] == kept[1]


async def test_a_name_that_was_used_before_goes_on_with_its_history(bench: Bench) -> None:
    """P14: the events of an id that was deleted are those of its new job too."""
    await bench.put("other")
    for _ in range(2):
        await bench.put("a", rules=rules(keep_us=0))
        for lease in await bench.claim(10):
            await bench.end(lease, Completed())

    page = await bench.store.events(ACME, 0, 100, job_id="a")

    kinds = [event.kind.value for event in page.events]
    assert kinds == ["enqueued", "leased", "completed"] * 2


async def test_a_single_job_is_a_few_commands(bench: Bench, node: RedisNode) -> None:
    """Each command costs more than the work it does: their number is what a call costs."""
    await bench.put("first")
    await bench.claim(10)

    node.ask("CONFIG", "RESETSTAT")
    await bench.put("a")
    enqueue = _commands(node)
    node.ask("CONFIG", "RESETSTAT")
    leases = await bench.claim(10)
    claim = _commands(node)

    assert [lease.job.id for lease in leases] == ["a"]
    assert enqueue <= ENQUEUE_MAX
    assert claim <= CLAIM_MAX


async def test_a_batch_lists_and_opens_the_lines_of_a_tenant_at_once(
    bench: Bench, node: RedisNode
) -> None:
    """One command for each line, which adds its jobs, and two for each tenant."""
    queues = [f"q{number}" for number in range(10)]
    tenants = [ACME, GLOBEX]
    for batch in ("a", "b"):
        lines = [(tenant, queue) for tenant in tenants for queue in queues]
        jobs = [job(batch + queue, tenant=tenant, queue=queue) for tenant, queue in lines]
        node.ask("CONFIG", "RESETSTAT")
        await bench.store.enqueue(jobs)

    assert _calls(node)["cmdstat_zadd"] == len(tenants) * (len(queues) + 2)
    for queue in queues:
        assert len(await bench.claim(100, queues=(queue,))) == 2 * len(tenants)


@pytest.mark.parametrize(("log", "hints"), [("on", 3), ("off", 1)])
async def test_a_line_that_is_open_is_not_announced_again(
    node: RedisNode, log: str, hints: int
) -> None:
    """Its sleepers were told when it opened; only who follows the log hears of each job."""
    store = RedisStore.from_url(f"{node.fresh()}&events={log}")
    await store.open()
    await store.enqueue([job("first")])
    await store.claim(_claim("first"))

    node.ask("CONFIG", "RESETSTAT")
    for number in range(3):
        await store.enqueue([job(f"j{number}")])

    assert _calls(node)["cmdstat_publish"] == hints
    assert len(await store.claim(_claim("all"))) == 3
    await store.close()


def _claim(nonce: str) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=10, lease_us=60 * SECOND)


def _commands(node: RedisNode) -> int:
    return sum(calls for name, calls in _calls(node).items() if name not in OF_CONTROL)


def _calls(node: RedisNode) -> dict[str, int]:
    found: dict[str, dict[str, int]] = node.ask("INFO", "commandstats")
    return {name: each["calls"] for name, each in found.items()}
