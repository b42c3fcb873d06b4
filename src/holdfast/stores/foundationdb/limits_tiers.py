"""Tiers: what a change of one writes, and what it has claims look at again.

A change of a tier writes its setting, and a mark in TIER_LOOKS if anything rests in the tier. Lines
that rest and groups whose jobs wait are found by their tenants, which TIER_RESTS lists by tier. So
claims look at what a change may have opened in portions, and the mark names the tenant after which
the next one goes on. A tenant with more than its share of a portion is noted in TIER_LEFT, and goes
on in a later round, so that it keeps nobody waiting. The last portion drops the mark. A limit that
was lowered holds at once: claims compute the room of what they meet.

TIER_RESTS may list a tenant of which nothing rests any more. Who finds that deletes the entry, if
its lines and groups still are as it read them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.core import tiers
from holdfast.core.bounds import REPAIR_MAX
from holdfast.core.scope import Scope, ScopeKind, scope_of
from holdfast.core.tiers import NO_DEFAULTS, Defaults
from holdfast.store import Put
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX, Space, after, text, texts
from holdfast.stores.foundationdb.limits import Room, ask_rooms, line_rooms
from holdfast.stores.foundationdb.limits_groups import (
    grant_group,
    mark_regroup,
    reopen_freed,
    reopen_later,
    reopen_line,
)
from holdfast.stores.foundationdb.overlay import Pair
from holdfast.stores.foundationdb.rows import pack
from holdfast.stores.foundationdb.scope_cache import PLATFORM
from holdfast.stores.foundationdb.scope_tiers import (
    OF_TENANT,
    OF_TIER,
    Look,
    look_of,
    put_rates,
)
from holdfast.stores.foundationdb.step import Step

TIERS_AHEAD = 20
"""Tiers that one portion looks at."""
LINES_MAX = 100
GROUPS_MAX = 5
"""Resting lines and waiting groups of one tenant that one portion looks at."""
NAMED_GROUPS_MAX = 20
"""The same where the claim names the tenant."""
GROUP_COST = 10
"""As how many tenants a group counts: it may have many jobs to let into their lines."""

_chance = random.Random()


# -- changes ---------------------------------------------------------------------------------------


async def check(step: Step, puts: Sequence[Put]) -> None:
    """Raises InvalidInput if one of these is no good setting of a scope or a tier."""
    names = {put.name: tiers.tier_of(put.name) for put in puts}
    if all(tier is None and scope_of(name) is None for name, tier in names.items()):
        return
    await step.settings.load()
    gone = {names[put.name] for put in puts if put.value is None}
    # With a conflict range: of this step and one that puts a tenant into the tier one fails.
    users = {
        tier: await step.counted(_users_key(step, tier), snapshot=False) for tier in gone if tier
    }
    known = step.settings.tiers.values
    tiers.check_puts([(put.name, put.value) for put in puts], known, lambda tier: users[tier])


def _users_key(step: Step, tier: str) -> bytes:
    return step.keys.all(Space.TIER_USERS, text(tier))


async def set_tier(step: Step, tier: str, put: Put, pair: Pair) -> None:
    """Applies what a tier, or the platform for "", sets from now on."""
    before = step.settings.tiers.values.get(tier, NO_DEFAULTS)
    after_ = NO_DEFAULTS if put.value is None else tiers.decode(put.name, put.value)
    step.put(*pair)
    if tiers.rates(before) != tiers.rates(after_):
        key = step.keys.all(Space.TIER_RATES, OF_TIER, text(tier))
        put_rates(step, key, _next_change(step), step.now)
    await step.settings.change(PLATFORM)
    if await _mark_looks(step, tier, before):
        await step.settings.change(PLATFORM)
    step.wakes_all = True


async def _mark_looks(step: Step, tier: str, before: Defaults) -> bool:
    """Has claims look at what rests in the tiers that a change concerns; False if nothing does."""
    concerned = tiers.concerned(tier, before, step.settings.tiers.values)
    for name in concerned:
        step.ask_under(step.keys.tier_rests(name), 1)
    marked = False
    for name, kinds in concerned.items():
        if not await step.under(step.keys.tier_rests(name), 1):
            continue
        look = Look(kinds != [ScopeKind.GROUP], ScopeKind.GROUP in kinds)
        earlier = step.settings.tiers.looks.get(name)
        if earlier is not None:  # One that is not over begins anew.
            look = Look(look.lines or earlier.lines, look.groups or earlier.groups)
        step.put(_look_key(step, name), pack(look))
        marked = True
    return marked


def _next_change(step: Step, tenant: str = PLATFORM) -> int:
    """The number of a change of rates: above those of all that came before it. Steps that make one
    for the same tenants conflict, so the version of the later one is higher; but a restore may put
    versions back.
    """
    known = [*step.settings.tiers.rates.values(), step.settings.moved(tenant)]
    return max(step.at.version, 1 + max(each.number for each in known))


def ask_move(step: Step, tenant: str) -> None:
    """Requests what `move_tenant` reads, for a tenant that was in no tier."""
    step.ask((step.keys.all(Space.TIER_RATES, OF_TENANT, text(tenant)),))
    step.ask((step.keys.tier_rests("", tenant),))


async def move_tenant(step: Step, tenant: str, before: str) -> None:
    """Follows a tenant from the tier that it named before to the one that it names now."""
    tier = step.settings.tier_named(tenant)
    for name, more in ((before, -1), (tier, 1)):
        if name:
            step.add(_users_key(step, name), more)
    key = step.keys.all(Space.TIER_RATES, OF_TENANT, text(tenant))
    put_rates(step, key, _next_change(step, tenant), step.now)
    if await step.get(step.keys.tier_rests(before, tenant)) is not None:
        step.drop(step.keys.tier_rests(before, tenant))
        step.put(step.keys.tier_rests(tier, tenant), b"")
        if step.settings.tiers.looks:
            # Claims may not have come to it in the tier that it leaves.
            mark_regroup(step, tenant, None)
    await step.settings.change(tenant)


# -- looking again ---------------------------------------------------------------------------------


def _look_key(step: Step, tier: str) -> bytes:
    return step.keys.all(Space.TIER_LOOKS, text(tier))


class Looked(NamedTuple):
    """What a portion did."""

    opened: int
    """Lines to which it gave work."""
    more: bool
    """Whether there is more to look at."""


async def look_again(step: Step, tenants: Iterable[str] | None) -> Looked:
    """Looks at the next portion of what rests by tiers that have changed: REPAIR_MAX tenants. With
    `tenants` at these first.
    """
    await step.settings.load()
    looks = step.settings.tiers.looks
    if not looks:
        return Looked(0, more=False)
    if tenants is not None:
        await _look_at_named(step, sorted(set(tenants))[:REPAIR_MAX])
    names = sorted(looks)
    if len(names) > TIERS_AHEAD:
        names = _chance.sample(names, TIERS_AHEAD)
    values = await step.get_many([_look_key(step, name) for name in names])
    over = 0
    for name, value in zip(names, values, strict=True):
        assert value is not None, "the marks are read with the settings of the platform"
        over += await _Portion(step, name, look_of(value), REPAIR_MAX // len(names)).run()
    if over:
        await step.settings.change(PLATFORM)
    await reopen_freed(step)
    return Looked(len(step.pointed), more=over < len(looks))


async def _look_at_named(step: Step, tenants: list[str]) -> None:
    """Looks at these tenants, if their tiers have changed."""
    step.settings.ask(tenants)
    await step.settings.load(tenants)
    looks = step.settings.tiers.looks
    by_tier: dict[str, list[str]] = {}
    for tenant in tenants:
        by_tier.setdefault(step.settings.tier_of(tenant), []).append(tenant)
    for name, some in by_tier.items():
        if name in looks:
            portion = _Portion(step, name, looks[name], REPAIR_MAX)
            keys = {tenant: portion.left_key(tenant) for tenant in some}
            values = await step.get_many(list(keys.values()))
            await portion.tenants(dict(zip(some, values, strict=True)), NAMED_GROUPS_MAX)


class Reached(msgspec.Struct, frozen=True, array_like=True):
    """How far looks have come in one tenant: its lines, then its groups."""

    in_groups: bool = False
    part: str = ""
    """The last queue or group that is done."""


START = Reached()
_place = msgspec.msgpack.Decoder(Reached)


class _Portion:
    """What one step looks at in one tier."""

    def __init__(self, step: Step, tier: str, look: Look, most: int) -> None:
        self._step = step
        self._tier = tier
        self._look = look
        self._left = most
        self._noted: set[str] = set()
        """Those of the tenants that are in TIER_LEFT."""

    def left_key(self, *tenants: str) -> bytes:
        """The key of what is left of a tenant, or the prefix of all."""
        return self._step.keys.all(Space.TIER_LEFT, text(self._tier), *map(text, tenants))

    async def run(self) -> bool:
        """Goes on at the place of the mark; True at the end."""
        step, look, most = self._step, self._look, self._left
        prefix = self.left_key() if look.again else step.keys.tier_rests(self._tier)
        begin = prefix + text(look.tenant) + b"\0" if look.tenant else prefix
        pairs = await step.range(begin, after(prefix), most, snapshot=True)
        found = {texts(key[len(prefix) :], 1)[0]: value for key, value in pairs}
        seen = await self.tenants({name: value or None for name, value in found.items()})
        if seen < len(found) or len(pairs) == most:
            last = [look.tenant, *found][seen]
            place = msgspec.structs.replace(look, tenant=last)
        elif await step.under(self.left_key(), 1):
            place = Look(look.lines, look.groups, again=True)
        else:
            step.drop(_look_key(step, self._tier))
            return True
        step.put(_look_key(step, self._tier), pack(place))
        return False

    async def tenants(self, places: dict[str, bytes | None], groups: int = GROUPS_MAX) -> int:
        """Looks at these tenants, each from its place on; returns at how many of them."""
        await self._read(list(places))
        for seen, (tenant, place) in enumerate(places.items()):
            if self._left <= 0 or self._full:
                return seen
            self._left -= 1
            start = START if place is None else _place.decode(place)
            rest = await self._look_at(tenant, start, groups)
            if rest is not None:
                self._step.put(self.left_key(tenant), pack(rest))
            elif place is not None or tenant in self._noted:
                self._step.drop(self.left_key(tenant))
        return len(places)

    @property
    def _full(self) -> bool:
        return self._step.bytes >= STEP_BYTES_MAX

    def _prefixes(self, tenant: str) -> tuple[bytes, bytes]:
        """Those of the lines of a tenant that rest, and of its jobs that wait for their groups."""
        keys = self._step.keys
        return keys.all(Space.RESTING, text(tenant)), keys.own(tenant, Space.GROUP_WAITING)

    async def _read(self, tenants: list[str]) -> None:
        """Requests together what is read of these tenants."""
        step = self._step
        step.settings.ask(tenants)
        for tenant in tenants:
            for prefix, most in zip(self._prefixes(tenant), (LINES_MAX, 1), strict=True):
                step.ask_under(prefix, most)
        step.ask(map(self.left_key, tenants))
        await step.settings.load(tenants)
        for tenant in tenants if self._look.lines else ():
            resting, _ = self._prefixes(tenant)
            for key, _ in (await step.under(resting, LINES_MAX, snapshot=True))[:1]:
                ask_rooms(step, tenant, (ScopeKind.QUEUE, texts(key[len(resting) :], 1)[0]))
        values = await step.get_many([*map(self.left_key, tenants)], snapshot=True)
        self._noted = {each for each, value in zip(tenants, values, strict=True) if value}

    async def _look_at(self, tenant: str, place: Reached, groups: int) -> Reached | None:
        """Looks at one tenant; returns the place where to go on in it."""
        step, look = self._step, self._look
        if step.settings.tier_of(tenant) != self._tier:
            step.drop(step.keys.tier_rests(self._tier, tenant))
            return None
        if look.lines and not place.in_groups:
            part = await self._lines(tenant, place.part)
            if part is not None:
                return Reached(False, part)
        if look.groups:
            part = await self._groups(tenant, place.part if place.in_groups else "", groups)
            if part is not None:
                return Reached(True, part)
        await forget(step, self._tier, tenant)
        return None

    async def _lines(self, tenant: str, part: str) -> str | None:
        """Reopens the resting lines of a tenant that have room; returns the last that it saw if
        there are more.
        """
        step, known = self._step, dict[Scope, Room]()
        prefix, _ = self._prefixes(tenant)
        begin = prefix + text(part) + b"\0" if part else prefix
        pairs = await step.range(begin, after(prefix), LINES_MAX, snapshot=True)
        queues = [texts(key[len(prefix) :], 1)[0] for key, _ in pairs]
        for number, queue in enumerate(queues):
            rooms = await line_rooms(step, tenant, queue, known)
            full = [room for room in rooms if room.left() == 0]
            for room in full:
                await reopen_later(step, room)
            if full and full[0].scope == Scope(tenant):
                return None  # Nor has any other of its lines room.
            if not full:
                reopen_line(step, tenant, queue)
            if number == 0:
                ask_rooms(step, tenant, *((ScopeKind.QUEUE, each) for each in queues[1:]))
        self._left -= max(0, len(pairs) - 1)  # One line goes with its tenant.
        return queues[-1] if len(pairs) == LINES_MAX else None

    async def _groups(self, tenant: str, part: str, most: int) -> str | None:
        """Uses the room of a tenant's groups; returns the last that is done if there are more."""
        step = self._step
        _, prefix = self._prefixes(tenant)
        begin = after(prefix + text(part)) if part else prefix
        while pairs := await step.range(begin, after(prefix), 1, snapshot=True):
            if most == 0 or self._full:
                return part
            [group] = texts(pairs[0][0][len(prefix) :], 1)
            most -= 1
            self._left -= GROUP_COST
            if not await grant_group(step, tenant, group):
                part, begin = group, after(prefix + text(group))
        return None


async def forget(step: Step, tier: str, tenant: str) -> None:
    """Deletes the entry of a tenant of which nothing rests, unless that changes meanwhile."""
    prefixes = [
        step.keys.all(Space.RESTING, text(tenant)),
        step.keys.own(tenant, Space.GROUP_WAITING),
    ]
    for prefix in prefixes:
        if await step.under(prefix, 1, snapshot=True):
            return
    for prefix in prefixes:
        step.tr.add_read_conflict_range(prefix, after(prefix))
    step.drop(step.keys.tier_rests(tier, tenant))


async def forget_idle(step: Step, keys: Sequence[bytes]) -> None:
    """Deletes those of these entries of whose tenants nothing rests."""
    skip = len(step.keys.all(Space.TIER_RESTS))
    named = [texts(key[skip:], 2) for key in keys]
    for _, tenant in named:
        step.ask_under(step.keys.all(Space.RESTING, text(tenant)), 1)
        step.ask_under(step.keys.own(tenant, Space.GROUP_WAITING), 1)
    for tier, tenant in named:
        await forget(step, tier, tenant)
