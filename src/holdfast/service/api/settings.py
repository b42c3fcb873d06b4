"""Settings over the wire: whoever lists or sets them, by prefix and by name. See `storage.py`."""

from __future__ import annotations

from holdfast.ceiling import allowed
from holdfast.errors import StaleSetting
from holdfast.scope import NO_SETTINGS, decode, encode, scope_of
from holdfast.scopes import ScopeHandle
from holdfast.service.api import bounds
from holdfast.service.api.verbs import verb
from holdfast.service.call import Call
from holdfast.service.rights import Right
from holdfast.store import Put, Setting
from holdfast.stores.remote import wire


@verb(wire.SETTINGS)
async def settings(call: Call, asked: wire.Under) -> list[Setting]:
    """Settings under a prefix."""
    return await _listed(call, asked.under)


async def _listed(call: Call, under: str) -> list[Setting]:
    found = await call.service.store.settings(under=bounds.settings_under(call, under))
    if call.caller.queues is None:
        return found
    return [one for one in found if bounds.seen_setting(call, one.name)]


@verb(wire.PUT)
async def put(call: Call, asked: wire.Puts) -> list[Setting]:
    """Sets names, all or none."""
    puts = [bounds.put(call, one) for one in asked.puts]
    if asked.under is not None:
        bounds.need(call, Right.READ)
        bounds.settings_under(call, asked.under)
    puts = [await _allowed(call, one) for one in puts]
    if call.caller.queues is None:
        return await call.service.store.settings(puts, under=asked.under)
    done = await call.service.store.settings(puts)
    return done if asked.under is None else await _listed(call, asked.under)


async def _allowed(call: Call, one: Put) -> Put:
    """The put with what `ceiling.allowed` makes of it, from the very version that it names."""
    name, platform = one.name, call.caller.platform
    scope = scope_of(name)
    if scope is None:
        return one  # Not of a scope: `bounds.put` let only admins through.
    wanted = NO_SETTINGS if one.value is None else decode(name, one.value)
    if platform and wanted.ceiling is None:
        return one
    handle = ScopeHandle(call.service.store, scope)
    before = await handle.get()
    if before.version != one.version:
        raise StaleSetting(field="version", name=name, version=before.version, expected=one.version)
    stored = allowed(before.settings, wanted, platform=platform)
    return Put(name, None if stored == NO_SETTINGS else encode(stored), one.version)
