"""Names with a value (settings) and names held for a time (leaders, presence, slots)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import StaleSetting, TenantFull
from holdfast.job import EventKind
from holdfast.limits import PAGE_MAX
from holdfast.scope import Scope, ScopeKind, decode, scope_of, slot_scope_of
from holdfast.store import Hold, Put, Setting, Take
from holdfast.stores.foundationdb import gates, places, shares, sorting
from holdfast.stores.foundationdb.layout import Space, after, number, text, texts, whole
from holdfast.stores.foundationdb.lines import open_lines
from holdfast.stores.foundationdb.named import (
    Kept,
    hold_key,
    hold_of,
    hold_value,
    setting_key,
    setting_of,
    setting_value,
)
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.foundationdb.turns import Turns


async def put(step: Step, known: Known, puts: Sequence[Put]) -> list[Setting]:
    """Applies all of them, or none."""
    last: dict[str, int] = {}
    for one in puts:
        kept = await _kept(step, one.name)
        last[one.name] = 0 if kept is None else kept.version
        version = 0 if kept is None or kept.value is None else kept.version
        if version != one.version:
            raise StaleSetting(
                field="version", name=one.name, version=version, expected=one.version
            )
        if scope_of(one.name) is not None and one.value is not None:
            decode(one.name, one.value)  # Refused before anything is changed.
    over = await shares.scopes_over(step, puts)
    if over is not None:
        raise over
    for one in puts:
        last[one.name] += 1
        scope = scope_of(one.name)
        before = None
        if scope is not None:
            await places.learn(step, known, [scope.tenant])
            before = step.rules.of(scope).groups
        step.put(setting_key(step.keys, one.name), setting_value(one.value, last[one.name]))
        if scope is not None:
            await _configure(step, scope, one, before)
    await sorting.go_on(step, known)
    found = [await _kept(step, one.name) for one in puts]
    return [_setting(kept) for kept in found if kept is not None and kept.value is not None]


async def _kept(step: Step, name: str) -> Kept | None:
    key = setting_key(step.keys, name)
    found = await step.get(key)
    return None if found is None else setting_of(step.keys, key, found)


def _setting(kept: Kept) -> Setting:
    assert kept.value is not None
    return Setting(kept.name, kept.value, kept.version)


async def _configure(step: Step, scope: Scope, one: Put, before: object) -> None:
    """Lets the new settings of a scope take effect."""
    tenant = scope.tenant
    step.stamp(step.keys.all(Space.RULED, text(tenant)))
    step.rules.learn(tenant, await places.settings_of(step, tenant))
    rules = step.rules
    await places.bound(step, scope, rules.of(scope).rate)
    if scope.kind is ScopeKind.GROUP:
        sorting.begin(step, tenant, scope.part)
    elif before != rules.of(scope).groups:
        sorting.begin(step, tenant, None)
    step.tenants.add(tenant)
    await wake(step, scope)
    text_ = (one.value or b"").decode()
    step.record(EventKind.CONFIGURED, tenant, (one.name, "", ""), note=text_)


async def wake(step: Step, scope: Scope) -> None:
    """Tells who sleeps at the lines of a scope that its room may have changed."""
    if scope.kind is ScopeKind.QUEUE:
        step.lines.add((scope.tenant, scope.part))
        return
    lines = await open_lines(step, Turns(), ((scope.tenant,), None))
    step.lines.update(lines)


# -- holds -----------------------------------------------------------------------------------------


async def take(step: Step, known: Known, takes: Sequence[Take]) -> list[Hold] | TenantFull:
    """Each one's holder; or why all of them are refused, as far as lapsed holds count."""
    over = await shares.slots_over(step, takes)
    if over is not None:
        return over
    holds = [await _take(step, known, one) for one in takes]
    await gates.open_up(step)
    return holds


