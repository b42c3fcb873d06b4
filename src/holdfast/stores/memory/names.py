"""Names with a value (settings, those of scopes take effect) and names held for a time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast import limits
from holdfast.clock import Micros
from holdfast.errors import StaleSetting, TenantFull
from holdfast.job import Event, EventKind
from holdfast.scope import PREFIX, decode, scope_of, slot_scope_of
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.memory.layout import Tables


class Names:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._settings: dict[str, Setting] = {}
        self._versions: dict[str, int] = {}
        """Of every name that ever had a value, so that none is used twice."""
        self._holds: dict[str, Hold] = {}
        self._scopes: Counter[str] = Counter()
        """How many scopes of each tenant ever had settings."""

    # -- settings --------------------------------------------------------------------------------

    def put(self, puts: Sequence[Put]) -> list[Setting]:
        """Applies all of them, or none."""
        new: Counter[str] = Counter()
        for put in puts:
            found = self._settings.get(put.name)
            version = found.version if found is not None else 0
            if version != put.version:
                raise StaleSetting(
                    field="version", name=put.name, version=version, expected=put.version
                )
            scope = scope_of(put.name)
            if scope is not None and put.name not in self._versions:
                new[scope.tenant] += 1
            if put.value is not None and put.name.startswith(PREFIX):
                decode(put.name, put.value)
        for tenant, more in new.items():
            if self._scopes[tenant] + more > limits.SETTINGS_MAX:
                raise TenantFull(tenant=tenant, what="scopes", max=limits.SETTINGS_MAX)
        self._scopes += new
        for put in puts:
            self._put(put)
        return [self._settings[put.name] for put in puts if put.name in self._settings]

    def _put(self, put: Put) -> None:
        version = self._versions[put.name] = self._versions.get(put.name, 0) + 1
        if put.value is None:
            self._settings.pop(put.name, None)
        else:
            self._settings[put.name] = Setting(put.name, put.value, version)
        scope = scope_of(put.name)
        if scope is None:
            return
        tables = self._tables
        if put.value is None:
            tables.gates.settings.pop(scope, None)
        else:
            tables.gates.settings[scope] = decode(put.name, put.value)
        tables.changed(scope)
        text = (put.value or b"").decode()
        tables.record(
            Event(
                tables.cursor + 1,
                tables.now,
                EventKind.CONFIGURED,
                scope.tenant,
                put.name,
                "",
                "",
                0,
                0,
                None,
                text,
                tables.by,
            )
        )

    def settings(self, under: str, after: str, limit: int) -> list[Setting]:
        return [self._settings[name] for name in _page(self._settings, under, after, limit)]

    # -- holds -----------------------------------------------------------------------------------

    def check_room(self, takes: Sequence[Take]) -> None:
        """TenantFull if the takes would give a tenant more slots than it may have."""
        new: Counter[str] = Counter()
        for one in takes:
            scope = slot_scope_of(one.name)  # Refused before anything is changed.
            if scope is not None and one.length_us > 0 and one.name not in self._holds:
                new[scope.tenant] += 1
        for tenant, more in new.items():
            if self._slots(tenant) + more > limits.SLOTS_MAX:
                raise TenantFull(tenant=tenant, what="slots", max=limits.SLOTS_MAX)

    def _slots(self, tenant: str) -> int:
        gates, now = self._tables.gates, self._tables.now
        scopes = [scope for scope in gates.slots if scope.tenant == tenant]
        return sum(len(gates.live_slots(scope, now)) for scope in scopes)

    def take(self, one: Take) -> Hold:
        now = self._tables.now
        held = self._holds.get(one.name)
        if held is not None and held.until > now and held.owner != one.owner:
            return held
        if one.length_us <= 0:
            self._holds.pop(one.name, None)
            self._slot(one.name, None)
            return Hold(one.name, "", 0, "")
        hold = self._holds[one.name] = Hold(one.name, one.owner, now + one.length_us, one.note)
        self._slot(one.name, hold.until)
        return hold

    def _slot(self, name: str, until: Micros | None) -> None:
        """Keeps the slots of scopes in step with the holds that stand for them."""
        scope = slot_scope_of(name)
        if scope is None:
            return
        tables = self._tables
        slots = tables.gates.slots.setdefault(scope, {})
        id = name.removeprefix(scope.slots)
        if until is None:
            slots.pop(id, None)
        else:
            slots[id] = until
            tables.reopen_at(until, scope)
        tables.look(scope)

    def holds(self, under: str, after: str, limit: int) -> list[Hold]:
        self.prune()
        return [self._holds[name] for name in _page(self._holds, under, after, limit)]

    def prune(self) -> None:
        now = self._tables.now
        self._holds = {name: hold for name, hold in self._holds.items() if hold.until > now}


def _page(names: Iterable[str], under: str, after: str, limit: int) -> list[str]:
    """The first names under a prefix and after a name, in order."""
    return heapq.nsmallest(limit, (one for one in names if one.startswith(under) and one > after))
