"""Find: pages of jobs in sequence order, filtered by any field, stable while jobs are enqueued."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import BATCH_MAX, PAGE_MAX, SELECT_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Completed, Failed, Reason, State
from holdfast.store import Act
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    HOUR,
    MAIL,
    by_id,
    changing,
    finding,
    ids,
    rules,
)


async def found(bench: Bench, tenant: str | None = ACME, **options: Any) -> list[str]:
    """The ids of a page, oldest first."""
    options.setdefault("newest_first", False)
    return ids((await bench.store.find(finding(tenant, **options))).jobs)


async def test_the_newest_job_comes_first(bench: Bench) -> None:
    """P15: a page is in sequence order, newest first unless asked otherwise."""
    await bench.put("b", "a", "c")

    assert ids((await bench.store.find(finding())).jobs) == ["c", "a", "b"]
    assert await found(bench) == ["b", "a", "c"]


async def test_an_empty_selection_finds_all_of_a_tenant(bench: Bench) -> None:
    """P7: the tenant always narrows; None is the operator's view of all."""
    await bench.put("a", queue=MAIL)
    await bench.put("b", queue=AUDIO)
    await bench.put("g", tenant=GLOBEX)

    assert await found(bench) == ["a", "b"]
    assert await found(bench, GLOBEX) == ["g"]
    assert await found(bench, None) == ["a", "b", "g"]
    assert await found(bench, "unknown") == []


async def test_fields_narrow_a_selection(bench: Bench) -> None:
    """P15: each field may name several values, of which one must fit; tags must all be there."""
    await bench.put("a", queue=MAIL, type="send", group="g1", tags=("x", "y"), key="k1")
    await bench.put("b", queue=AUDIO, type="send", group="g2", tags=("x",), key="k2")
    await bench.put("c", queue="third", type="read", tags=("y",))
    await bench.put("d", queue=MAIL, type="read", key="k1")

    assert await found(bench, ids=("d", "a", "nobody")) == ["a", "d"]
    assert await found(bench, queues=(MAIL,)) == ["a", "d"]
    assert await found(bench, queues=(MAIL, AUDIO)) == ["a", "b", "d"]
    assert await found(bench, types=("read",)) == ["c", "d"]
    assert await found(bench, groups=("g1", "g2")) == ["a", "b"]
    assert await found(bench, tags=("x",)) == ["a", "b"]
    assert await found(bench, tags=("x", "y")) == ["a"]
    assert await found(bench, key="k1") == ["a", "d"]
    assert await found(bench, queues=(MAIL,), types=("read",)) == ["d"]
    assert await found(bench, ids=("a", "b"), queues=(AUDIO,)) == ["b"]
    assert await found(bench, tags=("z",)) == []


async def test_tags_are_whole_words(bench: Bench) -> None:
    """P15: a part of a tag, or two tags side by side, is not a tag."""
    await bench.put("a", tags=("blue", "big"))

    assert await found(bench, tags=("blu",)) == []
    assert await found(bench, tags=("blue,big",)) == []
    assert await found(bench, tags=("%",)) == []
    assert await found(bench, tags=("big",)) == ["a"]


async def test_states_narrow_by_what_a_reader_sees(bench: Bench) -> None:
    """P10: a due job counts as enqueued, whether or not anybody has moved it."""
    await bench.put("done", "retry", "held")
    done, retry, _ = await bench.claim(3)
    await bench.end(done, Completed())
    await bench.end(retry, Failed("boom"))
    await bench.put("later", delay_us=10 * SECOND)
    await bench.put("free")

    assert await found(bench, states=(State.COMPLETED,)) == ["done"]
    assert await found(bench, states=(State.RETRYING, State.SCHEDULED)) == ["retry", "later"]
    assert await found(bench, states=(State.PROCESSING,)) == ["held"]
    assert await found(bench, states=(State.ENQUEUED,)) == ["free"]

    bench.clock.advance(10)
    assert await found(bench, states=(State.ENQUEUED,)) == ["retry", "later", "free"]
    assert await found(bench, states=(State.RETRYING, State.SCHEDULED)) == []


