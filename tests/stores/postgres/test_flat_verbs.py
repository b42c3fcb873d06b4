"""A call reads the jobs and keys that it names, however many others there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.stores.postgres.row_jobs import done, extension, step, take

from holdfast.core.job import Failed, Lease, NewJob, Released
from holdfast.core.journal import Edge
from holdfast.core.lifecycle import decide
from holdfast.store import Ref
from holdfast.stores.postgres.ack import apply_transitions, complete_jobs
from holdfast.stores.postgres.cancel import cancel_jobs
from holdfast.stores.postgres.enqueue import enqueue_jobs
from holdfast.stores.postgres.explain import explain_job
from holdfast.stores.postgres.extend import extend_leases
from holdfast.stores.postgres.find import find_jobs
from holdfast.stores.postgres.joins import release_completed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, HOUR, finding, job, rules
from holdfast.testing.contract.joins import RUN, node

if TYPE_CHECKING:
    from tests.stores.postgres.conftest import Connect

    from holdfast.stores.postgres.step import Step

OTHERS = 10_000
NUMBER = 50
ROWS_EACH = 8
"""Rows that a verb may read for one job."""

# What enqueues of another tenant, with keys, would leave behind.
FILL = (
    "INSERT INTO jobs (seq, tenant, id, queue, type, codec, version, payload, rules, priority,"
    " run_at, state, created_at, updated_at, max_attempts, keep_us, size, key)"
    " SELECT nextval('seqs'), 'other', 'o' || n, 'mail', 'send', 'json', 1, '{}', '{}', 0, 0,"
    f" 'enqueued', 0, 0, 3, 0, 2, 'k' || n FROM generate_series(1, {OTHERS}) n",
    "INSERT INTO keys SELECT tenant, queue, type, key, id FROM jobs WHERE tenant = 'other'",
    "INSERT INTO history (seq, priority, run_at, created_at, updated_at, finished_at, keep_until,"
    " keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state, tenant, id,"
    " queue, type, codec, rules)"
    " SELECT nextval('seqs'), 0, 0, 0, 0, 0, 86400000000, 86400000000, 1, 1, 3, 1, 0, 0, 2,"
    f" 'completed', 'other', 'e' || n, 'mail', 'send', 'json', '{{}}'"
    f" FROM generate_series(1, {OTHERS}) n",
)
READ = (
    "SELECT sum(coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0))::int8"
    " FROM pg_stat_xact_user_tables"
    " WHERE schemaname = current_schema() AND relname ~ '^(jobs|keys|releasing|history.*)$'"
)

Act = Callable[["Step", list[Lease]], Awaitable[Any]]


def new(prefix: str, **options: Any) -> list[NewJob]:
    return [job(f"{prefix}{n}", key=f"{prefix}{n}", **options) for n in range(NUMBER)]


VERBS: dict[str, Act] = {
    "enqueue of new keys": lambda step, _: enqueue_jobs(step, new("new")),
    "enqueue of held keys": lambda step, _: enqueue_jobs(
        step, [job(f"again{n}", key=f"own{n}") for n in range(NUMBER)]
    ),
    "enqueue of known ids": lambda step, _: enqueue_jobs(step, new("own")),
    "enqueue of ended ids": lambda step, _: enqueue_jobs(step, new("ended")),
    "complete": lambda step, leases: complete_jobs(step, done(leases)),
    "fail": lambda step, leases: apply_transitions(
        step, [decide(Failed("boom"), one.job, one.token, 0.0) for one in leases]
    ),
    "fail for good": lambda step, leases: apply_transitions(
        step, [decide(Failed("boom", retryable=False), one.job, one.token, 0.0) for one in leases]
    ),
    "release": lambda step, leases: apply_transitions(
        step, [decide(Released(), one.job, one.token, 0.0) for one in leases]
    ),
    "explain": lambda step, leases: explain_job(step, Ref(ACME, leases[0].job.id)),
    "find by id": lambda step, leases: find_jobs(
        step, finding(tenant=ACME, ids=tuple(one.job.id for one in leases))
    ),
    "extend": lambda step, leases: extend_leases(step, [extension(one) for one in leases]),
    "cancel": lambda step, _: cancel_jobs(step, [Ref(ACME, f"own{n}") for n in range(NUMBER)]),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_reads_what_it_names(
    store: PostgresStore, connect: Connect, verb: str
) -> None:
    """P19: also with plans that were made while there were no others, and no statistics."""
    connection = await connect()
    await store.enqueue(new("ended", rules=rules(keep_us=24 * HOUR)))
    await store.ack(done(await take(store, NUMBER)))
    await store.enqueue(new("own"))
    leases = await take(store, NUMBER)
    read = [await _rows_read(store, connection, VERBS[verb], leases)]
    other = await connect()
    for statement in FILL:
        await other.execute(statement)
    for each in (connection, await connect()):
        read.append(await _rows_read(store, each, VERBS[verb], leases))

    assert len(leases) == NUMBER
    assert max(read) <= ROWS_EACH * NUMBER


async def _rows_read(store: PostgresStore, connection: Any, act: Act, leases: list[Lease]) -> int:
    """Rows that a verb reads, as the server counts them; what it did is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    mine = step(store, connection)
    await mine.begin()
    await act(mine, leases)
    found: int = await connection.fetchval(READ)
    await transaction.rollback()
    return found


def parents(prefix: str) -> list[NewJob]:
    """A flow of parents and children: each parent has a child, and all of them have one more. Some
    edges lead nowhere.
    """
    ends = [Edge(f"{prefix}end", on_failure=RUN), Edge("nowhere")]
    return [
        node(f"{prefix}end", after=NUMBER, ends_with_parents=True),
        *(node(f"{prefix}c{n}", after=1) for n in range(NUMBER)),
        *(job(f"{prefix}p{n}", edges=(Edge(f"{prefix}c{n}"), *ends)) for n in range(NUMBER)),
    ]


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
async def test_an_ack_reads_the_jobs_that_its_edges_lead_to(
    store: PostgresStore, connect: Connect, held: bool
) -> None:
    """P19: also where it notes edges to jobs that somebody holds, and where it follows those."""
    connection, holder = await connect(), await connect()
    await store.enqueue(parents("f"))
    leases = await take(store, NUMBER)
    assert len(leases) == NUMBER
    transaction = holder.transaction()
    await transaction.start()
    if held:
        await holder.fetch("SELECT FROM jobs WHERE id = 'fend' OR id LIKE 'fc%' FOR UPDATE")
    read = [await _rows_read(store, connection, VERBS["complete"], leases)]
    other = await connect()
    for statement in FILL:
        await other.execute(statement)
    for each in (connection, await connect()):
        read.append(await _rows_read(store, each, VERBS["complete"], leases))
    assert max(read) <= 3 * ROWS_EACH * NUMBER  # It has three edges.

    await complete_jobs(step(store, connection), done(leases))
    await transaction.rollback()
    for each in (connection, await connect()):
        read.append(await _rows_read(store, each, _release, leases))

    assert max(read) <= 3 * ROWS_EACH * NUMBER  # It has three edges.


async def _release(step: Step, leases: list[Lease]) -> None:
    await release_completed(step, [ACME], "here")
