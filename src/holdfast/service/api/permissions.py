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
    check_signal,
    check_transition,
)
from holdfast.core.bounds import ERROR_CHARS_MAX, REASON_MAX
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
from holdfast.core.schedule import QUEUE as TICKS
from holdfast.core.schedule import TYPE as TICK
from holdfast.core.scope import (
    SLOTS,
    TENANT_KINDS,
    Scope,
    ScopeKind,
    slot_scope_of,
)
from holdfast.core.tick import check_tick
from holdfast.core.tick import is_reserved as is_tick
from holdfast.dispatch import OF_PLATFORM
from holdfast.lookup import find_jobs
from holdfast.service.api import webhook_rules
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Claim, Extension, Ref, Selection
from holdfast.webhooks.definition import TYPE as WEBHOOK

TRUSTED_CODECS = frozenset({"pickle"})
"""Codecs whose decoding runs code: accepted only from an admin of every tenant."""


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


def scoped(call: Call, scope: Scope) -> None:
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


def seen_hold(call: Call, name: str) -> bool:
    """Whether the caller may see this hold in a list."""
    scope = slot_scope_of(name)
    return scope is None or call.caller.may_scope(scope)


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
        scoped(call, scope)
    return scope is not None


def slots_under(under: str, tenant: str) -> str:
    return inside(under, SLOTS, tenant)


def inside(under: str, prefix: str, tenant: str) -> str:
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
    check_codec(call, envelope.codec)
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
        check_json("payload", envelope.body)
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
            check_codec(call, codec)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, TypeError) as error:
        why = f"is not the payload of a {job.envelope.type}: {error}"
        raise InvalidInput(field="payload", why=why) from error


def check_json(field: str, body: bytes) -> None:
    """Refuses JSON that could not be inserted into an answer unchanged."""
    if (fault := json_fault(body)) is not None:
        raise InvalidInput(field=field, why=fault)


def check_codec(call: Call, codec: str) -> None:
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
        jobs = await find_jobs(call.service.store, tenant, ids)
        in_json = {job.id for job in jobs if plain_codec(job.envelope.codec) == JSON}
        for one in odd:
            if one.tenant == tenant and one.id in in_json:
                check_json("result", one.result)


def selection(call: Call, select: Selection) -> Selection:
    """The selection, restricted to the caller's tenant and queues."""
    return msgspec.structs.replace(
        select,
        tenant=one(call, select.tenant),
        # Not as in a claim: to leave out a queue that is asked for would select all the others.
        queues=_of_token(call, select.queues or None) or (),
    )
