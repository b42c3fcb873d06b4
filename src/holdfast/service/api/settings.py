"""Settings of the remote store: list them by prefix, set them by name. See `storage.py`."""

from __future__ import annotations

from holdfast.core.bounds import PAGE_MAX, SCOPES_MAX
from holdfast.core.ceiling import allowed
from holdfast.core.errors import StaleSetting
from holdfast.core.scope import NO_SETTINGS, decode, encode, scope_of
from holdfast.scopes import ScopeHandle
from holdfast.service.api import permissions
from holdfast.service.api.verbs import verb
from holdfast.service.call import Call
from holdfast.service.rights import Right
from holdfast.store import Put, Setting
from holdfast.stores.remote import wire


@verb(wire.SETTINGS)
async def settings(call: Call, asked: wire.Under) -> list[Setting]:
    """Lists settings under a prefix."""
    return await _listed(call, asked)


async def _listed(call: Call, asked: wire.Under) -> list[Setting]:
    """A page of settings. Without those of scopes that the caller may not see: of the platform, and
    of queues that its token is not for.
    """
    under, after = permissions.settings_under(call, asked.under), asked.after
    store = call.service.store
    if permissions.sees_all(call, under):
        return await store.settings(under=under, after=after, limit=asked.limit)
    found: list[Setting] = []
    for _ in range(SCOPES_MAX // PAGE_MAX):
        page = await store.settings(under=under, after=after, limit=PAGE_MAX)
        found += [one for one in page if permissions.seen_setting(call, one.name)]
        if len(page) < PAGE_MAX or len(found) >= asked.limit:
            break
        after = page[-1].name
    return found[: asked.limit]


@verb(wire.PUT)
async def put(call: Call, asked: wire.Puts) -> list[Setting]:
    """Applies all puts or none."""
    puts = [permissions.put(call, one) for one in asked.puts]
    by = permissions.signed(call, asked.by)
    listed = asked.listed
    if listed is not None:
        permissions.need(call, Right.READ)
        permissions.settings_under(call, listed.under)
    puts = [await _allowed(call, one) for one in puts]
    done = await call.service.store.settings(puts, by=by)
    return done if listed is None else await _listed(call, listed)


async def _allowed(call: Call, one: Put) -> Put:
    """The put with its value adjusted by `ceiling.allowed`, based on the version that it names."""
    name, platform = one.name, call.caller.platform
    scope = scope_of(name)
    if scope is None:
        return one  # Not of a scope: `permissions.put` accepts it from admins only.
    wanted = NO_SETTINGS if one.value is None else decode(name, one.value)
    if platform and wanted.ceiling is None:
        return one
    handle = ScopeHandle(call.service.store, scope)
    before = await handle.get()
    if before.version != one.version:
        raise StaleSetting(field="version", name=name, version=before.version, expected=one.version)
    stored = allowed(before.settings, wanted, platform=platform)
    return Put(name, None if stored == NO_SETTINGS else encode(stored), one.version)
