"""Scopes: counts, limits, weights, pauses and slots of the tenant, its queues and its groups."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import UNSET, Meta

from holdfast import operate
from holdfast.core.bounds import GROUP_MAX, ID_MAX, NAME_MAX, PAGE_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput
from holdfast.core.scope import ScopeKind
from holdfast.fields import Strict, given
from holdfast.listings import each_configured
from holdfast.scopes import ALIVE, GroupHandle, ScopeHandle, ScopeState, Slot
from holdfast.service.api.jobs import cursor
from holdfast.service.api.permissions import counted
from holdfast.service.call import Call
from holdfast.service.problems import NotFound
from holdfast.service.render import when
from holdfast.service.rights import Forbidden
from holdfast.service.scope_wire import (
    CeilingIn,
    GroupRulesIn,
    PauseIn,
    ScopeIn,
    ScopeOut,
    ScopesOut,
    SlotIn,
    SlotOut,
    SlotsOut,
    TalliesOut,
    TallyOut,
)
from holdfast.service.shapes import Out
from holdfast.service.tier_wire import EffectiveOut, EffectivesOut
from holdfast.service.wire import DoneOut
from holdfast.store import Find, Ref, Selection, Tally

CANCEL_STEP = 500
"""Jobs in one step of canceling a group."""


# -- counts ----------------------------------------------------------------------------------------


async def queues(call: Call) -> TalliesOut:
    """The number of jobs of each queue in each state."""
    found = await call.view.counts()
    return TalliesOut(scopes=[tally_out(one) for one in found if call.caller.may_queue(one.queue)])


class Paging(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: str | None = None
    """The last name of the previous page."""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


async def groups(call: Call) -> TalliesOut:
    """The groups with jobs or slots, by name."""
    counted(call, ScopeKind.GROUP)
    query: Paging = call.query
    if query.after is not None:
        check_name("after", query.after, GROUP_MAX)
    found = await call.view.groups(after=query.after, limit=query.limit)
    more = found[-1].queue if len(found) == query.limit else None
    return TalliesOut(scopes=[tally_out(one) for one in found], cursor=more)


async def counts(call: Call) -> TallyOut:
    """The number of jobs of a scope in each state."""
    return tally_out(await _own(call).counts())


def tally_out(tally: Tally) -> TallyOut:
    return TallyOut(
        name=tally.queue,
        counts=tally.counts,
        oldest_at=when(tally.oldest_at),
        slots=tally.slots,
    )


# -- settings --------------------------------------------------------------------------------------


class Listing(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    after: str | None = None
    """The cursor of the previous page."""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX

    def start(self) -> str:
        return "" if self.after is None else check_name("after", self.after, NAME_MAX)


async def every(call: Call) -> ScopesOut:
    """The scopes of the tenant with settings."""
    return await listed(call, call.tenant)


async def listed(call: Call, tenant: str) -> ScopesOut:
    """A page of the scopes of a tenant, or of the platform if it is empty."""
    query: Listing = call.query
    found: list[ScopeState] = []
    async for state in each_configured(call.service.store, tenant, query.start()):
        if not call.caller.may_look(state.scope):
            continue
        if len(found) == query.limit:
            return ScopesOut(scopes=[*map(state_out, found)], cursor=found[-1].scope.name)
        found.append(state)
    return ScopesOut(scopes=[*map(state_out, found)])


async def get(call: Call) -> ScopeOut:
    """Limits, rate, weight and pause of a scope, and their version."""
    return state_out(await _handle(call).get())


async def effective(call: Call) -> EffectivesOut:
    """Each value that counts for a scope, and the layer that gave it."""
    handle = _handle(call)
    if not call.caller.may_look(handle.scope):
        raise Forbidden(why="this token may not read the limits of this scope")
    found = await handle.effective()
    return EffectivesOut(
        effective={
            field: EffectiveOut(value=each.value, layer=each.layer, ceiling=each.ceiling)
            for field, each in found.items()
        }
    )


async def change(call: Call) -> ScopeOut:
    """Changes the named fields only. With `expect`, fails unless that is the current version."""
    handle = _own(call)
    body: ScopeIn = call.body
    changes = given(body, "expect")
    for part in ("groups", "ceiling"):
        if isinstance(said := getattr(body, part), GroupRulesIn | CeilingIn):
            changes[part] = given(said)
    if not changes:
        raise InvalidInput(field="body", why="name at least one field to change")
    expect = None if body.expect is UNSET else body.expect
    return state_out(await handle.set(expect=expect, by=call.by, **changes))


async def pause(call: Call) -> ScopeOut:
    """Stops claims from the scope until it is resumed. Running jobs continue."""
    body: PauseIn = call.body
    return state_out(await _own(call).pause(body.reason, call.caller.name))


async def resume(call: Call) -> ScopeOut:
    """Ends a pause. Does nothing if there is none."""
    return state_out(await _own(call).resume(call.by.author, call.by.reason))


def state_out(state: ScopeState) -> ScopeOut:
    scope = state.scope
    return ScopeOut(
        kind=scope.kind, name=scope.part, settings=state.settings, version=state.version
    )


def _handle(call: Call) -> ScopeHandle:
    """The scope of the path, to read its settings."""
    return ScopeHandle(call.service.store, call.scope(), platform=call.caller.platform)


def _own(call: Call) -> ScopeHandle:
    """The scope of the path, to act on it. Raises Forbidden as `Caller.check_scope` says."""
    handle = _handle(call)
    call.caller.check_scope(handle.scope)
    return handle


# -- slots -----------------------------------------------------------------------------------------


async def slots(call: Call) -> SlotsOut:
    """The slots that are held now."""
    query: Listing = call.query
    found = await _own(call).slot_page(query.start(), query.limit)
    more = found[-1].id if len(found) == query.limit else None
    return SlotsOut(slots=[_slot(one) for one in found], cursor=more)


async def push_slot(call: Call) -> SlotOut:
    """Takes a slot for a time, or renews it."""
    body: SlotIn = call.body
    id = check_name("slot", call.part("slot"), ID_MAX)
    return _slot(await _own(call).push_slot(id, body.seconds, note=body.note))


async def remove_slot(call: Call) -> SlotOut:
    """Releases a slot. It is no error if the slot is not held."""
    id = check_name("slot", call.part("slot"), ID_MAX)
    await _own(call).remove_slot(id)
    return SlotOut(id=id)


def _slot(slot: Slot) -> SlotOut:
    return SlotOut(id=slot.id, until=when(slot.until), note=slot.note)


# -- groups ----------------------------------------------------------------------------------------


class Step(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset()
    cursor: str | None = None


async def cancel_group(call: Call) -> DoneOut:
    """Cancels the jobs of a group, one bounded step per call. Call again with the cursor until
    there is none.
    """
    scope = call.scope()
    if scope.kind is not ScopeKind.GROUP:
        raise NotFound(what="cancel of a scope other than a group")
    group = GroupHandle(call.service.store, scope)
    after = None if call.query.cursor is None else cursor(call.query.cursor)
    page = await call.service.store.find(
        Find(
            select=Selection(
                tenant=scope.tenant,
                queues=call.caller.queues or (),
                groups=(group.scope.part,),
                states=ALIVE,
            ),
            after=after,
            limit=CANCEL_STEP,
            newest_first=False,
        )
    )
    refs = [Ref(job.tenant, job.id) for job in page.jobs]
    done = (
        sum(one.canceled for one in await call.service.store.cancel(refs, by=call.by))
        if refs
        else 0
    )
    return DoneOut(done=done, cursor=None if page.cursor is None else str(page.cursor))


# -- load ------------------------------------------------------------------------------------------


class LoadQuery(Strict):
    LISTS: ClassVar[frozenset[str]] = frozenset({"queue"})
    queue: tuple[str, ...] = ()
    waiting_per_slot: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    at_least: Annotated[int, Meta(ge=0, le=10_000)] = 0
    at_most: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


class LoadOut(Out):
    """For autoscalers: the backlog, the present workers, and the number of workers needed."""

    runnable: int
    waiting: int
    oldest_wait_s: float
    workers: int
    running: int
    slots: int
    wanted: int
    busy: float
    whole: bool = True
    """False if there are more queues or groups than one call counts."""


async def load(call: Call) -> LoadOut:
    """The backlog and the number of workers that it needs, for autoscalers."""
    query: LoadQuery = call.query
    found = await operate.load(
        call.service.store,
        tenants=(call.tenant,),
        queues=call.caller.queues_of(query.queue or None),
        waiting_per_slot=query.waiting_per_slot,
        at_least=query.at_least,
        at_most=query.at_most,
        own=call.caller.tenant is not None,
        now=await call.service.store_clock.look(),
    )
    return LoadOut(
        runnable=found.runnable,
        waiting=found.waiting,
        oldest_wait_s=found.oldest_wait_s,
        workers=found.workers,
        running=found.running,
        slots=found.slots,
        wanted=found.wanted,
        busy=found.busy,
        whole=found.whole,
    )
