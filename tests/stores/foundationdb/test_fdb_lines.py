"""More lines than one claim looks at."""

from __future__ import annotations

from holdfast.stores.foundationdb.lines import LINES_MAX
from holdfast.stores.foundationdb.options import Options
from holdfast.stores.foundationdb.store import FoundationStore
from holdfast.testing import ManualClock
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import job
from holdfast.testing.foundationdb import Engine

TENANTS = 2 * LINES_MAX + 100


async def test_no_claim_is_empty_while_lines_that_it_did_not_see_have_jobs() -> None:
    """A claim that finds nothing in the lines it looked at looks at further ones."""
    clock = ManualClock()
    database = Engine(clock).database()
    bench = Bench(lambda: FoundationStore(Options(prefix="c"), clock, database), clock)
    await bench.open()
    jobs = [job(id, tenant=f"t{number}") for number in range(TENANTS) for id in ("a", "b")]
    for start in range(0, len(jobs), LINES_MAX):
        await bench.store.enqueue(jobs[start : start + LINES_MAX])

    taken = 0
    while taken < len(jobs):
        leases = await bench.claim(100)
        assert leases
        taken += len(leases)

    assert await bench.claim(100) == []
    await bench.close()
