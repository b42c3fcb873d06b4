"""Stored webhooks: how they are read, listed, paused and marked as failing."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

import msgspec

from holdfast.core.bounds import PAGE_MAX, REASON_MAX
from holdfast.core.clock import SECOND, Micros
from holdfast.core.edge_bounds import WEBHOOK_NOTE_MAX, WEBHOOKS_MAX
from holdfast.core.errors import InvalidInput, StaleSetting, TenantFull
from holdfast.core.job import By
from holdfast.core.redact import Redacted
from holdfast.core.schedule import ITSELF, Edit, Paused
from holdfast.core.scope import Scope, ScopeKind
from holdfast.scopes import ScopeHandle
from holdfast.store import Put, Setting, Store
from holdfast.webhooks.definition import (
    CURSOR_PREFIX,
    HEALTH_PREFIX,
    PREFIX,
    SECRET_PREFIX,
    Health,
    Position,
    Secrets,
    Webhook,
    decode,
    encode,
    group_of,
    name_of,
    under,
    webhook_of,
)

FAILURES = 5
"""Failures in a row before a webhook pauses itself, however long they took."""
HOUR: Micros = 3600 * SECOND
T = TypeVar("T", Webhook, Secrets, Position, Health)


class WebhookState(Redacted, msgspec.Struct, frozen=True):
    """A webhook, and its version for `set(expect=...)`."""

    tenant: str
    name: str
    definition: Webhook | None
    """None if the stored setting cannot be read."""
    version: int
    fault: str | None = None
    """Why it cannot be read."""
    secret: str | None = None
    """Its new secret, only in the answer of the call that made it."""

    @property
    def paused(self) -> Paused | None:
        return None if self.definition is None else self.definition.paused


def state_of(setting: Setting) -> WebhookState:
    """The webhook of a setting, also of one that cannot be read."""
    found = webhook_of(setting.name)
    assert found is not None
    _, tenant, name = found
    try:
        definition = decode(Webhook, setting.value)
    except InvalidInput as error:
        return WebhookState(tenant, name, None, setting.version, error.why)  # type: ignore[arg-type]
    return WebhookState(tenant, name, definition, setting.version)


async def one(store: Store, name: str) -> Setting | None:
    """The setting of this name."""
    # The shortest name with this prefix comes first.
    for setting in await store.settings(under=name, limit=1):
        if setting.name == name:
            return setting
    return None


async def read(
    store: Store, kind: type[T], tenant: str, webhook: str, prefix: str
) -> tuple[T | None, int]:
    """A value of a webhook, and its version; None and 0 if there is none. One that cannot be read
    counts as none, with its version, so that it can be replaced.
    """
    setting = await one(store, name_of(tenant, webhook, prefix))
    if setting is None:
        return None, 0
    with suppress(InvalidInput):
        return decode(kind, setting.value), setting.version
    return None, setting.version


async def state(store: Store, tenant: str, webhook: str) -> WebhookState | None:
    setting = await one(store, name_of(tenant, webhook))
    return None if setting is None else state_of(setting)


async def secrets_of(store: Store, tenant: str, webhook: str) -> tuple[Secrets | None, int]:
    return await read(store, Secrets, tenant, webhook, SECRET_PREFIX)


async def position_of(store: Store, tenant: str, webhook: str) -> tuple[Position | None, int]:
    return await read(store, Position, tenant, webhook, CURSOR_PREFIX)


async def health_of(store: Store, tenant: str, webhook: str) -> tuple[Health | None, int]:
    return await read(store, Health, tenant, webhook, HEALTH_PREFIX)


async def webhooks_page(
    store: Store, tenant: str | None, *, after: str = "", limit: int = PAGE_MAX
) -> tuple[list[WebhookState], str | None]:
    """Webhooks of a tenant, or of all, by name; and the cursor of the next page, if there may be
    one.
    """
    page = await store.settings(under=under(tenant), after=after, limit=limit)
    found = []
    for setting in page:
        with suppress(InvalidInput):  # Its name was made by something else.
            found.append(state_of(setting))
    return found, page[-1].name if page and len(page) == limit else None


async def has_room(store: Store, tenant: str) -> None:
    """Raises TenantFull if the tenant has WEBHOOKS_MAX webhooks."""
    page = await store.settings(under=under(tenant), limit=WEBHOOKS_MAX)
    if len(page) >= WEBHOOKS_MAX:
        raise TenantFull(tenant=tenant, what="webhooks", max=WEBHOOKS_MAX)


def group(store: Store, tenant: str, webhook: str) -> ScopeHandle:
    """The scope of its deliveries."""
    return ScopeHandle(store, Scope(tenant, ScopeKind.GROUP, group_of(webhook)))


async def pause_itself(store: Store, found: WebhookState, reason: str, now: Micros) -> None:
    """Pauses a webhook that should not go on, and its deliveries, which is an event of the tenant.
    A concurrent change wins.
    """
    before = found.definition
    if before is None or before.paused is not None:
        return
    words = reason[:REASON_MAX].strip()
    paused = Paused(reason=words, author=ITSELF, at=now)
    after = msgspec.structs.replace(before, paused=paused)
    after = after.edited(Edit(now, ITSELF, "paused itself", words))
    put = Put(name_of(found.tenant, found.name, PREFIX), encode(after), found.version)
    with suppress(StaleSetting):
        await store.settings([put], by=By(ITSELF, words))
        await group(store, found.tenant, found.name).pause(words, ITSELF)


async def failed(
    store: Store, found: WebhookState, why: str, now: Micros, *, gone: bool = False
) -> None:
    """Notes that a delivery failed. The upkeep decides whether the webhook pauses itself.

    It is a note for people and for that decision: where two workers write it at once, one counts.
    """
    before, version = await health_of(store, found.tenant, found.name)
    since = now if before is None else before.since
    failures = 1 if before is None else before.failures + 1
    after = Health(since, failures, now, why[:WEBHOOK_NOTE_MAX], gone)
    put = Put(name_of(found.tenant, found.name, HEALTH_PREFIX), encode(after), version)
    with suppress(StaleSetting):
        await store.settings([put])


async def worked(store: Store, found: WebhookState) -> None:
    """Notes that a delivery worked. Costs one read while none has failed."""
    setting = await one(store, name_of(found.tenant, found.name, HEALTH_PREFIX))
    if setting is not None:
        with suppress(StaleSetting):
            await store.settings([Put(setting.name, None, setting.version)])


def gives_up(definition: Webhook, health: Health | None) -> str | None:
    """The reason why the webhook must pause itself; None while it need not."""
    if health is None:
        return None
    if health.gone:
        return health.error
    lasted = health.at - health.since
    if health.failures < FAILURES or lasted < definition.pause_after_us:
        return None
    hours = lasted / HOUR
    return f"{health.failures} failures in {hours:.1f} h and no success; the last: {health.error}"
