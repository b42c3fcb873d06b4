"""TurnCredits: what a claim costs does not grow with tenants or queues that wait."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.core.job import Lease
from holdfast.core.scope import Pause, Scope, ScopeSettings, encode
from holdfast.store import Claim, Put
from holdfast.stores.sqlite.claim import claim_jobs
from holdfast.stores.sqlite.connection import open_writer
from holdfast.stores.sqlite.count import recount
from holdfast.stores.sqlite.enqueue import enqueue_jobs
from holdfast.stores.sqlite.fairness import TurnCredits
from holdfast.stores.sqlite.limits import apply_limits
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.scope_cache import ScopeCache
from holdfast.stores.sqlite.settings import put_settings
from holdfast.stores.sqlite.transaction import LastCommit, Transaction
from holdfast.testing.contract.builders import ACME, GLOBEX, LEASE, job

FEW, MANY = 100, 20_000
EACH = 10
"""Instructions of SQLite that are counted as one step."""

# A job in each of many lines: the number is that of its tenant, or of its queue.
FILL = """
WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO jobs (seq, tenant, id, queue, type, codec, version, state, priority, run_at,
    max_attempts, created_at, updated_at, keep_us, rules, size, payload)
SELECT n, {tenant}, 'j' || n, {queue}, 't', 'json', 1, 'enqueued', 0, 0,
    3, 0, 0, 1, '{{}}', 2, x'00' FROM numbers
"""
TENANTS = FILL.format(tenant="'t' || n", queue="'mail'")
QUEUES = FILL.format(tenant=f"'{ACME}'", queue="'q' || n")


class Cost:
    """Transactions on a file of its own, and how many steps one takes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.rules = ScopeCache()
        self.turns = TurnCredits()
        self.steps = 0
        self._claims = 0

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self.connection.execute("BEGIN IMMEDIATE")
        last = LastCommit()
        last.sync(self.connection, "jobs.db")
        transaction = Transaction(self.connection, True, self.rules, last)
        transaction.now = 1
        yield transaction
        apply_limits(transaction)
        transaction.flush()
        self.connection.execute("COMMIT")

    def fill(self, statement: str, number: int) -> None:
        self.connection.execute(statement, (number,))
        with self.transaction() as transaction:
            transaction.seq = number
            recount(transaction)

    def configure(self, tenants: list[str], settings: ScopeSettings) -> None:
        with self.transaction() as transaction:
            puts = [Put(Scope(tenant).name, encode(settings), 0) for tenant in tenants]
            put_settings(transaction, puts, None, None)

    def count(self, act: Callable[[Transaction], object]) -> int:
        """The steps that an act takes, its commit included."""
        self.steps = 0

        def step() -> int:
            self.steps += 1
            return 0

        self.connection.set_progress_handler(step, EACH)
        with self.transaction() as transaction:
            act(transaction)
        self.connection.set_progress_handler(None, 0)
        return self.steps

    def claim_steps(self, **options: tuple[str, ...]) -> int:
        """The steps of a claim of ten jobs."""
        return self.count(lambda transaction: self.claim(transaction, **options))

    def claim(self, transaction: Transaction, **options: tuple[str, ...]) -> list[Lease]:
        self._claims += 1
        asked = Claim(worker="w", nonce=f"n{self._claims}", limit=10, lease_us=LEASE, **options)
        leases = claim_jobs(transaction, asked, self.turns)
        assert len(leases) == 10
        return leases


@pytest.fixture
def cost(tmp_path: Path) -> Iterator[Callable[[], Cost]]:
    opened: list[Cost] = []

    def make() -> Cost:
        path = tmp_path / f"{len(opened)}.db"
        opened.append(Cost(open_writer(Options(path=str(path), synchronous="normal"))))
        return opened[-1]

    yield make
    for each in opened:
        with closing(each.connection):
            pass


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
        one.configure([ACME], ScopeSettings(max_running=10, max_queued=MANY * 2))
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
    one.configure(paused, ScopeSettings(paused=Pause("late", "ann")))
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
    one.configure(names_, ScopeSettings(paused=Pause("late", "ann")))
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
    one.configure([ACME, GLOBEX], ScopeSettings(max_running=15))
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
