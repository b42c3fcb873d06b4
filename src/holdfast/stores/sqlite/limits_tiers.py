"""Tiers: what rests by their values, and what a change of one has claims look at again.

A change of a tier writes its setting, and for each kind of scope that it may open one row of the
table `reopen`. Tenants, lines and groups without room name the tier of their tenant (`resting`),
and the value of `counters.scopes` at which their room was computed (`looked`). So claims find what
a change may have opened by an index, and look at it in portions. A limit that was lowered holds at
once: claims compute the room of what they meet.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.bounds import REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.core.scope import ScopeKind
from holdfast.core.tiers import Defaults, concerned
from holdfast.store import Claim
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite.transaction import Transaction

MOVED = "all"
"""In the table `reopen`, in place of a kind: everything of one tenant."""

PORTION_MIN = 50
"""Scopes of the first portion of a claim for a few jobs."""
LOOKS_MAX = REPAIR_MAX * REPAIR_PASSES_MAX
"""Scopes that one claim looks at."""
GROUP_COST = 10
"""As how many other scopes a group counts: it may have many jobs to open."""

Key = tuple[str, str, str]
"""(kind, tenant, part)"""


def tier_changed(transaction: Transaction, tier: str, before: Defaults) -> None:
    """Has claims look at what a changed tier, or changed defaults of the platform, may open."""
    for name, kinds in concerned(tier, before, transaction.scope_cache.tiers).items():
        for kind in kinds:
            transaction.execute(scope_sql.LOOK_PUT, (kind.value, "", name))
    transaction.wake_all = True


def tenant_moved(transaction: Transaction, tenant: str) -> None:
    """Has claims look at all that rests of a tenant that was put into another tier."""
    now = transaction.scopes_version
    if transaction.execute(scope_sql.RESTING_OF, (tenant, now, 1)).fetchone() is not None:
        transaction.execute(scope_sql.LOOK_PUT, (MOVED, tenant, ""))
        transaction.wake_all = True


def look_later(transaction: Transaction, tenant: str, kind: ScopeKind) -> None:
    """Has claims look at what of a kind rests in the tier of a tenant."""
    tier = transaction.scope_cache.tier_of(tenant)
    transaction.execute(scope_sql.LOOK_PUT, (kind.value, "", tier))


class Looks:
    """What one claim looks at again, portion by portion: LOOKS_MAX scopes at most."""

    def __init__(self, transaction: Transaction, claim: Claim) -> None:
        self._transaction = transaction
        self._names = claim.tenants
        self._portion = min(max(claim.limit, PORTION_MIN), REPAIR_MAX)
        self._left = LOOKS_MAX if transaction.scope_cache.tiered else 0
        self._others = True

    def portion(self) -> set[str]:
        """Has the next portion checked; returns the tenants of these scopes. A claim that names
        tenants looks at theirs first, and at one portion of others.
        """
        found: list[Key] = []
        if self._left > 0:
            looks = self._transaction.execute(scope_sql.LOOKS, (self._portion,)).fetchall()
            if looks and self._names is not None:
                found += self._named(self._names)
            if looks and self._others:
                share = max(1, self._portion // len(looks))
                found += [key for look in looks for key in self._rest(look, share)]
                self._others = self._names is None
            self._left -= len(found)
        return {tenant for _, tenant, _ in found}

    def _named(self, tenants: Iterable[str]) -> list[Key]:
        cache, found = self._transaction.scope_cache, list[Key]()
        for tenant in set(tenants):
            since = max(cache.changed(cache.tier_of(tenant)), cache.moved(tenant))
            if len(found) < self._portion:
                values = (tenant, since, self._portion - len(found))
                found += self._check(scope_sql.RESTING_OF, values)
        return found

    def _rest(self, look: Key, most: int) -> list[Key]:
        kind, tenant, tier = look
        cache = self._transaction.scope_cache
        if kind in (MOVED, ScopeKind.GROUP.value):
            most = max(1, most // GROUP_COST)
        if kind == MOVED:
            found = self._check(scope_sql.RESTING_OF, (tenant, cache.moved(tenant), most))
        else:
            found = self._check(scope_sql.RESTING_IN, (tier, kind, cache.changed(tier), most))
        if len(found) < most:
            self._transaction.execute(scope_sql.LOOK_DROP, look)
        return found

    def _check(self, statement: str, values: tuple[str | int, ...]) -> list[Key]:
        transaction = self._transaction
        found: list[Key] = transaction.execute(statement, values).fetchall()
        looked = [(transaction.scopes_version, *key) for key in found]
        transaction.connection.executemany(scope_sql.LOOKED, looked)
        for kind, tenant, part in found:
            if kind == ScopeKind.TENANT.value:
                transaction.tenants_to_check.add(tenant)
            elif kind == ScopeKind.QUEUE.value:
                transaction.lines_to_check.add((tenant, part))
            else:
                transaction.groups_to_check.add((tenant, part))
        return found


def check_all(transaction: Transaction) -> None:
    """Has everything checked that may rest: its marks are lost."""
    if not transaction.scope_cache.tiered:
        return
    execute = transaction.execute
    transaction.tenants_to_check |= {one for (one,) in execute(scope_sql.ALL_TENANTS).fetchall()}
    transaction.lines_to_check |= set(execute(scope_sql.ALL_LINES).fetchall())
    transaction.groups_to_check |= set(execute(scope_sql.ALL_WAITING_GROUPS).fetchall())
