"""Scopes of the platform: limits, rates and pauses of the store, of a queue and of a job type over
all tenants. Every route here needs the right platform.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from holdfast import operate
from holdfast.core.bounds import QUEUE_MAX, TYPE_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput
from holdfast.fields import given
from holdfast.scopes import ScopeHandle, ScopeState
from holdfast.service.api import scopes
from holdfast.service.call import Call
from holdfast.service.scope_wire import PauseIn, PlatformIn, PlatformOut, ScopesOut, TallyOut


async def every(call: Call) -> ScopesOut:
    """The scopes of the platform with settings."""
    return await scopes.listed(call, "")


async def get(call: Call) -> PlatformOut:
    """Limit, rate and pause over all tenants, their version, and the running jobs."""
    handle = _handle(call)
    return await _out(handle, await handle.get())


async def change(call: Call) -> PlatformOut:
    """Changes the named fields only. With `expect`, fails unless that is the current version."""
    handle = _handle(call)
    body: PlatformIn = call.body
    changes = given(body, "expect")
    if not changes:
        raise InvalidInput(field="body", why="name at least one field to change")
    expect = None if body.expect is UNSET else body.expect
    return await _out(handle, await handle.set(expect=expect, by=call.by, **changes))


async def counts(call: Call) -> TallyOut:
    """The running jobs of all tenants together; none are counted if nothing is set."""
    return scopes.tally_out(await _handle(call).counts())


async def pause(call: Call) -> PlatformOut:
    """Stops claims of all tenants until it is resumed. Running jobs continue."""
    handle = _handle(call)
    body: PauseIn = call.body
    return await _out(handle, await handle.pause(body.reason, call.by.author))


async def resume(call: Call) -> PlatformOut:
    """Ends a pause over all tenants. Does nothing if there is none."""
    handle = _handle(call)
    return await _out(handle, await handle.resume(call.by.author, call.by.reason))


def _handle(call: Call) -> ScopeHandle:
    """The scope of the path. Raises Forbidden as `Caller.check_scope` says."""
    whole, params = operate.platform(call.service.store), call.request.path_params
    handle: ScopeHandle = whole
    if "queue" in params:
        handle = whole.queue(check_name("queue", call.part("queue"), QUEUE_MAX))
    elif "type" in params:
        handle = whole.type(check_name("type", call.part("type"), TYPE_MAX))
    call.caller.check_scope(handle.scope)
    return handle


async def _out(handle: ScopeHandle, state: ScopeState) -> PlatformOut:
    told = scopes.state_out(state)
    counts = (await handle.counts()).counts
    return PlatformOut(**msgspec.structs.asdict(told), counts=counts)
