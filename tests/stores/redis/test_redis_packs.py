"""Packs on Redis: what stands in the keys, and what opens a pack or leaves it alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from tests.servers.redis_node import RedisNode
from tests.stores.parcels import GONE, check_counts, claimed, complete, fresh, ids, name, named

from holdfast.clock import SECOND
from holdfast.errors import InvalidInput
from holdfast.job import Completed, State
from holdfast.lifecycle import decide
from holdfast.scope import Scope, ScopeSettings, encode
from holdfast.store import Put, Ref
from holdfast.stores.redis import layout, packs
from holdfast.stores.redis.store import RedisStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, finding, job, rules

Open = Callable[..., Awaitable[RedisStore]]

OWN = ("packs", "loads", "marks", "spans", "pieces", "pieced", "trails", "ended_packs")
"""Keys that only packs have."""


def number(node: RedisNode, bench: Bench, *names: str) -> list[int]:
    """How many fields or members these keys have."""
    store = bench.store
    assert isinstance(store, RedisStore)
    tag = f"{{{store.options.prefix}0}}"
    found = []
    for each in names:
        key = f"{tag}:{each}"
        kind = node.ask("TYPE", key)
        sizes = {b"hash": "HLEN", b"zset": "ZCARD"}
        found.append(0 if kind == b"none" else int(node.ask(sizes[kind], key)))
    return found


# -- in --------------------------------------------------------------------------------------------


async def test_many_jobs_that_are_alike_are_one_value(bench: Bench, node: RedisNode) -> None:
    """A call of a hundred alike jobs is one pack, no row and no name."""
    await bench.store.enqueue(fresh(*named(0, 100)))

    assert number(node, bench, "packs", "rows", "names", "bodies") == [1, 0, 0, 0]
    await check_counts(bench.store, enqueued=100)


@pytest.mark.parametrize(
    "odd", [{"tags": ("t",)}, {"group": "g"}, {"ttl_us": SECOND}, {"delay_us": SECOND}]
)
async def test_jobs_that_need_more_are_rows(
    bench: Bench, node: RedisNode, odd: dict[str, object]
) -> None:
    """What is asked about one by one stands alone, and so do the few and the chosen."""
    await bench.store.enqueue(fresh(*named(0, 20), **odd))
    await bench.store.enqueue(fresh(*named(20, 27)))
    await bench.store.enqueue([job(id, rules=GONE) for id in named(30, 60)])

    assert number(node, bench, "packs", "rows") == [0, 57]


async def test_ids_that_begin_differently_are_not_packed_together() -> None:
    """An id is looked for among packs whose ids begin as it does."""
    first = "0190f5fe-7c00-7a3d-b3c5-000000000{:03}"
    later = "0190f5fe-8d00-7a3d-b3c5-000000000{:03}"
    jobs = fresh(*(first.format(n) for n in range(20)), *(later.format(n) for n in range(20)))

    found = packs.parcels(jobs, range(40))

    assert found is not None
    assert [len(parcel.ids) for parcel in found] == [20, 20]
    assert all(len({id[: layout.STEM_SIZE] for id in parcel.ids}) == 1 for parcel in found)


async def test_a_call_that_is_repeated_makes_no_job_twice(bench: Bench) -> None:
    """P12: where the answer of an enqueue was lost, ids of a pack are looked for."""
    jobs = fresh(*named(0, 20))
    await bench.store.enqueue(jobs)
    store = bench.store
    assert isinstance(store, RedisStore)
    shards = store._mine()
    shards._plain = [shards._control(0, None, None, again=True)]
    shards._clock, clock = None, shards._clock

    answers = await store.enqueue(jobs)
    shards._clock = clock

    assert not any(answer.created for answer in answers)
    await check_counts(store, enqueued=20)


async def test_settings_make_rows_of_what_comes_and_what_waits(
    bench: Bench, node: RedisNode
) -> None:
    """P13: a tenant that has a limit is asked about for each job."""
    await bench.store.enqueue(fresh(*named(0, 20)))
    await bench.store.settings([Put(Scope(ACME).name, encode(ScopeSettings(max_running=3)), 0)])
    await bench.store.enqueue(fresh(*named(20, 40)))

    leases = await claimed(bench.store, 100)

    assert ids(leases) == named(0, 3)
    assert number(node, bench, "packs", "rows") == [0, 40]
    await check_counts(bench.store, enqueued=37, processing=3)


# -- held ------------------------------------------------------------------------------------------


async def test_a_pack_leaves_nothing_behind(bench: Bench, node: RedisNode) -> None:
    """When its last job is done and the log is pruned, no key has anything of it."""
    await bench.store.enqueue(fresh(*named(0, 100)))
    leases = [*await claimed(bench.store, 60, "a"), *await claimed(bench.store, 60, "b")]
    for start in (0, 90, 25, 60):
        await complete(bench.store, leases[start : start + 40])
    await complete(bench.store, leases)
    assert number(node, bench, "loads", "pieces", "pieced", "rows", "held") == [0] * 5

    bench.clock.advance(3600)
    await bench.store.prune(1000, 0)

    assert number(node, bench, *OWN) == [0] * len(OWN)
    assert await bench.store.count(ACME) == []


async def test_a_run_of_completions_may_span_pieces_and_packs(
    bench: Bench, node: RedisNode
) -> None:
    """One ack of what two claims took of three packs is done without a row."""
    await bench.store.enqueue(fresh(*named(0, 300)))
    leases = [*await claimed(bench.store, 100, "a"), *await claimed(bench.store, 200, "b")]

    answers = await complete(bench.store, leases[50:250])
    assert all(answer.state is State.COMPLETED for answer in answers)

    assert number(node, bench, "rows") == [0]
    await check_counts(bench.store, processing=100)
    assert all(one.error is None for one in await complete(bench.store, leases[:50] + leases[250:]))
    assert await bench.store.count(ACME) == []


async def test_an_ack_of_a_wrong_name_spoils_no_other(bench: Bench) -> None:
    """P4: an id of other letters, beside the right ones in one call, is refused by itself."""
    await bench.store.enqueue(fresh(*named(0, 20)))
    changes = [
        decide(Completed(), one.job, one.token, 0.0) for one in await claimed(bench.store, 20)
    ]
    wrong = "\u00e9" * len(name(0))
    changes[3] = msgspec.structs.replace(changes[3], id=wrong)

    answers = await bench.store.ack(changes)

    assert [answer.id for answer in answers if answer.error is not None] == [wrong]
    await check_counts(bench.store, processing=1)


async def test_jobs_that_are_kept_leave_their_pack_when_claimed(
    bench: Bench, node: RedisNode
) -> None:
    """Their records stay after their end, with their results; the rest of the pack waits."""
    await bench.store.enqueue(fresh(*named(0, 20), rules=rules(keep_us=60 * SECOND)))
    leases = await claimed(bench.store, 5)
    assert number(node, bench, "packs", "rows") == [1, 5]

    done = [decide(Completed(b"r"), one.job, one.token, 0.0) for one in leases]
    assert all(answer.error is None for answer in await bench.store.ack(done))

    page = await bench.store.find(finding(newest_first=False, limit=100))
    assert [one.id for one in page.jobs] == named(0, 20)
    assert [one.result for one in page.jobs[:6]] == [b"r"] * 5 + [None]
    await check_counts(bench.store, completed=5, enqueued=15)


async def test_results_of_a_piece_that_was_opened_are_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run brings with it is not lost where its jobs have rows by then."""
    monkeypatch.setattr(packs, "PIECE_KEEP_US_MAX", 60 * SECOND)
    await bench.store.enqueue(fresh(*named(0, 10), rules=rules(keep_us=60 * SECOND)))
    leases = await claimed(bench.store, 10)
    done = [
        decide(Completed(b"r" if place % 2 else None), one.job, one.token, 0.0)
        for place, one in enumerate(leases)
    ]

    assert all(answer.error is None for answer in await bench.store.ack(done))

    page = await bench.store.find(finding(newest_first=False, limit=100))
    assert [one.result for one in page.jobs] == [None, b"r"] * 5


