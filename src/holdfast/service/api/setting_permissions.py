"""What a caller of the store's verbs may name and do with settings: of scopes, tiers, schedules and
webhooks. `permissions.py` has the other values.
"""

from __future__ import annotations

from holdfast.arguments import check_put
from holdfast.core.codec import JSON
from holdfast.core.errors import InvalidInput
from holdfast.core.schedule import OVER_ALL, Definition, check_made, schedule_of
from holdfast.core.schedule import PREFIX as SCHEDULES
from holdfast.core.schedule import decode as decode_schedule
from holdfast.core.schedule import under as schedules_under
from holdfast.core.scope import PLATFORM, PREFIX, ScopeKind, scope_of
from holdfast.core.tiers import PREFIX as TIERS
from holdfast.core.tiers import tier_of
from holdfast.service.api import webhook_rules
from holdfast.service.api.permissions import check_codec, check_json, inside, need, own, scoped
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Put, Setting
from holdfast.types import PREFIX as TYPES
from holdfast.webhooks.definition import webhook_of

_OVER_ALL = (*(f"{PREFIX}{kind.value}/0:" for kind in ScopeKind), TIERS)
"""Prefixes of the settings of the platform: its scopes, whose tenant is empty, and its tiers."""


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


def put(call: Call, one: Put) -> Put:
    """The put, if its scope is one of the caller's, or its schedule. Other settings are for admins
    only.
    """
    scope = scope_of(check_put(one).name)
    if scope is not None:
        scoped(call, scope)
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
    check_codec(call, job.codec)
    if job.codec == JSON:
        check_json("payload", job.body)


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
            inside(under, PREFIX, call.tenant_name)
    elif under.startswith(SCHEDULES):
        pass  # Whoever may read the jobs of every tenant may read what makes them.
    elif under.startswith(_OVER_ALL):
        call.caller.check_platform()
    elif under.startswith(TYPES) and call.caller.platform:
        pass  # It limits types, and so it must know which there are.
    elif not under.startswith(PREFIX):
        need(call, Right.ADMIN)
    return under
