"""What a caller of the store's verbs may name and do.

Each value of these calls names a tenant. A caller of one tenant may name no other; if no tenant is
named, its own is used. `dispatch.py` checks the arguments of a call. Only the items of a batch are
checked here (`arguments.py` has the rules), because they come from outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.arguments import (
    check_extension,
    check_job,
    check_put,
    check_signal,
    check_transition,
)
from holdfast.core.bounds import ERROR_CHARS_MAX, PAGE_MAX, REASON_MAX
from holdfast.core.check import is_reserved
from holdfast.core.codec import JSON, OBJECT, REFS, json_fault
from holdfast.core.errors import InvalidInput, PayloadTooLarge
from holdfast.core.flow import HEAD, made_from
from holdfast.core.flow import QUEUE as FLOWS
from holdfast.core.job import By, Lease, NewJob, again
from holdfast.core.journal import Signal
from holdfast.core.lifecycle import Transition, clip
from holdfast.core.mapped import (
    UNREADABLE,
    is_mapped,
    is_mapped_codec,
    most_of,
    plain_codec,
    text_most_of,
)
from holdfast.core.schedule import OVER_ALL, Definition, check_made, schedule_of
from holdfast.core.schedule import PREFIX as SCHEDULES
from holdfast.core.schedule import QUEUE as TICKS
from holdfast.core.schedule import TYPE as TICK
from holdfast.core.schedule import decode as decode_schedule
from holdfast.core.schedule import under as schedules_under
from holdfast.core.scope import (
    PLATFORM,
    PREFIX,
    SLOTS,
    TENANT_KINDS,
    Scope,
    ScopeKind,
    scope_of,
    slot_scope_of,
)
from holdfast.core.tick import check_tick
from holdfast.core.tick import is_reserved as is_tick
from holdfast.core.tiers import PREFIX as TIERS
from holdfast.core.tiers import tier_of
from holdfast.dispatch import OF_PLATFORM
from holdfast.service.api import webhook_rules
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Claim, Extension, Find, Put, Ref, Selection, Setting
from holdfast.types import PREFIX as TYPES
from holdfast.webhooks.definition import TYPE as WEBHOOK
from holdfast.webhooks.definition import webhook_of

TRUSTED_CODECS = frozenset({"pickle"})
"""Codecs whose decoding runs code: accepted only from an admin of every tenant."""

_OVER_ALL = (*(f"{PREFIX}{kind.value}/0:" for kind in ScopeKind), TIERS)
"""Prefixes of the settings of the platform: its scopes, whose tenant is empty, and its tiers."""


def need(call: Call, right: Right) -> None:
    if right not in call.caller.rights:
        raise Forbidden(why=f"this token has no right to {right}")


# -- tenants ---------------------------------------------------------------------------------------


def own(call: Call, tenant: str) -> str:
    """The tenant. Raises Forbidden if the caller may not name it."""
    if call.tenant_name is not None and tenant != call.tenant_name:
        raise Forbidden(why="this token is for another tenant")
    return tenant


def one(call: Call, tenant: str | None) -> str | None:
    """None: every tenant, or the caller's own."""
    return call.tenant_name if tenant is None else own(call, tenant)


