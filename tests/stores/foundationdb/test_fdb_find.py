"""Pages of selections: by an index where there is one, else in bounded steps with a cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.foundationdb_engine import Engine

from holdfast.core.job import Completed, State
from holdfast.stores.foundationdb import find
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import CRAWL, finding, ids

OTHERS = 50
LOOKS = 10


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Looks at a few jobs with each transaction, and has time for one of them."""
    monkeypatch.setattr(find, "ROWS_MAX", LOOKS)
    monkeypatch.setattr(find, "FIND_S", 0.0)
    clock = ManualClock()
    database = Engine(clock).database()
    bench = Bench(lambda: FoundationStore(Options(prefix="c"), clock, database), clock)
    await bench.open()
    await bench.put(*(f"early{number}" for number in range(OTHERS)))
    await bench.put("a", group=CRAWL, key="k", type="crawl")
    await bench.put("b", group=CRAWL, type="crawl")
    await bench.put(*(f"late{number}" for number in range(OTHERS)))
    yield bench
    await bench.close()


@pytest.mark.parametrize("newest_first", [False, True])
async def test_the_jobs_of_a_group_are_found_without_a_look_at_others(
    bench: Bench, newest_first: bool
) -> None:
    """As many as a tenant may have; those that have ended too."""
    found = []
    while "b" not in found:
        [lease] = await bench.claim(1)
        found.append(lease.job.id)
        await bench.end(lease, Completed())

    page = await bench.store.find(finding(groups=(CRAWL,), newest_first=newest_first))

    assert ids(page.jobs) == (["b", "a"] if newest_first else ["a", "b"])
    assert page.cursor is None
    page = await bench.store.find(finding(groups=(CRAWL,), states=(State.ENQUEUED,)))
    assert (list(page.jobs), page.cursor) == ([], None)


async def test_a_job_is_found_by_its_key_without_a_look_at_others(bench: Bench) -> None:
    """And goes from the index with the job."""
    page = await bench.store.find(finding(key="k"))

    assert (ids(page.jobs), page.cursor) == (["a"], None)


async def test_a_selection_without_an_index_is_looked_for_in_bounded_steps(bench: Bench) -> None:
    """Each call looks at so many jobs; its cursor goes on where it stopped, and misses none."""
    found: list[str] = []
    calls, after = 0, None
    while True:
        page = await bench.store.find(finding(types=("crawl",), after=after))
        found += ids(page.jobs)
        calls += 1
        if page.cursor is None:
            break
        after = page.cursor

    assert found == ["b", "a"]
    assert calls == (2 * OTHERS + 2) // LOOKS + 1
