"""Holds over the wire: the presence of workers, the upkeep's election, slots. See `storage.py`."""

from __future__ import annotations

import msgspec

from holdfast.clock import SECOND
from holdfast.errors import InvalidInput
from holdfast.job import check_name, check_whole
from holdfast.limits import BATCH_MAX, DELAY_S_MAX, NAME_MAX, WORKER_MAX, within
from holdfast.roster import PREFIX, Present
from holdfast.service.api import bounds
from holdfast.service.api.verbs import verb
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Hold, Take
from holdfast.stores.remote import wire
from holdfast.upkeep.leader import NAME as UPKEEP

LENGTH_MAX = int(DELAY_S_MAX) * SECOND

_note = msgspec.json.Decoder(Present)


@verb(wire.HOLDS)
async def holds(call: Call, asked: wire.Under) -> list[Hold]:
    """Held names under a prefix."""
    return await _listed(call, asked.under)


@verb(wire.HOLD)
async def hold(call: Call, asked: wire.Takes) -> list[Hold]:
    """Takes, renews or gives back names."""
    within("takes", len(asked.takes), BATCH_MAX)
    if asked.under is not None:
        bounds.need(call, Right.READ)
    plan = [_planned(call, take) for take in asked.takes]
    answers = iter(await call.service.store.hold([take for take in plan if take is not None]))
    found = []
    for take, planned in zip(asked.takes, plan, strict=True):
        if planned is None:
            found.append(await _leader(call))
        else:
            found.append(msgspec.structs.replace(next(answers), name=take.name))
    return found if asked.under is None else await _listed(call, asked.under)


def _planned(call: Call, take: Take) -> Take | None:
    """The take as the store gets it; None for an election that the caller may not win."""
    take.checked()
    check_whole("length_us", take.length_us, 0, LENGTH_MAX)
    if "\x00" in take.note:
        raise InvalidInput(field="note", why="has a null character")
    if bounds.slot(call, take.name):
        return take
    if take.name.startswith(PREFIX):
        return take if call.tenant_name is None else _present(call, take, call.tenant_name)
    if call.tenant_name is None and Right.ADMIN in call.caller.rights:
        return take
    if take.name == UPKEEP:
        return None
    raise Forbidden(why="this token holds slots and the presence of workers, no other names")


def _present(call: Call, take: Take, tenant: str) -> Take:
    """A worker of one tenant: under a name that no other tenant can take, serving no other tenant,
    and no queue that its token is not for.
    """
    name = check_name("name", take.name.removeprefix(PREFIX), WORKER_MAX)
    note = take.note
    if take.length_us:
        try:
            said = _note.decode(take.note)
        except msgspec.MsgspecError as error:
            raise InvalidInput(field="note", why=f"is no worker's note: {error}") from None
        serves = call.caller.queues_of(said.queues)
        said = msgspec.structs.replace(said, tenants=(tenant,), queues=serves)
        note = msgspec.json.encode(said).decode()
    return Take(f"{_own(tenant)}{name}", take.owner, take.length_us, note)


def _own(tenant: str) -> str:
    return f"{PREFIX}{len(tenant)}:{tenant}/"


async def _leader(call: Call) -> Hold:
    """Who does the upkeep; how well is not everybody's."""
    for one in await call.service.store.hold(under=UPKEEP):
        if one.name == UPKEEP:
            return Hold(one.name, one.owner, one.until, "")
    return Hold(UPKEEP, "", 0, "")


async def _listed(call: Call, under: str) -> list[Hold]:
    store, tenant = call.service.store, call.tenant_name
    if under:
        check_name("under", under, NAME_MAX)
    if tenant is None:
        return _own_slots(call, await store.hold(under=under))
    if under == UPKEEP:
        leader = await _leader(call)
        return [leader] if leader.owner else []
    if not under.startswith(PREFIX):
        return _own_slots(call, await store.hold(under=bounds.slots_under(under, tenant)))
    seen = [_seen(one, tenant) for one in await store.hold(under=PREFIX)]
    return [one for one in seen if one is not None and one.name.startswith(under)]


def _own_slots(call: Call, found: list[Hold]) -> list[Hold]:
    """Without the slots of scopes that a token for some queues may not act on."""
    if call.caller.queues is None:
        return found
    return [one for one in found if bounds.seen_hold(call, one.name)]


def _seen(one: Hold, tenant: str) -> Hold | None:
    """A worker as a tenant may see it: that it serves this tenant, and nothing of others."""
    try:
        note = _note.decode(one.note).seen_by(tenant)
    except msgspec.MsgspecError:
        return None
    if note is None:
        return None
    name = one.name
    if name.startswith(_own(tenant)):
        name = PREFIX + name.removeprefix(_own(tenant))
    return Hold(name, one.owner, one.until, msgspec.json.encode(note).decode())
