"""The test bench of the suite: an open store, its clock, and short helpers for its verbs.

Create one per test: see `holdfast.testing.contract`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import EXPIRED_MAX, INSTANT_MAX, PAGE_MAX
from holdfast.core.clock import Micros
from holdfast.core.job import (
    Event,
    EventKind,
    JobRecord,
    Lease,
    NewJob,
    Outcome,
    Parked,
    State,
)
from holdfast.core.journal import Entry, EntryKind, Journal, Signal, Signaled
from holdfast.core.lifecycle import Transition, decide, lapse
from holdfast.core.scope import Blocker, BlockerKind, Explanation, Scope, ScopeSettings, encode
from holdfast.dispatch import inner_of, name_of
from holdfast.store import (
    Acked,
    Canceled,
    Claim,
    Enqueued,
    Extended,
    Extension,
    Put,
    Ref,
    Setting,
    Store,
    Tally,
)
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract.builders import ACME, LEASE, finding, job


def by_key(entries: Iterable[Entry]) -> dict[tuple[EntryKind, str], bytes]:
    """The values of entries by kind and name."""
    return {(entry.kind, entry.name): entry.value for entry in entries}


class Bench:
    """A store under test. `make` returns a store that is not open, on the same data each time.

    `clock` must be the clock of these stores.
    """

    def __init__(self, make: Callable[[], Store], clock: ManualClock) -> None:
        self._make = make
        self._claims = 0
        self.clock = clock
        self.store = make()
        self.spoil: Callable[[Store, Ref], Awaitable[None]] | None = None
        """Makes the stored record of a job unreadable; None if records are not encoded."""
        self.begin: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        """A connection of a caller in a transaction, which the end of the block commits."""

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        """Closes the store and opens a new one on the same data."""
        await self.store.close()
        self.store = self._make()
        await self.store.open()

    def needs(self, capability: str) -> None:
        """Skips the test, visibly, on a store that does not declare this capability."""
        if not getattr(self.store.capabilities, capability):
            pytest.skip(f"{name_of(self.store)} declares {capability}=False")

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A caller's own transaction. Skips the test, visibly, if no way to begin one is given."""
        if self.begin is None:
            pytest.skip(f"no way is given to begin a transaction beside {name_of(self.store)}")
        return self.begin()

    async def make_unreadable(self, ref: Ref) -> None:
        """Damages a stored record. Skips the test, visibly, if the store does not encode."""
        if self.spoil is None:
            pytest.skip(f"no way is given to damage a record of {name_of(self.store)}")
        await self.spoil(inner_of(self.store), ref)

    # -- journey ---------------------------------------------------------------------------------

    async def put(self, *ids: str, **options: Any) -> None:
        """Enqueues a new job for each id, all with these options."""
        answers = await self.add(*(job(id, **options) for id in ids))
        assert all(answer.created for answer in answers)

    async def add(self, *jobs: NewJob) -> list[Enqueued]:
        return await self.store.enqueue(jobs)

    async def claim(self, limit: int = 1, **options: Any) -> list[Lease]:
        """Leases up to `limit` jobs. Each claim has its own nonce."""
        self._claims += 1
        own: dict[str, Any] = {"worker": "w1", "nonce": f"nonce-{self._claims}", "lease_us": LEASE}
        return await self.store.claim(Claim(limit=limit, **(own | options)))

    async def one(self, **options: Any) -> Lease:
        """The lease of a claim for one job, which must return one."""
        leases = await self.claim(1, **options)
        assert len(leases) == 1
        return leases[0]

    async def held(self, id: str, **options: Any) -> Lease:
        """A new job, leased at once. No other job may be claimable."""
        await self.put(id, **options)
        lease = await self.one()
        assert lease.job.id == id
        return lease

    async def extend(
        self,
        lease: Lease,
        length: Micros = LEASE,
        progress: str | None = None,
        entries: tuple[Entry, ...] = (),
    ) -> Extended:
        extension = Extension(
            tenant=lease.job.tenant,
            id=lease.job.id,
            token=lease.token,
            lease_us=length,
            progress=progress,
            entries=entries,
        )
        return (await self.store.extend([extension]))[0]

    async def write(self, lease: Lease, kind: EntryKind, name: str, value: bytes) -> Extended:
        """Writes one entry to the journal, under the lease."""
        self.needs("steps")
        return await self.extend(lease, entries=(Entry(kind, name, value),))

    async def step(self, lease: Lease, name: str, value: bytes = b"1") -> None:
        """Writes the result of a step, which must be accepted."""
        assert (await self.write(lease, EntryKind.STEP, name, value)).error is None

    async def park(
        self, lease: Lease, awaits: str | None = None, delay: Micros | None = None
    ) -> Acked:
        """Parks a job until an instant, or until what it awaits has come."""
        self.needs("steps")
        run_at = INSTANT_MAX if delay is None else None
        return await self.end(lease, Parked(delay or 0, run_at, awaits))

    async def send(
        self, id: str, name: str, value: bytes = b"true", tenant: str = ACME
    ) -> Signaled:
        """Sends a signal to a job."""
        self.needs("steps")
        return (await self.store.signal([Signal(tenant, id, name, value)]))[0]

    async def journal(self, id: str, tenant: str = ACME) -> dict[tuple[EntryKind, str], bytes]:
        """The journal of a job, as a reader sees it."""
        self.needs("steps")
        find = msgspec.structs.replace(finding(tenant, ids=(id,)), journals=True)
        page = await self.store.find(find)
        found = page.journals.get(Ref(tenant, id), Journal())
        return by_key(found.entries)

    async def end(
        self,
        lease: Lease,
        outcome: Outcome,
        chance: float = 0.0,
        entries: tuple[Entry, ...] = (),
    ) -> Acked:
        """Acks the transition for this outcome."""
        change = decide(outcome, lease.job, lease.token, chance)
        return await self.ack(msgspec.structs.replace(change, entries=entries))

    async def ack(self, transition: Transition) -> Acked:
        return (await self.store.ack([transition]))[0]

    # -- will and upkeep -------------------------------------------------------------------------

    async def cancel(self, id: str, tenant: str = ACME) -> Canceled:
        return (await self.store.cancel([Ref(tenant, id)]))[0]

    async def upkeep(self, limit: int = EXPIRED_MAX) -> list[Acked]:
        """One turn of the rescue: reads expired jobs, decides by the rules, and acks."""
        lapsed = await self.store.expired(limit)
        return await self.store.ack([lapse(one.job, one.token) for one in lapsed])

    # -- scopes ----------------------------------------------------------------------------------

    async def configure(self, scope: Scope, **fields: Any) -> None:
        """Replaces the settings of a scope; without arguments deletes them."""
        self.needs("platform" if scope.of_platform else "scopes")
        found = await self.setting(scope)
        value = encode(ScopeSettings(**fields)) if fields else None
        if found is not None or fields:
            version = 0 if found is None else found.version
            await self.store.settings([Put(scope.name, value, version)])

    async def setting(self, scope: Scope) -> Setting | None:
        listed = await self.store.settings(under=scope.name)
        return next((each for each in listed if each.name == scope.name), None)

    async def tally(self, scope: Scope) -> Tally:
        """The counts of one scope; empty if it is not listed."""
        self.needs("scopes")
        found = await self.store.count(scope.tenant, by=scope.kind, part=scope.part)
        assert len(found) <= 1
        return found[0] if found else Tally(scope.tenant, scope.part, {})

    async def running(self, scope: Scope) -> int:
        return (await self.tally(scope)).counts.get(State.PROCESSING, 0)

    async def explain(self, id: str, tenant: str = ACME) -> Explanation:
        self.needs("scopes")
        return await self.store.explain(Ref(tenant, id))

    async def gates(self, id: str, tenant: str = ACME) -> dict[BlockerKind, Blocker]:
        """The blockers of a job now, by kind."""
        gates = (await self.explain(id, tenant)).gates
        by_kind = {gate.kind: gate for gate in gates}
        assert len(by_kind) == len(gates)
        return by_kind

    # -- sight -----------------------------------------------------------------------------------

    async def peek(self, id: str, tenant: str = ACME) -> JobRecord | None:
        page = await self.store.find(finding(tenant, ids=(id,)))
        assert len(page.jobs) <= 1
        return page.jobs[0] if page.jobs else None

    async def get(self, id: str, tenant: str = ACME) -> JobRecord:
        found = await self.peek(id, tenant)
        assert found is not None, f"job {id!r} of {tenant!r} is not there"
        return found

    async def state(self, id: str, tenant: str = ACME) -> State:
        return (await self.get(id, tenant)).state

    async def history(self, id: str, tenant: str = ACME) -> list[Event]:
        """Every event of one job, as stored."""
        self.needs("event_log")
        page = await self.store.events(tenant, 0, PAGE_MAX, job_id=id)
        return list(page.events)

    async def kinds(self, id: str, tenant: str = ACME) -> list[EventKind]:
        return [event.kind for event in await self.history(id, tenant)]