# -- seen ------------------------------------------------------------------------------------------


async def test_who_only_looks_opens_nothing(bench: Bench, node: RedisNode) -> None:
    """Pages, in both directions and from the midst of a pack, and ids read packs as they are."""
    for start in range(0, 400, 100):
        await bench.store.enqueue(fresh(*named(start, start + 100)))
    await complete(bench.store, (await claimed(bench.store, 30))[10:20])
    living = named(0, 10) + named(20, 400)

    for newest in (False, True):
        seen: list[str] = []
        after = None
        while True:
            page = await bench.store.find(finding(limit=37, newest_first=newest, after=after))
            seen += [one.id for one in page.jobs]
            after = page.cursor
            if after is None:
                break
        assert seen == (living[::-1] if newest else living)
    named_ones = await bench.store.find(finding(ids=(name(5), name(15), name(333))))
    assert {one.id for one in named_ones.jobs} == {name(5), name(333)}
    assert {one.state for one in named_ones.jobs} == {State.PROCESSING, State.ENQUEUED}
    assert number(node, bench, "rows") == [0]


async def test_a_search_for_something_else_passes_packs_over(bench: Bench) -> None:
    """Packs that cannot hold what is looked for do not end the search."""
    await bench.store.enqueue(fresh(*named(0, 200)))
    await bench.put("odd", queue="other", tags=("t",))
    await bench.store.enqueue(fresh(*named(200, 300)))

    for newest in (False, True):
        for asked in (finding(queues=("other",)), finding(tags=("t",))):
            page = await bench.store.find(msgspec.structs.replace(asked, newest_first=newest))
            assert [one.id for one in page.jobs] == ["odd"]


