"""The part of the machine that writes journals, parks jobs, and sends signals to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.core.bounds import INSTANT_MAX
from holdfast.core.clock import SECOND, Micros
from holdfast.core.job import Lease, Parked, State
from holdfast.core.journal import (
    Edge,
    Entry,
    EntryKind,
    Key,
    OnFailure,
    Signal,
    await_join,
    await_signal,
    new_join,
)
from holdfast.core.lifecycle import decide
from holdfast.store import Extension
from holdfast.testing.contract.builders import job
from holdfast.testing.contract.machine_base import MachineBase
from holdfast.testing.contract.strategies import (
    JOINS,
    SIGNALS,
    entries,
    lengths,
    options,
    picks,
    tenants,
)

AWAITED = [*map(await_signal, SIGNALS), *map(await_join, JOINS)]


class DurableRules(MachineBase):
    """Runs that write entries and park, and signals that come before, meanwhile or too late."""

    def new_entries(self, drawn: Iterable[Key]) -> tuple[Entry, ...]:
        """Entries of these kinds and names, each with a value of its own."""
        if not self.store.capabilities.steps:
            return ()
        found = []
        for kind, name in drawn:
            self.written += 1
            join = kind is EntryKind.JOIN
            value = str(self.written % 3) if join else f"value {self.written}"
            found.append(Entry(kind, name, value.encode()))
        return tuple(found)

    @precondition(lambda self: self.leases and self.store.capabilities.steps)
    @rule(
        pick=picks,
        awaits=st.sampled_from([None, *AWAITED, *AWAITED]),
        delay=st.none() | lengths,
        drawn=entries,
    )
    def park(self, pick: int, awaits: str | None, delay: Micros | None, drawn: list[Key]) -> None:
        """P10: what it awaits has come already, comes later, or never."""
        now = self.step()
        self.park_lease(self.lease(pick), awaits, delay, self.new_entries(drawn), now)

    def park_lease(
        self,
        lease: Lease,
        awaits: str | None,
        delay: Micros | None,
        written: tuple[Entry, ...],
        now: Micros,
    ) -> None:
        if awaits is None or delay is not None:
            outcome = Parked(delay or 0, None, awaits)
        else:
            outcome = Parked(0, INSTANT_MAX, awaits)
        change = decide(outcome, lease.job, lease.token, 0.5)
        change = msgspec.structs.replace(change, entries=written)
        [answer] = self.run(self.store.ack([change]))
        name = (change.tenant, change.id)
        refused = self.model.refused(name, lease.token, now)
        assert (type(answer.error) if answer.error else None) is refused
        item = self.model.get(*name)
        if refused is None and item is not None:
            self.model.write(name, written, now)
            run_at = now + change.delay_us if change.run_at is None else change.run_at
            self.model.park(item, run_at, awaits, now)
            later = item.run_at > now
            assert answer.state is (State.SCHEDULED if later else State.ENQUEUED)

    @precondition(lambda self: self.model.items and self.store.capabilities.steps)
    @rule(pick=picks, tenant=tenants, name=st.sampled_from(SIGNALS), parked=st.booleans())
    def signal(self, pick: int, tenant: str, name: str, parked: bool) -> None:
        """P7, P16: to a job that awaits it, or to any; some are of another tenant."""
        now = self.step()
        item = self.item(pick)
        waiting = [each for each in self.model.items if each.awaits == await_signal(name)]
        if parked and waiting:
            item = waiting[pick % len(waiting)]
            tenant = item.new.tenant
        self.send(tenant, item.new.id, name, now)

    def send(self, tenant: str, id: str, name: str, now: Micros) -> None:
        self.written += 1
        value = f"value {self.written}".encode()
        [answer] = self.run(self.store.signal([Signal(tenant, id, name, value)]))
        expected = self.model.signal((tenant, id), name, value, now)
        assert (answer.stored, type(answer.error) if answer.error else None) == expected

    @precondition(lambda self: self.leases and self.store.capabilities.steps)
    @rule(
        pick=picks,
        name=st.sampled_from(JOINS),
        children=st.lists(st.tuples(options, st.sampled_from(list(OnFailure))), max_size=3),
        parks=st.booleans(),
        more=st.sampled_from([0, 0, 0, 1]),
    )
    def fan_out(
        self,
        pick: int,
        name: str,
        children: list[tuple[dict[str, Any], OnFailure]],
        parks: bool,
        more: int,
    ) -> None:
        """P17: a run makes a join and jobs that it counts, and parks until they have ended."""
        now = self.step()
        lease = self.lease(pick)
        tenant, id = lease.job.tenant, lease.job.id
        made = (new_join(name, len(children) + more),)
        wish = Extension(
            tenant=tenant, id=id, token=lease.token, lease_us=30 * SECOND, entries=made
        )
        [answer] = self.run(self.store.extend([wish]))
        expected = self.model.extend((tenant, id), lease.token, 30 * SECOND, now, made)
        assert (type(answer.error) if answer.error else answer.until) == expected
        jobs = [
            job(self.new_id(), **{**own, "tenant": tenant}, edges=(Edge(id, name, how),))
            for own, how in children
        ]
        self.add(jobs, now)
        if parks:
            self.park_lease(lease, await_join(name), None, (), now)