async def _take(step: Step, known: Known, one: Take) -> Hold:
    key, now = hold_key(step.keys, one.name), step.now
    found = await step.get(key)
    held = None if found is None else hold_of(step.keys, key, found)
    if held is not None and held.until > now and held.owner != one.owner:
        return held
    if held is not None:
        step.drop(_end_key(step, held))
    scope = slot_scope_of(one.name)
    if one.length_us <= 0:
        step.drop(key)
        if scope is not None and found is not None:
            shares.count_slot(step, scope.tenant, -1)
        await _slot(step, known, scope)
        return Hold(one.name, "", 0, "")
    hold = Hold(one.name, one.owner, now + one.length_us, one.note)
    step.put(key, hold_value(hold.owner, hold.until, hold.note))
    step.put(_end_key(step, hold), b"")
    if scope is not None and found is None:
        shares.count_slot(step, scope.tenant, 1)
    await _slot(step, known, scope)
    return hold


def _end_key(step: Step, hold: Hold) -> bytes:
    return step.keys.all(Space.HOLD_ENDS, whole(hold.until), text(hold.name))


async def _slot(step: Step, known: Known, scope: Scope | None) -> None:
    """Looks at the room of a scope whose slots have changed."""
    if scope is None:
        return
    await places.learn(step, known, [scope.tenant])
    if not step.rules.ruled(scope.tenant):
        return
    places.contend_all(step, scope)
    if scope.kind is ScopeKind.GROUP:
        step.groups.add((scope.tenant, scope.part))
    else:
        step.tenants.add(scope.tenant)
    await wake(step, scope)


async def prune(step: Step, limit: int) -> int:
    """Drops names that nobody holds any more; returns how many it looked at."""
    begin = step.keys.all(Space.HOLD_ENDS)
    past = await step.range(begin, begin + whole(step.now + 1), limit, snapshot=True)
    for entry, _ in past:
        until = number(entry[len(begin) :])
        [name] = texts(entry[len(begin) + 8 :], 1)
        step.drop(entry)
        key = hold_key(step.keys, name)
        found = await step.get(key)
        if found is not None and hold_of(step.keys, key, found).until == until:
            step.drop(key)
            scope = slot_scope_of(name)
            if scope is not None:
                shares.count_slot(step, scope.tenant, -1)
    return len(past)


# -- lists -----------------------------------------------------------------------------------------


class Listing:
    """A page of names under a prefix, which may take several transactions: deleted settings and
    lapsed holds take no place in it.
    """

    def __init__(self, under: str, after: str, limit: int) -> None:
        self._under, self._after, self._limit = under, after, limit
        self.settings: list[Setting] = []
        self.holds: list[Hold] = []

    async def look_at_settings(self, step: Step) -> bool:
        """Goes on; False when another transaction has to."""
        pairs = await self._some(step, Space.SETTINGS)
        kept = [setting_of(step.keys, *pair) for pair in pairs]
        self.settings += [_setting(each) for each in kept if each.value is not None]
        del self.settings[self._limit :]
        return len(self.settings) == self._limit or len(pairs) < PAGE_MAX

    async def look_at_holds(self, step: Step) -> bool:
        """By snapshot: who renews its own name must not fail because others renew theirs."""
        pairs = await self._some(step, Space.HOLDS)
        holds = [hold_of(step.keys, *pair) for pair in pairs]
        self.holds += [hold for hold in holds if hold.until > step.now]
        del self.holds[self._limit :]
        return len(self.holds) == self._limit or len(pairs) < PAGE_MAX

    async def _some(self, step: Step, space: Space) -> list[tuple[bytes, bytes]]:
        prefix = step.keys.all(space, text(self._under)[:-1])
        behind = step.keys.all(space, text(self._after)) + b"\0" if self._after else b""
        begin, end = max(prefix, behind), after(prefix)
        pairs = await step.range(begin, end, PAGE_MAX, snapshot=True) if begin < end else []
        if pairs:
            [self._after] = texts(pairs[-1][0][len(step.keys.all(space)) :], 1)
        return pairs