async def test_what_changes_one_job_gives_all_of_its_pack_rows(
    bench: Bench, node: RedisNode
) -> None:
    """A cancel opens the pack of its job, with all pieces of it, and no other."""
    await bench.store.enqueue(fresh(*named(0, 100)))
    await bench.store.enqueue(fresh(*named(100, 200)))
    leases = await claimed(bench.store, 30)
    await complete(bench.store, leases[:10])

    await bench.store.cancel([Ref(ACME, name(50))])

    assert number(node, bench, "rows", "pieces") == [89, 0]
    assert all(one.error is None for one in await complete(bench.store, leases[10:]))
    expected = [id for id in named(30, 200) if id != name(50)]
    assert ids(await claimed(bench.store, 300, "later")) == expected


# -- several shards --------------------------------------------------------------------------------


async def test_a_claim_over_shards_takes_whole_packs(node: RedisNode, opened: Open) -> None:
    """What a shard says it has ready counts the jobs of packs, not the packs."""
    store = await opened(node.fresh() + "&shards=4")
    tenants = [f"t{place}" for place in range(8)]
    for tenant in tenants:
        await store.enqueue(fresh(*named(0, 50), tenant=tenant))

    leases = await claimed(store, 400)

    assert len(leases) == 400
    assert all(one.error is None for one in await complete(store, leases))
    assert await store.count(None) == []


async def test_a_batch_of_several_tenants_keeps_its_order(node: RedisNode, opened: Open) -> None:
    """Packs of one call in several shards are numbered in its order."""
    store = await opened(node.fresh() + "&shards=4")
    jobs = [
        one
        for place in range(6)
        for one in fresh(*named(20 * place, 20 * place + 20), tenant=f"t{place}")
    ]
    await store.enqueue(jobs)

    page = await store.find(finding(tenant=None, limit=200, newest_first=False))

    assert [(one.tenant, one.id) for one in page.jobs] == [(one.tenant, one.id) for one in jobs]


async def test_a_store_of_the_first_format_is_brought_up(node: RedisNode, opened: Open) -> None:
    """Its jobs stay; programs that know no packs refuse it from now on."""
    url = node.fresh()
    store = await opened(url)
    await store.enqueue([job("old", rules=GONE)])
    key = f"{{{store.options.prefix}0}}:meta"
    node.ask("HSET", key, "format", "1")

    later = await opened(f"{url}&migrate=auto")
    await later.enqueue(fresh(*named(0, 20)))

    assert node.ask("HGET", key, "format") == b"%d" % layout.FORMAT
    assert ids(await claimed(later, 100)) == ["old", *named(0, 20)]


async def test_what_cannot_be_stored_fails_the_whole_call(node: RedisNode, opened: Open) -> None:
    """A payload that is no bytes, in any shard's part of a batch, keeps nothing of it."""
    store = await opened(node.fresh() + "&shards=4")
    jobs = [one for place in range(6) for one in fresh(*named(0, 10), tenant=f"t{place}")]
    for place in (0, 35, 59):
        sealed = msgspec.structs.replace(jobs[place].envelope, body="text")
        bad = [*jobs[:place], msgspec.structs.replace(jobs[place], envelope=sealed)]
        with pytest.raises(InvalidInput, match="must be bytes"):
            await store.enqueue(bad + jobs[place + 1 :])

    assert await store.count(None) == []