def several(call: Call, tenants: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if tenants is None:
        return None if call.tenant_name is None else (call.tenant_name,)
    return tuple(own(call, tenant) for tenant in tenants)


def ref(call: Call, one: Ref) -> Ref:
    own(call, one.tenant)
    return one


# -- names of settings and slots -------------------------------------------------------------------


def _scoped(call: Call, scope: Scope) -> None:
    own(call, scope.tenant)
    call.caller.check_scope(scope)


def counted(call: Call, by: ScopeKind, tenant: str | None = None) -> None:
    """Refuses counts of tenants and groups, which span queues, to a token for some queues, and
    counts of the platform to all but the platform.
    """
    caller = call.caller
    if tenant == "" or by in OF_PLATFORM:
        caller.check_platform()
    if by is ScopeKind.TYPE and caller.types is not None:
        raise Forbidden(why="this token is for some types and may not count them all")
    if by is not ScopeKind.QUEUE and call.caller.queues is not None:
        raise Forbidden(why="this token is for some queues and may count only those")


def over_queues(call: Call) -> None:
    """Refuses flows and sources, whose jobs are of many queues and types, to a token for some of
    them.
    """
    if call.caller.queues is not None or call.caller.types is not None:
        why = "this token is for some queues or types, and flows and sources span them"
        raise Forbidden(why=why)


def sees_all(call: Call, under: str) -> bool:
    """Whether the caller may see every setting under a prefix that it may list."""
    caller = call.caller
    if caller.queues is not None:
        return False
    if under.startswith(SCHEDULES) and caller.types is not None:
        return False
    if webhook_rules.is_of_webhooks(under):
        return True  # They are listed only to those who may see them all.
    if caller.platform and caller.types is None:
        return True
    return not any(one.startswith(under) or under.startswith(one) for one in _OVER_ALL)


def seen_setting(call: Call, one: Setting) -> bool:
    """Whether the caller may see this setting in a list."""
    name = one.name
    if name.startswith(SCHEDULES):
        try:
            return may_schedule(call, decode_schedule(name, one.value))
        except InvalidInput:
            return may_schedule(call, None)
    scope = scope_of(name)
    if scope is None:
        return tier_of(name) is None or call.caller.may_scope(PLATFORM)
    return call.caller.may_look(scope)


def seen_hold(call: Call, name: str) -> bool:
    """Whether the caller may see this hold in a list."""
    scope = slot_scope_of(name)
    return scope is None or call.caller.may_scope(scope)


def put(call: Call, one: Put) -> Put:
    """The put, if its scope is one of the caller's, or its schedule. Other settings are for admins
    only.
    """
    scope = scope_of(check_put(one).name)
    if scope is not None:
        _scoped(call, scope)
    elif (schedule := schedule_of(one.name)) is not None:
        _schedule(call, one, schedule[0])
    elif (webhook := webhook_of(one.name)) is not None:
        own(call, webhook[1])
        webhook_rules.check_put(call, one, webhook[0])
    elif call.tenant_name is not None:
        raise Forbidden(why="this token may change only settings of its own tenant")
    elif tier_of(one.name) is not None:
        call.caller.check_scope(PLATFORM)
    else:
        need(call, Right.ADMIN)
    return one


def _schedule(call: Call, one: Put, tenant: str) -> None:
    """A schedule makes jobs, so the caller must be allowed to enqueue them."""
    own(call, tenant)
    if tenant == OVER_ALL:
        call.caller.check_platform()
    if one.value is None:
        return
    need(call, Right.PRODUCE)
    definition = decode_schedule(one.name, one.value)
    # A schedule whose zone is gone pauses itself, which must be possible. It makes no jobs then.
    job = check_made(definition.job if definition.broken else definition.checked().job)
    call.caller.check_queue(job.queue)
    call.caller.check_type(job.type)
    _codec(call, job.codec)
    if job.codec == JSON:
        _json("payload", job.body)


def may_schedule(call: Call, definition: Definition | None) -> bool:
    """Whether the caller may see and change this schedule: its queues and types include the job.
    What cannot be read is for callers of all queues and types.
    """
    caller = call.caller
    if definition is None:
        return caller.queues is None and caller.types is None
    return caller.may_queue(definition.job.queue) and caller.may_type(definition.job.type)


def settings_under(call: Call, under: str) -> str:
    """The prefix. Raises Forbidden if the caller may not list it."""
    if webhook_rules.is_of_webhooks(under):
        webhook_rules.listed(call, under)
    elif call.tenant_name is not None:
        if not under.startswith(schedules_under(call.tenant_name)):
            _inside(under, PREFIX, call.tenant_name)
    elif under.startswith(SCHEDULES):
        pass  # Whoever may read the jobs of every tenant may read what makes them.
    elif under.startswith(_OVER_ALL):
        call.caller.check_platform()
    elif under.startswith(TYPES) and call.caller.platform:
        pass  # It limits types, and so it must know which there are.
    elif not under.startswith(PREFIX):
        need(call, Right.ADMIN)
    return under


def signed(call: Call, by: By | None) -> By | None:
    """The author as given. For a token of one tenant its name is added."""
    if by is None:
        return None
    by = by.checked()
    if call.tenant_name is None:
        return by
    return By(f"{by.author} ({call.caller.name})"[:REASON_MAX], by.reason)


def slot(call: Call, name: str) -> bool:
    """Whether this is the name of a slot. Raises Forbidden if it belongs to another tenant."""
    scope = slot_scope_of(name)
    if scope is not None:
        _scoped(call, scope)
    return scope is not None


def slots_under(under: str, tenant: str) -> str:
    return _inside(under, SLOTS, tenant)


def _inside(under: str, prefix: str, tenant: str) -> str:
    """Includes the length of the tenant's name, so that `acme` is not a prefix of `acme2`."""
    if not any(
        under.startswith(f"{prefix}{kind.value}/{len(tenant)}:{tenant}/") for kind in TENANT_KINDS
    ):
        raise Forbidden(why="this token may read only its own tenant")
    return under


# -- values ----------------------------------------------------------------------------------------


def new_job(call: Call, job: NewJob) -> NewJob:
    """The job, if this caller may enqueue it. A job that is only too large gets its own answer."""
    own(call, job.tenant)
    envelope = job.envelope
    call.caller.check_queue(job.queue)
    call.caller.check_type(envelope.type)
    _codec(call, envelope.codec)
    check_job(job)
    if not isinstance(envelope.body, bytes):
        why = f"must be bytes, not {type(envelope.body).__name__}"
        raise InvalidInput(field="payload", why=why)
    if is_tick(job):
        check_tick(job)
    elif webhook_rules.is_delivery(job):
        webhook_rules.check_delivery(call, job)
    elif (
        is_reserved(job.queue) or is_reserved(envelope.type) or plain_codec(envelope.codec) == REFS
    ):
        _of_flow(call, job)
    if envelope.codec == JSON and len(envelope.body) <= call.service.payload_most(envelope):
        _json("payload", envelope.body)
    return again(job)  # A client chose the id, so it must not be marked as new.


def _of_flow(call: Call, job: NewJob) -> None:
    """Checks a job that a flow is made of: workers make other jobs of what it says, and read the
    results of others.
    """
    over_queues(call)
    if is_mapped_codec(job.envelope.codec):
        # What is in it cannot be seen here, and a map says which codec workers encode its jobs by.
        if is_reserved(job.envelope.type) and not _admin(call):
            why = f"only an admin of every tenant may enqueue an encrypted {job.envelope.type}"
            raise Forbidden(why=why)
        return
    try:
        for codec in made_from(job):
            _codec(call, codec)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError) as error:
        why = f"is not the payload of a {job.envelope.type}: {error}"
        raise InvalidInput(field="payload", why=why) from error


