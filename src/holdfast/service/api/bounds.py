"""What a caller of the store's verbs may name, and which values are sane.

The verbs are the contract's own, so that a tenant is named by each value. A caller that is for one
tenant may name no other; where no tenant is named at all, it means its own. Names, sizes and
numbers are checked here because the library, which checks them where they are born, runs on the
other side of the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from holdfast.check import check_name, check_nonce, check_token, check_whole
from holdfast.clock import SECOND
from holdfast.codec import JSON, OBJECT, json_fault
from holdfast.errors import InvalidInput, PayloadTooLarge
from holdfast.job import By, NewJob, Rules, State, again, check_new, check_rules
from holdfast.lifecycle import Transition, clip
from holdfast.limits import (
    BATCH_MAX,
    DELAY_S_MAX,
    GROUP_MAX,
    ID_MAX,
    INSTANT_MAX,
    KEY_MAX,
    LEASE_S_MAX,
    NAME_MAX,
    PAGE_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PROGRESS_CHARS_MAX,
    QUEUE_MAX,
    REASON_MAX,
    TAG_MAX,
    TENANT_MAX,
    TYPE_MAX,
    WORKER_MAX,
    within,
)
from holdfast.scope import PREFIX, SLOTS, Scope, ScopeKind, scope_of, slot_scope_of
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Change, Claim, Extension, Find, Put, Ref, Selection

WHOLE_MAX = 2**63 - 1
DELAY_MAX = int(DELAY_S_MAX) * SECOND
LEASE_MAX = int(LEASE_S_MAX) * SECOND
CODEC_MAX = 64
TRUSTED_CODECS = frozenset({"pickle"})
"""Reading them runs code: only from those who may do everything anyway."""
SETTLED = frozenset(
    {State.COMPLETED, State.FAILED, State.RETRYING, State.ENQUEUED, State.SCHEDULED}
)
"""What an ack can make of a job."""

USUAL = Rules()

T = TypeVar("T")


def need(call: Call, right: Right) -> None:
    if right not in call.caller.rights:
        raise Forbidden(why=f"this token has no right to {right}")


# -- tenants ---------------------------------------------------------------------------------------


def own(call: Call, tenant: str) -> str:
    """The tenant, if the caller may name it."""
    if call.tenant_name is not None and tenant != call.tenant_name:
        raise Forbidden(why="this token is for another tenant")
    return check_name("tenant", tenant, TENANT_MAX)


def one(call: Call, tenant: str | None) -> str | None:
    """None is every tenant, or the caller's own."""
    return call.tenant_name if tenant is None else own(call, tenant)


