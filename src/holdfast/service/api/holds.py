"""Holds of the remote store: presence of workers, upkeep election, slots. See `storage.py`."""

from __future__ import annotations

import heapq

import msgspec

from holdfast.arguments import check_take
from holdfast.core.bounds import (
    BATCH_MAX,
    PAGE_MAX,
    PRESENCE_S_MAX,
    SLOTS_MAX,
    WORKER_MAX,
    WORKERS_MAX,
    within,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.service.api import permissions
from holdfast.service.api.verbs import verb
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Hold, Store, Take
from holdfast.stores.remote import wire
from holdfast.stores.remote.wire import Under
from holdfast.upkeep.leader import NAME as UPKEEP
from holdfast.worker_registry import PREFIX, TENANT_PREFIX, decoder, tenant_prefix


@verb(wire.HOLDS)
async def holds(call: Call, asked: Under) -> list[Hold]:
    """Lists held names under a prefix."""
    return await _listed(call, asked)


@verb(wire.HOLD)
async def hold(call: Call, asked: wire.Takes) -> list[Hold]:
    """Takes, renews or releases names."""
    within("takes", len(asked.takes), BATCH_MAX)
    if asked.listed is not None:
        permissions.need(call, Right.READ)
    plan = [_planned(call, take) for take in asked.takes]
    takes = [take for take in plan if take is not None]
    service = call.service
    answers = iter(await service.presences.hold(service.store, call.tenant_name, takes))
    found = []
    for take, planned in zip(asked.takes, plan, strict=True):
        if planned is None:
            found.append(await _leader(call))
        else:
            found.append(msgspec.structs.replace(next(answers), name=take.name))
    return found if asked.listed is None else await _listed(call, asked.listed)


def _planned(call: Call, take: Take) -> Take | None:
    """The take in the form for the store; None for an election that the caller may not win."""
    check_take(take)
    if permissions.slot(call, take.name):
        return take
    if take.name.startswith(PREFIX):
        check_whole("length_us", take.length_us, 0, int(PRESENCE_S_MAX) * SECOND)
        return take if call.tenant_name is None else _present(call, take, call.tenant_name)
    if call.tenant_name is None and Right.ADMIN in call.caller.rights:
        return take
    if take.name == UPKEEP:
        return None
    raise Forbidden(why="this token may hold only slots and the presence of workers")


def _present(call: Call, take: Take, tenant: str) -> Take:
    """The presence of a worker of one tenant: its name contains the tenant, and its note may name
    no other tenant and no queue that its token does not cover.
    """
    name = check_name("name", take.name.removeprefix(PREFIX), WORKER_MAX)
    note = take.note
    if take.length_us:
        try:
            said = decoder.decode(take.note)
        except msgspec.MsgspecError as error:
            raise InvalidInput(field="note", why=f"is not the note of a worker: {error}") from None
        serves = call.caller.queues_of(said.queues)
        said = msgspec.structs.replace(said, tenants=(tenant,), queues=serves)
        note = msgspec.json.encode(said).decode()
    return check_take(Take(f"{tenant_prefix(tenant)}{name}", take.owner, take.length_us, note))


async def _leader(call: Call) -> Hold:
    """The upkeep leader. Its note is only for admins."""
    for one in await call.service.store.hold(under=UPKEEP, limit=1):
        if one.name == UPKEEP:
            return Hold(one.name, one.owner, one.until, "")
    return Hold(UPKEEP, "", 0, "")


async def _listed(call: Call, asked: Under) -> list[Hold]:
    store, tenant = call.service.store, call.tenant_name
    under, after = asked.under, asked.after
    within("limit", asked.limit, PAGE_MAX)
    if tenant is None:
        return await _page(call, under, asked)
    if under == UPKEEP:
        leader = await _leader(call)
        return [leader] if leader.owner and leader.name > after and asked.limit else []
    if under.startswith(TENANT_PREFIX):
        return []  # Its own workers are listed with the others, by the names that they chose.
    if not under.startswith(PREFIX):
        return await _page(call, permissions.slots_under(under, tenant), asked)
    own = await _own(store, asked, tenant)
    found = heapq.merge(own, await _serving(store, asked, tenant), key=lambda one: one.name)
    return list(found)[: asked.limit]


async def _page(call: Call, under: str, asked: Under) -> list[Hold]:
    """A page of held names. Without the slots of scopes that a token for some queues may not act
    on.
    """
    store = call.service.store
    if call.caller.queues is None:
        return await store.hold(under=under, after=asked.after, limit=asked.limit)
    found: list[Hold] = []
    after = asked.after
    for _ in range(SLOTS_MAX // PAGE_MAX):
        page = await store.hold(under=under, after=after, limit=PAGE_MAX)
        found += [one for one in page if permissions.seen_hold(call, one.name)]
        if len(page) < PAGE_MAX or len(found) >= asked.limit:
            break
        after = page[-1].name
    return found[: asked.limit]


async def _own(store: Store, asked: Under, tenant: str) -> list[Hold]:
    """A page of the tenant's own workers, by the names that they chose."""
    mine = tenant_prefix(tenant)
    after = mine + asked.after.removeprefix(PREFIX) if asked.after.startswith(PREFIX) else ""
    under = mine + asked.under.removeprefix(PREFIX)
    page = await store.hold(under=under, after=after, limit=asked.limit)
    return [msgspec.structs.replace(one, name=PREFIX + one.name.removeprefix(mine)) for one in page]


async def _serving(store: Store, asked: Under, tenant: str) -> list[Hold]:
    """A page of shared workers that also serve the tenant. Reads at most WORKERS_MAX of them."""
    found: list[Hold] = []
    after = asked.after
    for _ in range(WORKERS_MAX // PAGE_MAX):
        page = await store.hold(under=asked.under, after=after, limit=PAGE_MAX)
        found += [seen for one in page if (seen := _seen(one, tenant)) is not None]
        if len(page) < PAGE_MAX or len(found) >= asked.limit:
            break
        after = page[-1].name
    return found[: asked.limit]


def _seen(one: Hold, tenant: str) -> Hold | None:
    """A worker as a tenant may see it, without anything about other tenants."""
    try:
        note = decoder.decode(one.note).seen_by(tenant)
    except msgspec.MsgspecError:
        return None
    if note is None:
        return None
    return Hold(one.name, one.owner, one.until, msgspec.json.encode(note).decode())
