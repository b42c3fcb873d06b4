"""Tiers: what a change of one writes, for claims to look values up and to look again.

The functions of `sql/functions/tiers.sql` read what this writes; `limits_looks.sql` says what
claims do after a change.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core import tiers
from holdfast.core.errors import InvalidInput
from holdfast.core.rate import Rate
from holdfast.core.scope import ScopeKind, scope_of
from holdfast.core.tiers import NO_DEFAULTS, Defaults, LimitRules
from holdfast.store import Put
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.step import Step

TIER = "SELECT value FROM holdfast.settings WHERE name = $1 AND value IS NOT NULL"
TIERS_KNOWN = (
    f"SELECT name, value FROM holdfast.settings WHERE name >= $1 AND name <= {sql.LAST_NAME}"
    " AND value IS NOT NULL"
)
TIER_USERS = "SELECT count(*) FROM holdfast.tenants_with_settings WHERE tier = $1"
MOVE_TENANT = "SELECT holdfast.move_tenant($1, $2, $3)"
LOOK_FOR = "SELECT holdfast.look_for($1, $2, '')"
TIER_PUT = (
    "INSERT INTO holdfast.tiers AS t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"
    " $13, $14, $15, $16, $17, nextval('holdfast.cursors'), $18) ON CONFLICT (tier) DO UPDATE SET"
    " (known, max_running, price_us, burst, weight, max_queued, max_bytes, top_running, top_price,"
    " top_burst, queue_max, queue_price, queue_burst, group_max, group_price, group_burst) ="
    " ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17),"
    " rated = CASE WHEN $19 THEN excluded.rated ELSE t.rated END,"
    " rated_at = CASE WHEN $19 THEN excluded.rated_at ELSE t.rated_at END"
)
# The platform's defaults have a row as soon as there is any tier.
TIER_FIRST = (
    "INSERT INTO holdfast.tiers (tier, known, rated, rated_at) VALUES ('', false, 0, 0)"
    " ON CONFLICT DO NOTHING"
)
TIER_DROP = "DELETE FROM holdfast.tiers WHERE tier = $1"
# What claims and enqueues ask before they look up tiers: whether there are any, or were; whether
# the platform's defaults limit every tenant; and whether they limit groups, or did.
TIERS_CHANGED = (
    "UPDATE holdfast.store_state SET tiered = true, limits_all = coalesce($1, limits_all),"
    " gates_all = gates_all OR $2"
)

_NONE = LimitRules()
_ALL = LimitRules(max_running=0)
_UNREADABLE = Defaults(max_running=0, queue=_ALL, group=_ALL)
"""What a tier that cannot be read may have set: claims look at all that rests in it."""

Known = dict[str, Defaults]
"""The tiers by name, "" for the platform's defaults."""


async def check_puts(step: Step, puts: Sequence[Put]) -> Known:
    """Raises InvalidInput for bad settings of scopes and tiers. Returns the tiers, if any of them
    is put. The caller has the lock of settings, so no other call changes what this has read.
    """
    pairs = [(one.name, one.value) for one in puts]
    put = {tiers.tier_of(name): value for name, value in pairs if tiers.tier_of(name) is not None}
    values: dict[str, bytes] = {}
    if put or any(scope_of(name) is not None for name, _ in pairs):
        for name, value in await step.rows(TIERS_KNOWN, tiers.PREFIX):
            values[name.removeprefix(tiers.PREFIX)] = value
    gone = [tier for tier in values if tier and put.get(tier, b"") is None]
    users = {tier: await step.value(TIER_USERS, tier) for tier in gone}
    tiers.check_puts(pairs, values, lambda tier: users[tier])
    return {tier: _decode(tiers.name_of(tier), values[tier]) for tier in values if put}


def _decode(name: str, value: bytes) -> Defaults:
    try:
        return tiers.decode(name, value)
    except (InvalidInput, TypeError, ValueError):
        return _UNREADABLE


async def set_tier(step: Step, tier: str, put: Put, known: Known) -> None:
    """Applies what a tier, or the platform for "", sets from now on; `known` has it afterwards."""
    before = known.pop(tier, NO_DEFAULTS)
    after = NO_DEFAULTS
    if put.value is not None:
        after = known[tier] = tiers.decode(put.name, put.value)
    await step.run(TIER_FIRST)
    if tier and put.value is None:
        await step.run(TIER_DROP, tier)
    else:
        rerated = tiers.rates(before) != tiers.rates(after)
        values = (tier, put.value is not None, *_columns(after), step.now, rerated)
        await step.run(TIER_PUT, *values)
    limited = tiers.kinds_limited(NO_DEFAULTS, after)
    gates = not tier and ScopeKind.GROUP in limited
    await step.run(TIERS_CHANGED, None if tier else bool(limited), gates)
    for name, kinds in tiers.concerned(tier, before, known).items():
        for kind in kinds:
            await step.run(LOOK_FOR, kind.value, name)
    step.wakes_all = True


def _columns(defaults: Defaults) -> tuple[int | None, ...]:
    """The columns of `tiers` that a change sets."""
    top, queue, group = defaults.ceiling or _NONE, defaults.queue or _NONE, defaults.group or _NONE
    return (
        defaults.max_running,
        *rate_columns(defaults.rate),
        defaults.weight,
        defaults.max_queued,
        defaults.max_bytes,
        top.max_running,
        *rate_columns(top.rate),
        queue.max_running,
        *rate_columns(queue.rate),
        group.max_running,
        *rate_columns(group.rate),
    )


def rate_columns(rate: Rate | None) -> tuple[int | None, int | None]:
    return (None, None) if rate is None else (rate.price_us, rate.burst)


async def move_tenant(step: Step, tenant: str, tier: str | None) -> None:
    """Puts a tenant with settings into a tier."""
    await step.run(MOVE_TENANT, tenant, tier, step.now)
    step.wakes_all = True