def several(call: Call, tenants: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if tenants is None:
        return None if call.tenant_name is None else (call.tenant_name,)
    within("tenants", len(tenants), BATCH_MAX)
    return tuple(own(call, tenant) for tenant in tenants)


def ref(call: Call, one: Ref) -> Ref:
    own(call, one.tenant)
    check_name("id", one.id, ID_MAX)
    return one


# -- names of settings and slots -------------------------------------------------------------------


def _scoped(call: Call, scope: Scope) -> None:
    own(call, scope.tenant)
    call.caller.check_scope(scope)


def counted(call: Call, by: ScopeKind) -> None:
    """Counts of tenants and groups are those of all their queues."""
    if by is not ScopeKind.QUEUE and call.caller.queues is not None:
        raise Forbidden(why="this token is for some queues; it may count those only")


def seen_setting(call: Call, name: str) -> bool:
    """Whether the caller may read a setting of this name, listed with others."""
    scope = scope_of(name)
    return scope is None or call.caller.may_look(scope)


def seen_hold(call: Call, name: str) -> bool:
    """The same of a hold."""
    scope = slot_scope_of(name)
    return scope is None or call.caller.may_scope(scope)


def put(call: Call, one: Put) -> Put:
    """A put within the caller's scopes. Other settings are the product's own: for admins."""
    check_whole("version", one.version, 0, WHOLE_MAX)
    scope = scope_of(one.checked().name)
    if scope is not None:
        _scoped(call, scope)
    elif call.tenant_name is not None:
        raise Forbidden(why="this token sets only what is of its own tenant")
    else:
        need(call, Right.ADMIN)
    return one


def settings_under(call: Call, under: str) -> str:
    """A prefix that the caller may list."""
    prefix(under)
    if call.tenant_name is not None:
        _inside(under, PREFIX, call.tenant_name)
    elif not under.startswith(PREFIX):
        need(call, Right.ADMIN)
    return under


def after(name: str) -> str:
    """The last name of the page before."""
    return check_name("after", name, NAME_MAX) if name else name


def signed(call: Call, by: By | None) -> By | None:
    """Who acts, in the caller's own words; a token of one tenant signs with its name besides."""
    if by is None:
        return None
    by = by.checked()
    if call.tenant_name is None:
        return by
    return By(f"{by.author} ({call.caller.name})"[:REASON_MAX], by.reason)


def slot(call: Call, name: str) -> bool:
    """Whether this is the name of a slot; Forbidden when it is another tenant's."""
    scope = slot_scope_of(name)
    if scope is not None:
        _scoped(call, scope)
    return scope is not None


def slots_under(under: str, tenant: str) -> str:
    return _inside(prefix(under), SLOTS, tenant)


def _inside(under: str, prefix: str, tenant: str) -> str:
    """The length before a tenant's name keeps `acme` from being a prefix of `acme2`."""
    if not any(
        under.startswith(f"{prefix}{kind.value}/{len(tenant)}:{tenant}/") for kind in ScopeKind
    ):
        raise Forbidden(why="this token sees only what is of its own tenant")
    return under


def prefix(under: str) -> str:
    return check_name("under", under, NAME_MAX) if under else under


# -- values ----------------------------------------------------------------------------------------


def new_job(call: Call, job: NewJob) -> NewJob:
    """A job that may be enqueued by this caller; one that is only too large has its own answer."""
    own(call, job.tenant)
    envelope, rules = job.envelope, job.rules
    call.caller.check_queue(check_name("queue", job.queue, QUEUE_MAX))
    call.caller.check_type(check_name("type", envelope.type, TYPE_MAX))
    _codec(call, check_name("codec", envelope.codec, CODEC_MAX))
    if not isinstance(envelope.body, bytes):
        why = f"must be bytes, not {type(envelope.body).__name__}"
        raise InvalidInput(field="payload", why=why)
    if envelope.codec == JSON and len(envelope.body) <= call.service.payload_max:
        _json("payload", envelope.body)
    check_new(job)
    check_whole("delay_us", job.delay_us, 0, DELAY_MAX)
    _optional("ttl_us", job.ttl_us, 1, DELAY_MAX)
    if rules != USUAL:  # Nearly all are, and checking a retry policy takes longer than the rest.
        check_rules(rules)
    if job.origin is not None:
        check_name("origin", job.origin, ID_MAX)
    return again(job)  # That an id is new is nobody's word but ours: it was chosen outside.


def _json(field: str, body: bytes) -> None:
    """Refuses what could not go into an answer as it is."""
    if (fault := json_fault(body)) is not None:
        raise InvalidInput(field=field, why=fault)


def _codec(call: Call, codec: str) -> None:
    if codec == OBJECT:
        raise InvalidInput(field="codec", why="an object cannot travel; name a codec")
    admin = call.caller.tenant is None and Right.ADMIN in call.caller.rights
    if codec in TRUSTED_CODECS and not admin:  # A tenant's own admin may not do everything.
        raise Forbidden(why=f"only an admin of every tenant may enqueue payloads in {codec}")


def claim(call: Call, wish: Claim) -> Claim:
    """The claim, for the caller's tenant and queues."""
    check_name("worker", wish.worker, WORKER_MAX)
    check_nonce("nonce", wish.nonce)
    check_whole("lease_us", wish.lease_us, 0, LEASE_MAX)
    _names("exclude_groups", wish.exclude_groups, GROUP_MAX)
    return msgspec.structs.replace(
        wish, tenants=several(call, wish.tenants), queues=queues(call, wish.queues)
    )


def queues(call: Call, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if asked is not None:
        within("queues", len(asked), BATCH_MAX)
        _names("queues", asked, QUEUE_MAX)
        if not asked:
            return asked  # None at all: not the same as all of them.
    found = call.caller.queues_of(asked)
    if found is not None and not found:
        raise Forbidden(why="this token is for no queue")  # To a selection, none would be all.
    return found


def extension(call: Call, one: Extension) -> Extension:
    own(call, one.tenant)
    check_name("id", one.id, ID_MAX)
    check_token("token", one.token)
    check_whole("lease_us", one.lease_us, 0, LEASE_MAX)
    if one.progress is not None and len(one.progress) > PROGRESS_CHARS_MAX:
        why = f"has {len(one.progress)} characters, at most {PROGRESS_CHARS_MAX}"
        raise InvalidInput(field="progress", why=why)
    return one


def transition(call: Call, one: Transition, *, upkeep: bool) -> Transition:
    """What a worker may do with its lease; `upkeep` acts by other rights, and for all tenants."""
    own(call, one.tenant)
    check_name("id", one.id, ID_MAX)
    if one.token is not None:
        check_token("token", one.token)
    if not upkeep and (one.token is None or one.lapsed):
        raise Forbidden(why="what lapsed is for upkeep to settle, with the right to admin")
    if one.to not in SETTLED:
        raise InvalidInput(field="to", why=f"an ack cannot make a job {one.to.value}")
    if one.give_back and one.to not in (State.ENQUEUED, State.SCHEDULED):
        raise InvalidInput(field="give_back", why="is for a job that goes back to its queue")
    check_whole("delay_us", one.delay_us, 0, DELAY_MAX)
    _optional("run_at", one.run_at, 0, INSTANT_MAX)
    if one.result is not None:
        _result(one.result, call.service.config.result_max)
    if one.error is not None and len(one.error) > len(short := clip(one.error)):
        return msgspec.structs.replace(one, error=short)
    return one


def _result(result: object, most: int) -> None:
    if not isinstance(result, bytes):
        raise InvalidInput(field="result", why=f"must be bytes, not {type(result).__name__}")
    if len(result) > most:
        raise PayloadTooLarge(field="result", size=len(result), max=most)


async def results(call: Call, changes: Sequence[Transition]) -> None:
    """Refuses results in no JSON for jobs in JSON. Only what is no JSON at all asks the store."""
    odd = [one for one in changes if isinstance(one.result, bytes) and json_fault(one.result)]
    for tenant in {one.tenant for one in odd}:
        ids = tuple({one.id for one in odd if one.tenant == tenant})
        select = Selection(tenant=tenant, ids=ids)
        page = await call.service.store.find(Find(select=select, limit=min(len(ids), PAGE_MAX)))
        in_json = {job.id for job in page.jobs if job.envelope.codec == JSON}
        for one in odd:
            if one.tenant == tenant and one.id in in_json:
                _json("result", one.result)


def selection(call: Call, select: Selection) -> Selection:
    """The selection, of the caller's tenant and queues."""
    for field, names, most in (
        ("ids", select.ids, ID_MAX),
        ("types", select.types, TYPE_MAX),
        ("groups", select.groups, GROUP_MAX),
        ("tags", select.tags, TAG_MAX),
    ):
        _names(field, names, most)
    if select.key is not None:
        check_name("key", select.key, KEY_MAX)
    _optional("created_from", select.created_from, 0, WHOLE_MAX)
    _optional("created_before", select.created_before, 0, WHOLE_MAX)
    _optional("failed_from", select.failed_from, 0, WHOLE_MAX)
    _optional("failed_before", select.failed_before, 0, WHOLE_MAX)
    return msgspec.structs.replace(
        select,
        tenant=one(call, select.tenant),
        queues=queues(call, select.queues or None) or (),
    )


def cursor(value: int | None, least: int = 0) -> None:
    _optional("after", value, least, WHOLE_MAX)


def length(field: str, value: int) -> None:
    check_whole(field, value, 0, DELAY_MAX)


def step(change: Change) -> None:
    """What a change sets must be possible."""
    check_whole("priority", change.priority, PRIORITY_MIN, PRIORITY_MAX)
    length("delay_us", change.delay_us)
    _optional("run_at", change.run_at, 0, INSTANT_MAX)


def _optional(field: str, value: int | None, least: int, most: int) -> None:
    if value is not None:
        check_whole(field, value, least, most)


def _names(field: str, names: Iterable[str], most: int) -> None:
    for name in names:
        check_name(field, name, most)
