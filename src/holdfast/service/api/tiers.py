"""Tiers and the platform's defaults: what tenants have unless their own settings say it.

Every route here needs the right platform.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from holdfast import operate
from holdfast.core.errors import InvalidInput
from holdfast.core.scope import PLATFORM
from holdfast.fields import given
from holdfast.service.call import Call
from holdfast.service.tier_wire import TierIn, TierOut, TiersOut
from holdfast.service.wire import DoneOut
from holdfast.tiers import TierHandle, TierState

PARTS = ("ceiling", "queue", "group")


async def every(call: Call) -> TiersOut:
    """All tiers, by name; first the platform's defaults if they are set."""
    call.caller.check_scope(PLATFORM)
    found = await operate.platform(call.service.store).tiers()
    return TiersOut(tiers=[*map(_out, found)])


async def get(call: Call) -> TierOut:
    """What the tier sets, and its version."""
    return _out(await _handle(call).get())


async def change(call: Call) -> TierOut:
    """Changes the named fields only, for all tenants in the tier; makes the tier if there is none.
    With `expect`, fails unless that is the current version.
    """
    handle = _handle(call)
    body: TierIn = call.body
    changes = given(body, "expect")
    for part in PARTS:
        if isinstance(said := getattr(body, part), msgspec.Struct):
            changes[part] = given(said)
    if not changes:
        raise InvalidInput(field="body", why="name at least one field to change")
    expect = None if body.expect is UNSET else body.expect
    return _out(await handle.set(expect=expect, by=call.by, **changes))


async def delete(call: Call) -> DoneOut:
    """Deletes a tier in which no tenant is."""
    await _handle(call).delete(by=call.by)
    return DoneOut(done=1)


def _handle(call: Call) -> TierHandle:
    """The tier of the path, or the defaults."""
    call.caller.check_scope(PLATFORM)
    platform = operate.platform(call.service.store)
    if "tier" in call.request.path_params:
        return platform.tier(call.part("tier"))
    return platform.defaults()


def _out(state: TierState) -> TierOut:
    return TierOut(tier=state.tier, defaults=state.defaults, version=state.version)
