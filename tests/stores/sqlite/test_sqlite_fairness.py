"""TurnCredits: what a claim costs does not grow with tenants or queues that wait."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from tests.stores.sqlite.cost import QUEUES, TENANTS, Cost

from holdfast.core.scope import Pause, Scope, ScopeSettings
from holdfast.store import Put
from holdfast.stores.sqlite.enqueue import enqueue_jobs
from holdfast.stores.sqlite.settings import put_settings
from holdfast.testing.contract.builders import ACME, GLOBEX, job

FEW, MANY = 100, 20_000


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (TENANTS, {}),
        (TENANTS, {"queues": ("mail",)}),
        (QUEUES, {}),
        (QUEUES, {"tenants": (ACME,)}),
        (QUEUES, {"queues": tuple(f"q{n}" for n in range(1, 21))}),
    ],
    ids=["tenants", "tenants of a queue", "queues", "queues of a tenant", "some queues"],
)
def test_a_claim_costs_the_same_however_many_lines_wait(
    cost: Callable[[], Cost], lines: str, options: dict[str, tuple[str, ...]]
) -> None:
    """P9, P19: over a hundred lines, and over twenty thousand."""
    steps = []
    for number in (FEW, MANY):
        one = cost()
        one.fill(lines, number)
        one.claim_steps(**options)
        steps.append(one.claim_steps(**options))

    assert steps[1] <= 1.5 * steps[0]


def test_a_tenant_with_settings_and_many_queues_costs_the_same(cost: Callable[[], Cost]) -> None:
    """P19: nothing of it walks over its lines: not its enqueues, nor its claims, nor its limit."""
    steps = []
    for number in (FEW, MANY):
        one = cost()
        one.fill(QUEUES, number)
        one.configure([Scope(ACME)], ScopeSettings(max_running=10, max_queued=MANY * 2))
        counted = [
            one.claim_steps(),
            one.count(lambda transaction: enqueue_jobs(transaction, [job("new", queue="q7")])),
        ]
        steps.append(max(counted))

    assert steps[1] <= 1.5 * steps[0]


def test_closed_tenants_are_walked_over_once(cost: Callable[[], Cost]) -> None:
    """P9: a claim for a queue takes paused tenants out of its ring, and meets them no more."""
    one = cost()
    one.fill(TENANTS, 2000)
    paused = [f"t{n}" for n in range(1, 1901)]
    one.configure([Scope(tenant) for tenant in paused], ScopeSettings(paused=Pause("late", "ann")))
    asked: dict[str, tuple[str, ...]] = {"queues": ("mail",)}
    one.claim_steps(**asked)

    later = one.claim_steps(**asked)

    few = cost()
    few.fill(TENANTS, 100)
    few.claim_steps(**asked)
    assert later <= 1.5 * few.claim_steps(**asked)


def test_tenants_that_resume_come_back_to_their_rings(cost: Callable[[], Cost]) -> None:
    """P9: whoever was taken out of a ring is served again when it opens."""
    one = cost()
    one.fill(TENANTS, 30)
    names_ = [f"t{n}" for n in range(1, 16)]
    one.configure([Scope(tenant) for tenant in names_], ScopeSettings(paused=Pause("late", "ann")))
    with one.transaction() as transaction:
        first = {lease.job.tenant for lease in one.claim(transaction, queues=("mail",))}
    with one.transaction() as transaction:
        puts = [Put(Scope(tenant).name, None, 1) for tenant in names_]
        put_settings(transaction, puts, None, None)

    leased = []
    for _ in range(2):
        with one.transaction() as transaction:
            leased += [lease.job.tenant for lease in one.claim(transaction, queues=("mail",))]

    assert not first & set(names_)
    assert set(names_) <= set(leased)


def counted(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """What the rows of tenants say, and what they should say."""
    return connection.execute(
        "SELECT tenant, line_count, queue_count, group_count, slot_count,"
        " (SELECT count(*) FROM counts AS line WHERE line.kind = 'queue'"
        "  AND line.tenant = counts.tenant AND line.open AND line.enqueued > line.blocked),"
        " (SELECT count(*) FROM counts AS line WHERE line.kind = 'queue'"
        "  AND line.tenant = counts.tenant),"
        " (SELECT count(*) FROM counts AS line WHERE line.kind = 'group'"
        "  AND line.tenant = counts.tenant),"
        " (SELECT sum(slots) FROM counts AS line WHERE line.tenant = counts.tenant),"
        " (SELECT count(*) FROM counts AS line WHERE line.tenant = counts.tenant"
        "  AND line.ready <> (line.kind = 'queue' AND line.open AND line.enqueued > line.blocked))"
        " FROM counts WHERE kind = 'tenant'"
    ).fetchall()


def test_the_numbers_of_a_tenant_are_exact(cost: Callable[[], Cost]) -> None:
    """P19: through enqueues, claims, pauses and a prune of what is idle."""
    one = cost()
    one.fill(QUEUES, 30)
    one.configure([Scope(ACME), Scope(GLOBEX)], ScopeSettings(max_running=15))
    with one.transaction() as transaction:
        enqueue_jobs(
            transaction, [job(f"n{n}", tenant=GLOBEX, group=f"g{n % 3}") for n in range(9)]
        )
    for _ in range(2):
        with one.transaction() as transaction:
            one.claim(transaction)
    with one.transaction() as transaction:
        transaction.execute("DELETE FROM counts WHERE enqueued = 0 AND kind = 'queue'")

    for _, *numbers in (rows := counted(one.connection)):
        assert numbers[:4] == numbers[4:8]
        assert numbers[8] == 0
    assert len(rows) == 2
