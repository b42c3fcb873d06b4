"""Holds: names held for a time, for leaders, present workers and slots of scopes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.core import bounds
from holdfast.core.clock import Micros
from holdfast.core.errors import TenantFull
from holdfast.core.scope import slot_scope_of
from holdfast.store import Hold, Take
from holdfast.stores.memory.layout import Tables
from holdfast.stores.memory.settings import page_of


class Holds:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._holds: dict[str, Hold] = {}

    def take(self, takes: Sequence[Take]) -> list[Hold]:
        """The holder of each name. TenantFull, and nothing is taken, if the takes would give a
        tenant more slots than it may have.
        """
        new: Counter[str] = Counter()
        for one in takes:
            scope = slot_scope_of(one.name)
            if scope is not None and one.length_us > 0 and one.name not in self._holds:
                new[scope.tenant] += 1
        for tenant, more in new.items():
            if self._slots(tenant) + more > bounds.SLOTS_MAX:
                raise TenantFull(tenant=tenant, what="slots", max=bounds.SLOTS_MAX)
        return [self._take(one) for one in takes]

    def _slots(self, tenant: str) -> int:
        limits, now = self._tables.limits, self._tables.now
        scopes = [scope for scope in limits.slots if scope.tenant == tenant]
        return sum(len(limits.live_slots(scope, now)) for scope in scopes)

    def _take(self, one: Take) -> Hold:
        now = self._tables.now
        held = self._holds.get(one.name)
        if held is not None and held.until > now and held.owner != one.owner:
            return held
        if one.length_us <= 0:
            self._holds.pop(one.name, None)
            self._set_slot(one.name, None)
            return Hold(one.name, "", 0, "")
        hold = self._holds[one.name] = Hold(one.name, one.owner, now + one.length_us, one.note)
        self._set_slot(one.name, hold.until)
        return hold

    def _set_slot(self, name: str, until: Micros | None) -> None:
        """Counts a hold that is a slot of a scope, or does not count it any more."""
        scope = slot_scope_of(name)
        if scope is None:
            return
        tables = self._tables
        slots = tables.limits.slots.setdefault(scope, {})
        id = name.removeprefix(scope.slots)
        if until is None:
            slots.pop(id, None)
        else:
            slots[id] = until
            tables.reopen_at(until, scope)
        tables.refresh_scope(scope)

    def page(self, under: str, after: str, limit: int) -> list[Hold]:
        now = self._tables.now
        held = (name for name, hold in self._holds.items() if hold.until > now)
        return [self._holds[name] for name in page_of(held, under, after, limit)]

    def prune(self) -> None:
        """Drops what nobody holds any more."""
        tables = self._tables
        self._holds = {name: hold for name, hold in self._holds.items() if hold.until > tables.now}
        slots = {
            scope: tables.limits.live_slots(scope, tables.now) for scope in tables.limits.slots
        }
        tables.limits.slots = {scope: held for scope, held in slots.items() if held}
