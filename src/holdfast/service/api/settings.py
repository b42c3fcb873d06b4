"""Settings of the remote store: list them by prefix, set them by name. See `storage.py`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import operate
from holdfast.core.bounds import PAGE_MAX, REASON_MAX, SCOPES_MAX
from holdfast.core.ceiling import allowed
from holdfast.core.errors import ScheduleNotFound, StaleSetting
from holdfast.core.job import By
from holdfast.core.schedule import Edit, schedule_of
from holdfast.core.schedule import decode as decode_schedule
from holdfast.core.schedule import encode as encode_schedule
from holdfast.core.scope import NO_SETTINGS, decode, encode, scope_of
from holdfast.definitions import ScheduleState, has_room
from holdfast.schedules import ScheduleHandle
from holdfast.scopes import ScopeHandle
from holdfast.service.api import permissions, setting_permissions
from holdfast.service.api.verbs import verb
from holdfast.service.api.webhook_rules import with_known
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Put, Setting
from holdfast.stores.remote import wire
from holdfast.webhooks import stored
from holdfast.webhooks.definition import PREFIX as WEBHOOKS
from holdfast.webhooks.definition import Webhook, webhook_of
from holdfast.webhooks.definition import decode as decode_webhook
from holdfast.webhooks.definition import encode as encode_webhook


@verb(wire.SETTINGS)
async def settings(call: Call, asked: wire.Under) -> list[Setting]:
    """Lists settings under a prefix."""
    return await _listed(call, asked)


async def _listed(call: Call, asked: wire.Under) -> list[Setting]:
    """A page of settings. Without those of scopes that the caller may not see: of the platform, and
    of queues that its token is not for.
    """
    under, after = setting_permissions.settings_under(call, asked.under), asked.after
    store = call.service.store
    if setting_permissions.sees_all(call, under):
        return await store.settings(under=under, after=after, limit=asked.limit)
    found: list[Setting] = []
    for _ in range(SCOPES_MAX // PAGE_MAX):
        page = await store.settings(under=under, after=after, limit=PAGE_MAX)
        found += [one for one in page if setting_permissions.seen_setting(call, one)]
        if len(page) < PAGE_MAX or len(found) >= asked.limit:
            break
        after = page[-1].name
    return found[: asked.limit]


@verb(wire.PUT)
async def put(call: Call, asked: wire.Puts) -> list[Setting]:
    """Applies all puts or none."""
    puts = [setting_permissions.put(call, one) for one in asked.puts]
    by = permissions.signed(call, asked.by)
    listed = asked.listed
    if listed is not None:
        permissions.need(call, Right.READ)
        setting_permissions.settings_under(call, listed.under)
    puts = [await _allowed(call, one) for one in puts]
    done = await call.service.store.settings(puts, by=by)
    return done if listed is None else await _listed(call, listed)


async def _allowed(call: Call, one: Put) -> Put:
    """The put with its value adjusted by `ceiling.allowed`, based on the version that it names."""
    name, platform = one.name, call.caller.platform
    if (schedule := schedule_of(name)) is not None:
        return await _schedule(call, one, *schedule)
    if (webhook := webhook_of(name)) is not None and webhook[0] == WEBHOOKS:
        return await _webhook(call, one, *webhook[1:])
    scope = scope_of(name)
    if scope is None:
        return one  # Not of a scope: `setting_permissions.put` accepts it from admins only.
    wanted = NO_SETTINGS if one.value is None else decode(name, one.value)
    if platform and wanted.ceiling is None:
        return one
    handle = ScopeHandle(call.service.store, scope)
    before = await handle.get()
    if before.version != one.version:
        raise StaleSetting(field="version", name=name, version=before.version, expected=one.version)
    stored = allowed(before.settings, wanted, platform=platform)
    return Put(name, None if stored == NO_SETTINGS else encode(stored), one.version)


async def _schedule(call: Call, one: Put, tenant: str, name: str) -> Put:
    """The put of a schedule, based on the version that it names: only if the caller may change what
    is stored, if there is room, and with the list of changes as this service knows it.
    """
    try:
        before: ScheduleState | None = await ScheduleHandle(call.service.store, tenant, name).get()
    except ScheduleNotFound:
        before = None
    version = 0 if before is None else before.version
    if before is not None and not setting_permissions.may_schedule(call, before.definition):
        raise Forbidden(why="this token is not for the jobs of this schedule")
    if version != one.version:
        raise StaleSetting(field="version", name=one.name, version=version, expected=one.version)
    if one.value is None:
        return one
    if before is None:
        await has_room(call.service.store, tenant)
    wanted = decode_schedule(one.name, one.value)
    known = () if before is None or before.definition is None else before.definition.edits
    if call.tenant_name is not None:
        edit = await _signed(call, wanted.edits)
        wanted = msgspec.structs.replace(wanted, edits=known).edited(edit)
    return Put(one.name, encode_schedule(wanted), one.version)


async def _signed(call: Call, edits: Sequence[Edit]) -> Edit:
    """The newest entry of a list of changes as this service knows it: who did it, and when. A list
    that is sent empty has one too, so that it cannot be cleared.
    """
    first = edits[0] if edits else Edit(0, call.caller.name, "set")
    by = permissions.signed(call, By(operate.author(first.author), first.reason[:REASON_MAX]))
    assert by is not None
    now = await call.service.store_clock.look()
    return Edit(now, by.author, first.what[:REASON_MAX], by.reason)


async def _webhook(call: Call, one: Put, tenant: str, name: str) -> Put:
    """The put of a webhook: only if there is room, and with the list of changes as this service
    knows it.
    """
    store = call.service.store
    before = await stored.state(store, tenant, name)
    if one.value is None:
        return one
    if before is None:
        await stored.has_room(store, tenant)
    wanted = decode_webhook(Webhook, one.value)
    if call.tenant_name is not None:
        edit = await _signed(call, wanted.edits)
        known = None if before is None else before.definition
        wanted = with_known(known, wanted)
        if known is None:
            wanted = msgspec.structs.replace(wanted, made_by=edit.author, made_at=edit.at, edits=())
        wanted = wanted.edited(edit)
    return Put(one.name, encode_webhook(wanted), one.version)
