"""Holds: names held for a time, by leaders, workers and slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.core import bounds
from holdfast.core.errors import TenantFull
from holdfast.core.scope import Scope, slot_scope_of
from holdfast.store import Hold, Take
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.step import Step

HOLD_TAKE = (
    "INSERT INTO holdfast.holds AS h VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name)"
    " DO UPDATE SET owner = excluded.owner, until = excluded.until, note = excluded.note"
    " WHERE h.until <= $8 OR h.owner = excluded.owner RETURNING name"
)
HOLD_DROP = "DELETE FROM holdfast.holds WHERE name = $1 AND (until <= $3 OR owner = $2)"
HOLD = "SELECT name, owner, until, note FROM holdfast.holds WHERE name = $1"
HOLDS_UNDER = (
    f"SELECT name, owner, until, note FROM holdfast.holds WHERE {sql.NAMES_PAGE} AND until > $4"
    " ORDER BY name LIMIT $3"
)
# One at a time for each tenant, so that two calls do not both take its last places.
SLOTS_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.slots/' || $1, 0))"
SLOTS_OF = (
    "SELECT count(*) FROM (SELECT FROM holdfast.holds WHERE kind IN ('tenant', 'queue', 'group')"
    " AND tenant = $1 AND until > $2 LIMIT $3) slots"
)
HELD_NAMES = "SELECT name FROM holdfast.holds WHERE name = ANY ($1) AND until > $2"


async def take_holds(step: Step, takes: Sequence[Take]) -> list[Hold]:
    scopes = {one.name: slot_scope_of(one.name) for one in takes}
    await step.begin()
    await _check_room(step, takes, scopes)
    holds: dict[int, Hold] = {}
    # In the order of names, so that two calls never wait for each other.
    for place, one in sorted(enumerate(takes), key=lambda pair: pair[1].name):
        holds[place] = await _take(step, one, scopes[one.name])
    return [holds[place] for place in range(len(takes))]


async def _check_room(step: Step, takes: Sequence[Take], scopes: dict[str, Scope | None]) -> None:
    """TenantFull if the takes would give a tenant more slots than it may have."""
    taken = {one.name for one in takes if one.length_us > 0}
    slots = {name: scope for name, scope in scopes.items() if scope is not None and name in taken}
    if not slots:
        return
    for tenant in sorted({scope.tenant for scope in slots.values()}):
        await step.run(SLOTS_LOCK, tenant)
    held = {row[0] for row in await step.rows(HELD_NAMES, list(slots), step.now)}
    new = Counter(scope.tenant for name, scope in slots.items() if name not in held)
    most = bounds.SLOTS_MAX
    for tenant, more in new.items():
        if await step.value(SLOTS_OF, tenant, step.now, most) + more > most:
            raise TenantFull(tenant=tenant, what="slots", max=most)


async def _take(step: Step, one: Take, scope: Scope | None) -> Hold:
    now = step.now
    if one.length_us <= 0:
        await step.run(HOLD_DROP, one.name, one.owner, now)
        found = await step.row(HOLD, one.name)
        if found is not None:
            return Hold(*found)
        answer = Hold(one.name, "", 0, "")
    else:
        answer = Hold(one.name, one.owner, now + one.length_us, one.note)
        where = (None,) * 3 if scope is None else (scope.kind.value, scope.tenant, scope.part)
        values = (answer.name, answer.owner, answer.until, answer.note)
        if await step.value(HOLD_TAKE, *values, *where, now) is None:
            found = await step.row(HOLD, one.name)
            assert found is not None, "who was in the way is locked by the attempt"
            return Hold(*found)
    if scope is not None:
        await step.touch(scope)
    return answer


async def holds_under(step: Step, under: str, after: str, limit: int) -> list[Hold]:
    await step.begin()
    found = await step.rows(HOLDS_UNDER, under, after, limit, step.now)
    return [Hold(*row) for row in found]
