"""Jobs by their ids: a page that takes long ends early, and all the same every job is found."""

from __future__ import annotations

import pytest

from holdfast.core.job import State
from holdfast.lookup import find_jobs
from holdfast.store import Find, Selection
from holdfast.stores.foundationdb import find
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, GLOBEX, job

NUMBER = 40
LARGE = b"x" * (200 * 1024)


async def test_jobs_with_large_payloads_are_all_found_by_their_ids(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P17: whoever takes a job of the second page for missing fails a join, or stops a run."""
    monkeypatch.setattr(find, "FIND_S", 0.0)  # There is time for one transaction of a page.
    ids = [f"j{number}" for number in range(NUMBER)]
    for id in ids:
        await bench.store.enqueue([job(id, body=LARGE)])
    await bench.store.enqueue([job("j1", tenant=GLOBEX)])
    select = Selection(tenant=ACME, ids=tuple(ids))
    page = await bench.store.find(Find(select=select, limit=NUMBER))
    assert len(page.jobs) < NUMBER, "the page ended early"

    found = await find_jobs(bench.store, ACME, [*ids, "none"])

    assert sorted(one.id for one in found) == sorted(ids)
    assert {one.tenant for one in found} == {ACME}
    assert await find_jobs(bench.store, ACME, ids, states=(State.CANCELED,)) == []
    assert await find_jobs(bench.store, ACME, []) == []