async def test_reasons_narrow_the_dead_letters(bench: Bench) -> None:
    """P11: the dead letter view is a find by state and reason."""
    await bench.put("spent", rules=rules(max_attempts=1))
    await bench.put("bad", "fine")
    spent, bad, fine = await bench.claim(3)
    await bench.end(spent, Failed("boom"))
    await bench.end(bad, Failed("no", retryable=False))
    await bench.end(fine, Completed())

    assert await found(bench, reasons=(Reason.PERMANENT,)) == ["bad"]
    assert await found(bench, reasons=(Reason.PERMANENT, Reason.MAX_ATTEMPTS)) == ["spent", "bad"]
    assert await found(bench, states=(State.FAILED,)) == ["spent", "bad"]
    assert await found(bench, reasons=(Reason.DECODE,)) == []


async def test_creation_narrows_from_and_before(bench: Bench) -> None:
    """P8: created_from is included, created_before is not."""
    await bench.put("a")
    at = bench.clock.advance(10)
    await bench.put("b")
    bench.clock.advance(10)
    await bench.put("c")

    assert await found(bench, created_from=at) == ["b", "c"]
    assert await found(bench, created_before=at) == ["a"]
    assert await found(bench, created_from=at, created_before=at + 1) == ["b"]


async def test_a_find_narrows_by_the_time_of_failure(bench: Bench) -> None:
    """P8: failed_from is included, failed_before is not, and only failed jobs have such a time."""
    times = []
    for id in ("a", "b", "c"):
        lease = await bench.held(id)
        bench.clock.advance(10)
        times.append(bench.clock.now())
        await bench.end(lease, Failed("no", retryable=False))
    await bench.end(await bench.held("fine"), Completed())
    await bench.put("waits")

    assert await found(bench, failed_from=times[1]) == ["b", "c"]
    assert await found(bench, failed_before=times[1]) == ["a"]
    assert await found(bench, failed_from=times[1], failed_before=times[2]) == ["b"]
    assert await found(bench, failed_from=0) == ["a", "b", "c"]
    assert await found(bench, failed_before=times[2] + 1) == ["a", "b", "c"]


async def test_a_change_narrows_by_the_time_of_failure(bench: Bench) -> None:
    """P6: a replay of what failed since noon replays nothing else."""
    for id in ("a", "b"):
        await bench.end(await bench.held(id), Failed("no", retryable=False))
        bench.clock.advance(10)
    late = (await bench.get("b")).finished_at

    changed = await bench.store.change(changing(Act.REPLAY, failed_from=late))

    assert list(by_id(changed)) == ["b"]


async def pages(bench: Bench, limit: int, **options: Any) -> list[list[str]]:
    got, after = [], None
    while True:
        page = await bench.store.find(finding(limit=limit, after=after, **options))
        got.append(ids(page.jobs))
        after = page.cursor
        if after is None:
            return got
        assert len(got) < 100


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_hold_every_job_once(bench: Bench, newest_first: bool) -> None:
    """P15: cursors lead through all jobs, without gap or repeat, in either direction."""
    names = [f"j{n:02}" for n in range(10)]
    await bench.put(*names)
    ordered = names[::-1] if newest_first else names

    for limit in (1, 3, 5, 10, 11):
        got = await pages(bench, limit, newest_first=newest_first)
        assert [id for page in got for id in page] == ordered
        assert all(len(page) == limit for page in got[:-1])


