"""Cost: how many steps SQLite takes for a transaction. Counted, not timed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.core.job import Lease, NewJob
from holdfast.core.scope import Scope, ScopeSettings, encode
from holdfast.core.tiers import Defaults, name_of
from holdfast.core.tiers import encode as encode_tier
from holdfast.store import Claim, Put
from holdfast.stores.sqlite.claim import claim_jobs
from holdfast.stores.sqlite.count import recount
from holdfast.stores.sqlite.enqueue import enqueue_jobs
from holdfast.stores.sqlite.fairness import TurnCredits
from holdfast.stores.sqlite.limits import apply_limits
from holdfast.stores.sqlite.scope_cache import ScopeCache
from holdfast.stores.sqlite.settings import put_settings
from holdfast.stores.sqlite.transaction import LastCommit, Transaction
from holdfast.testing.contract.builders import ACME, LEASE

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

    def configure(self, scopes: list[Scope], settings: ScopeSettings) -> None:
        with self.transaction() as transaction:
            self.put(transaction, scopes, settings)

    def put(
        self,
        transaction: Transaction,
        scopes: list[Scope],
        settings: ScopeSettings | None,
        version: int = 0,
    ) -> None:
        value = None if settings is None else encode(settings)
        puts = [Put(scope.name, value, version) for scope in scopes]
        put_settings(transaction, puts, None, None)

    def set_tier(self, tier: str, version: int, **fields: Any) -> None:
        with self.transaction() as transaction:
            self.put_tier(transaction, tier, version, **fields)

    def put_tier(self, transaction: Transaction, tier: str, version: int, **fields: Any) -> None:
        put = Put(name_of(tier), encode_tier(Defaults(**fields)), version)
        put_settings(transaction, [put], None, None)

    def enqueue(self, jobs: list[NewJob]) -> None:
        with self.transaction() as transaction:
            enqueue_jobs(transaction, jobs)

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
        leases = self.take(transaction, **options)
        assert len(leases) == 10
        return leases

    def take(self, transaction: Transaction, **options: tuple[str, ...]) -> list[Lease]:
        """Claims ten jobs; it may get fewer."""
        self._claims += 1
        asked = Claim(worker="w", nonce=f"n{self._claims}", limit=10, lease_us=LEASE, **options)
        return claim_jobs(transaction, asked, self.turns)
