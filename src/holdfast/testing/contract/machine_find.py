"""The part of the machine that looks: pages, counts and events against the model."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.core.bounds import JOURNALS_MAX, PAGE_MAX
from holdfast.core.job import Event, JobRecord
from holdfast.core.journal import Journal
from holdfast.core.scope import ScopeKind
from holdfast.store import Ref
from holdfast.testing.contract.builders import finding
from holdfast.testing.contract.checks import (
    check_blame,
    check_counts,
    check_journal,
    check_record,
    check_story,
    check_tallies,
)
from holdfast.testing.contract.machine_base import MachineBase
from holdfast.testing.contract.strategies import QUEUES, some_queues, tenants


class FindRules(MachineBase):
    """Reads that must agree with the model, and with each other."""

    def lookup(self, tenant: str, id: str) -> JobRecord:
        found = self.peek(tenant, id)
        assert found is not None
        return found

    @rule()
    def compare_all(self) -> None:
        self.step()
        self.compare()

    def compare(self) -> None:
        now = self.clock.now()
        records = list(self.run(self.store.find(finding(None, limit=PAGE_MAX))).jobs)
        items = sorted(self.model.items, key=lambda item: -item.seq)
        assert [(each.tenant, each.id) for each in records] == [item.name for item in items]
        for record, item in zip(records, items, strict=True):
            check_record(record, item, now)
            check_blame(record, item, self.model.sources.get(item.name, set()))
        check_counts(records, self.run(self.store.count(None)))
        if self.store.capabilities.scopes:
            for kind in (ScopeKind.TENANT, ScopeKind.GROUP):
                check_tallies(records, kind, self.run(self.store.count(None, by=kind)))
        if self.store.capabilities.steps:
            self.compare_journals(records)

    def compare_journals(self, records: list[JobRecord]) -> None:
        """P16, P17: every journal and every edge is as the model has them."""
        found: dict[Ref, Journal] = {}
        after: int | None = None
        left = len(records)
        while left > 0:
            wish = finding(None, limit=JOURNALS_MAX, after=after)
            page = self.run(self.store.find(msgspec.structs.replace(wish, journals=True)))
            found |= page.journals
            after, left = page.cursor, left - len(page.jobs)
            assert (after is None) == (left == 0)
        assert found.keys() <= {Ref(each.tenant, each.id) for each in records}
        for each in records:
            journal = found.get(Ref(each.tenant, each.id), Journal())
            check_journal(journal, self.model.get(each.tenant, each.id))

    @rule(tenant=tenants, limit=st.integers(1, 4), newest_first=st.booleans(), some=some_queues)
    def page(
        self, tenant: str, limit: int, newest_first: bool, some: tuple[str, ...] | None
    ) -> None:
        self.step()
        got: list[str] = []
        after: int | None = None
        while True:
            wish = finding(
                tenant, queues=some or (), limit=limit, after=after, newest_first=newest_first
            )
            page = self.run(self.store.find(wish))
            got += [each.id for each in page.jobs]
            after = page.cursor
            if after is None:
                break
            assert len(page.jobs) == limit
        items = [each for each in self.model.of(tenant) if each.new.queue in (some or QUEUES)]
        expected = [item.new.id for item in sorted(items, key=lambda item: item.seq)]
        assert got == (expected[::-1] if newest_first else expected)

    def check_events(self) -> None:
        """P14: every job's facts tell the same story as its record."""
        if not self.store.capabilities.event_log:
            return
        events: list[Event] = []
        while True:
            after = events[-1].cursor if events else 0
            page = self.run(self.store.events(None, after, PAGE_MAX))
            events += page.events
            if not page.events:
                break
        check_story(events, self.model.items)