async def test_the_last_page_has_no_cursor(bench: Bench) -> None:
    """P15: a full last page does not promise another."""
    await bench.put("a", "b", "c", "d")

    assert (await bench.store.find(finding(limit=4))).cursor is None
    assert (await bench.store.find(finding(limit=5))).cursor is None
    assert (await bench.store.find(finding(limit=3))).cursor is not None


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_are_steady_while_jobs_come_and_go(bench: Bench, newest_first: bool) -> None:
    """P15: what was there before and stays is seen once, whatever is enqueued or ends meanwhile."""
    await bench.put(*(f"j{n}" for n in range(6)))
    first = await bench.store.find(finding(limit=2, newest_first=newest_first))
    await bench.put("new", priority=99)
    await bench.cancel("j0")

    seen, after = ids(first.jobs), first.cursor
    while after is not None:
        page = await bench.store.find(finding(limit=2, after=after, newest_first=newest_first))
        seen += ids(page.jobs)
        after = page.cursor

    old = [f"j{n}" for n in range(6)]
    assert seen == (old[::-1] if newest_first else [*old, "new"])


async def test_filtered_pages_have_no_gaps(bench: Bench) -> None:
    """P15: jobs that do not fit cost no place on a page."""
    for n in range(30):
        await bench.put(f"j{n:02}", queue=MAIL if n % 10 == 0 else AUDIO)

    got = await pages(bench, 2, queues=(MAIL,), newest_first=False)

    assert got == [["j00", "j10"], ["j20"]]


async def test_named_ids_come_in_pages_too(bench: Bench) -> None:
    """P15: a find by ids keeps to order, limit and cursor like any other."""
    await bench.put(*(f"j{n}" for n in range(5)))

    got = await pages(bench, 2, ids=("j4", "j0", "j2"), newest_first=False)

    assert got == [["j0", "j2"], ["j4"]]


async def test_an_id_named_twice_is_found_once(bench: Bench) -> None:
    """P15: a selection is a set."""
    await bench.put("a", "b")

    assert await found(bench, ids=("a", "b", "a")) == ["a", "b"]


async def test_a_page_of_none_is_empty(bench: Bench) -> None:
    """P15: a limit of 0 is legal."""
    await bench.put("a")

    assert (await bench.store.find(finding(limit=0))).jobs == []


async def test_a_full_page_comes_in_one_call(bench: Bench) -> None:
    """P15: the named limits are allowed."""
    names = tuple(f"j{n}" for n in range(BATCH_MAX))
    await bench.put(*names)

    assert len(await found(bench, ids=names, limit=PAGE_MAX)) == BATCH_MAX


@pytest.mark.parametrize("limit", [-1, PAGE_MAX + 1])
async def test_a_page_out_of_bounds_is_refused(bench: Bench, limit: int) -> None:
    """P15: InvalidInput names the field."""
    with pytest.raises(InvalidInput) as caught:
        await bench.store.find(finding(limit=limit))

    assert caught.value.facts["field"] == "limit"


@pytest.mark.parametrize("field", ["ids", "queues", "types", "groups", "tags"])
async def test_a_find_of_too_many_names_is_refused(bench: Bench, field: str) -> None:
    """P15: each field of a selection is bounded, and named when it is too long."""
    most = BATCH_MAX if field == "ids" else SELECT_MAX

    wish: dict[str, Any] = {field: tuple(f"x{n}" for n in range(most + 1))}
    with pytest.raises(InvalidInput) as caught:
        await found(bench, **wish)

    assert caught.value.facts["field"] == field


async def test_a_finished_job_is_found_until_it_is_pruned(bench: Bench) -> None:
    """P6: what is final can be read for as long as it is kept."""
    lease = await bench.held("a", rules=rules(keep_us=HOUR))
    await bench.end(lease, Completed())
    bench.clock.advance(3600)
    assert await found(bench) == ["a"]

    await bench.store.prune(10, 0)

    assert await found(bench) == []


async def test_an_operator_finds_ids_of_any_tenant(bench: Bench) -> None:
    """Over all tenants an id stands for every job that has it."""
    await bench.put("a", "b")
    await bench.put("a", "c", tenant=GLOBEX)

    page = await bench.store.find(finding(tenant=None, ids=("a", "c")))

    assert {(one.tenant, one.id) for one in page.jobs} == {
        (ACME, "a"),
        (GLOBEX, "a"),
        (GLOBEX, "c"),
    }