def _json(field: str, body: bytes) -> None:
    """Refuses JSON that could not be inserted into an answer unchanged."""
    if (fault := json_fault(body)) is not None:
        raise InvalidInput(field=field, why=fault)


def _codec(call: Call, codec: str) -> None:
    if codec == OBJECT:
        raise InvalidInput(field="codec", why="an object cannot be sent; name a codec")
    if codec == UNREADABLE:
        raise InvalidInput(field="codec", why="stands for a payload that could not be read")
    if plain_codec(codec) in TRUSTED_CODECS and not _admin(
        call
    ):  # The admin of one tenant does not have every right.
        raise Forbidden(why=f"only an admin of every tenant may enqueue payloads in {codec}")


def _admin(call: Call) -> bool:
    return call.caller.tenant is None and Right.ADMIN in call.caller.rights


def may_lease(call: Call, lease: Lease) -> bool:
    """Whether the caller may get a job of this type."""
    may = lease.job.type != WEBHOOK or webhook_rules.may_send(call)
    return may and call.caller.may_type(lease.job.type)


def claim(call: Call, wish: Claim) -> Claim:
    """The claim, for the caller's tenant and queues."""
    asked = webhook_rules.claimed(call, wish.queues)
    return msgspec.structs.replace(
        wish, tenants=several(call, wish.tenants), queues=queues(call, asked)
    )


def queues(call: Call, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    caller = call.caller
    if asked is not None and not (caller.may_queue(TICKS) and caller.may_type(TICK)):
        # Every worker asks for ticks. One whose token is for something else does without.
        asked = tuple(queue for queue in asked if queue != TICKS)
    if asked is not None and not (caller.may_queue(FLOWS) and caller.may_type(HEAD)):
        asked = tuple(queue for queue in asked if queue != FLOWS)  # Likewise.
    if asked is not None and not asked:
        return asked  # An empty list is not the same as all queues.
    return _of_token(call, asked)


def _of_token(call: Call, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The queues that are asked for, or all of the token. Raises Forbidden for one of others."""
    found = call.caller.queues_of(asked)
    if found is not None and not found:
        raise Forbidden(
            why="this token is for no queue"
        )  # In a selection an empty list would mean all queues.
    return found


def extension(call: Call, one: Extension) -> Extension:
    own(call, one.tenant)
    return check_extension(one)


def transition(call: Call, one: Transition, *, upkeep: bool) -> Transition:
    """Checks the transitions of a worker. `upkeep` needs other rights and acts for all tenants."""
    own(call, one.tenant)
    check_transition(one)
    if not upkeep and (one.token is None or one.lapsed):
        raise Forbidden(why="only the upkeep, with the right admin, may ack expired leases")
    if one.result is not None:
        _result(one.result, call.service.result_most)
    if one.error is not None and len(one.error) > text_most_of(one.error, ERROR_CHARS_MAX):
        return msgspec.structs.replace(one, error=clip(one.error))
    return one


def signal(call: Call, one: Signal) -> Signal:
    own(call, one.tenant)
    check_signal(one)
    return one


def _result(result: object, most: int) -> None:
    if not isinstance(result, bytes):
        raise InvalidInput(field="result", why=f"must be bytes, not {type(result).__name__}")
    if len(result) > most_of(result, most):
        raise PayloadTooLarge(field="result", size=len(result), max=most)


async def results(call: Call, changes: Sequence[Transition]) -> None:
    """Refuses a result that is not JSON for a job in JSON. Reads the job only in that case."""
    odd = [
        one
        for one in changes
        if isinstance(one.result, bytes) and not is_mapped(one.result) and json_fault(one.result)
    ]
    for tenant in {one.tenant for one in odd}:
        ids = tuple({one.id for one in odd if one.tenant == tenant})
        select = Selection(tenant=tenant, ids=ids)
        page = await call.service.store.find(Find(select=select, limit=min(len(ids), PAGE_MAX)))
        in_json = {job.id for job in page.jobs if plain_codec(job.envelope.codec) == JSON}
        for one in odd:
            if one.tenant == tenant and one.id in in_json:
                _json("result", one.result)


def selection(call: Call, select: Selection) -> Selection:
    """The selection, restricted to the caller's tenant and queues."""
    return msgspec.structs.replace(
        select,
        tenant=one(call, select.tenant),
        # Not as in a claim: to leave out a queue that is asked for would select all the others.
        queues=_of_token(call, select.queues or None) or (),
    )
