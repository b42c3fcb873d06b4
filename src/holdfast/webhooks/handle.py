"""Handles for webhooks: `acme.webhook("billing")` returns one.

A webhook is a few settings, changed by compare-and-set (`definition.py`). `upkeep/deliver.py` makes
its deliveries, and `deliver.py` is what a delivery does.
"""

from __future__ import annotations

import secrets as random_secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Unpack

import msgspec
import uuid_utils

from holdfast.core.bounds import CHANGE_MAX, REASON_MAX, TENANT_MAX
from holdfast.core.check import check_name, check_seconds
from holdfast.core.clock import Micros, micros
from holdfast.core.edge_bounds import WEBHOOK_KEEP_S_MAX, WEBHOOK_RUNNING, WEBHOOK_WAITING_MAX
from holdfast.core.errors import InvalidInput, StaleSetting, WebhookNotFound, did_you_mean
from holdfast.core.job import By, State
from holdfast.core.schedule import Edit, Paused
from holdfast.scopes import ALIVE
from holdfast.store import Act, Change, Enqueued, Find, Page, Put, Selection, Store
from holdfast.store_clock import StoreClock
from holdfast.webhooks.definition import (
    CURSOR_PREFIX,
    HEALTH_PREFIX,
    PREFIX,
    SECRET_PREFIX,
    Health,
    Key,
    Position,
    Secrets,
    Webhook,
    check_webhook,
    encode,
    group_of,
    name_of,
)
from holdfast.webhooks.delivery import of_ping
from holdfast.webhooks.networks import allowed, target_of
from holdfast.webhooks.options import Wanted, WebhookOptions, wanted_of
from holdfast.webhooks.signing import check_secret, new_secret
from holdfast.webhooks.stored import (
    WebhookState,
    group,
    has_room,
    health_of,
    position_of,
    secrets_of,
    state,
    state_of,
    webhooks_page,
)

TRIES_MAX = 10
"""How often a change without `expect` is tried again after a concurrent change."""
KEEP_S = 24 * 3600.0
"""How long the secret before goes on signing after a rotation."""
UNNAMED = "unnamed"
"""The author of changes that name none."""


class WebhookStatus(msgspec.Struct, frozen=True):
    """A webhook and what became of its deliveries."""

    state: WebhookState
    position: Position | None
    """Up to which event deliveries were made; None if that cannot be read."""
    health: Health | None
    """The failures since the last success; None if there are none."""
    deliveries: Mapping[State, int]
    """Deliveries that are stored, by state."""


class WebhookHandle:
    """A handle for one webhook of a tenant. Cheap to create; it keeps no resources."""

    def __init__(self, store: Store, tenant: str, name: str, *, allow: Iterable[str] = ()) -> None:
        """`allow` is the setting `webhooks_allow` of the platform."""
        self.tenant = check_name("tenant", tenant, TENANT_MAX)
        self.name = check_webhook(name)
        self._store = store
        self._allow = tuple(allow)

    # -- reading ---------------------------------------------------------------------------------

    async def get(self) -> WebhookState:
        """The webhook, without its secret. Raises WebhookNotFound."""
        found = await state(self._store, self.tenant, self.name)
        if found is None:
            near, _ = await webhooks_page(self._store, self.tenant)
            hint = did_you_mean(self.name, [one.name for one in near])
            raise WebhookNotFound(webhook=self.name, hint=hint)
        return found

    async def status(self) -> WebhookStatus:
        """The webhook, its position, its failures and the number of its deliveries."""
        found = await self.get()
        position, _ = await position_of(self._store, self.tenant, self.name)
        health, _ = await health_of(self._store, self.tenant, self.name)
        counts = (await group(self._store, self.tenant, self.name).counts()).counts
        return WebhookStatus(found, position, health, counts)

    async def deliveries(
        self,
        *,
        states: Iterable[State] = (),
        after: int | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of its deliveries, the newest first. They are jobs as any other."""
        select = Selection(tenant=self.tenant, groups=(group_of(self.name),), states=tuple(states))
        return await self._store.find(Find(select=select, after=after, limit=limit))

    # -- changes ---------------------------------------------------------------------------------

    async def set(
        self, *, expect: int | None = None, by: By | None = None, **given: Unpack[WebhookOptions]
    ) -> WebhookState:
        """Makes or changes the webhook; what is not named stays. A new one needs `url`, and begins
        with the next event. The answer has its `secret`, which no later call shows again.

        Raises StaleSetting if `expect` is not the current version (0: new).
        """
        wanted = wanted_of(given)
        if "url" in given:
            target_of(given["url"], allowed(self._allow))
        now = await StoreClock(self._store).look()
        if by is not None:
            by.checked()
        for left in range(TRIES_MAX - 1, -1, -1):
            found = await state(self._store, self.tenant, self.name)
            version = 0 if found is None else found.version
            if expect is not None and expect != version:
                raise self._stale(version, expect)
            try:
                return await self._apply(found, wanted, now, by)
            except StaleSetting:
                if expect is not None or left == 0:
                    raise
        raise AssertionError("the last try raises or returns")

    async def _apply(
        self, found: WebhookState | None, wanted: Wanted, now: Micros, by: By | None
    ) -> WebhookState:
        """Writes the definition, and in the same step what a new webhook needs besides."""
        before = None if found is None else found.definition
        new = before is None
        if before is None:
            author = UNNAMED if by is None else by.author
            before = Webhook(id=str(uuid_utils.uuid7()), url="", made_by=author, made_at=now)
        after = msgspec.structs.replace(before, **wanted.fields)
        if not after.url:
            raise InvalidInput(field="url", why="is missing: a new webhook needs one")
        kept, version = await secrets_of(self._store, self.tenant, self.name)
        value, secret = wanted.secrets(kept)
        if secret is not None:
            after = msgspec.structs.replace(after, rotated_at=now)
        if found is not None and after == before and value == kept:
            return found
        puts = [] if value == kept else [Put(self._named(SECRET_PREFIX), encode(value), version)]
        if new:
            puts.append(await self._beginning())
        after = _signed(after, "set", now, by).checked()
        if found is None:
            await has_room(self._store, self.tenant)
            # Before the webhook: from its first delivery on, its group is limited.
            scope = group(self._store, self.tenant, self.name)
            await scope.set(max_running=WEBHOOK_RUNNING, by=by)
        written = await self._put(found, after, by, puts)
        return msgspec.structs.replace(written, secret=secret)

    async def _beginning(self) -> Put:
        """The position at the current end of the log: past events are not delivered."""
        _, version = await position_of(self._store, self.tenant, self.name)
        head = (await self._store.events(self.tenant, -1, 1)).cursor
        return Put(self._named(CURSOR_PREFIX), encode(Position(head)), version)

    async def pause(self, reason: str, author: str = UNNAMED) -> WebhookState:
        """Stops its deliveries. Events wait in the log until `resume`, as long as it keeps them."""
        by = By(author, reason).checked()
        check_name("reason", reason, REASON_MAX)
        now = await StoreClock(self._store).look()

        def change(before: Webhook) -> Webhook:
            return msgspec.structs.replace(
                before, paused=Paused(reason=reason, author=author, at=now)
            )

        after = await self._change("paused", change, now, by)
        await group(self._store, self.tenant, self.name).pause(reason, author)
        return after

    async def resume(
        self, author: str = UNNAMED, reason: str = "", *, skip: bool = False
    ) -> WebhookState:
        """Ends a pause. What happened meanwhile is delivered, or with `skip` passed over."""
        by = By(author, reason).checked()
        now = await StoreClock(self._store).look()
        more = [await self._beginning()] if skip else []
        _, ill = await health_of(self._store, self.tenant, self.name)
        if ill:
            more.append(Put(self._named(HEALTH_PREFIX), None, ill))

        def change(before: Webhook) -> Webhook:
            return msgspec.structs.replace(before, paused=None)

        after = await self._change("resumed", change, now, by, more)
        await group(self._store, self.tenant, self.name).resume(author, reason)
        return after

    async def rotate(
        self, *, keep: float = KEEP_S, secret: str | None = None, by: By | None = None
    ) -> WebhookState:
        """Replaces the secret. The one before goes on signing for `keep` seconds, so that receivers
        can change over; 0 ends it at once. The answer has the new `secret`.
        """
        keep_us = micros(check_seconds("keep", keep, 0.0, WEBHOOK_KEEP_S_MAX))
        new = new_secret() if secret is None else check_secret(secret)
        now = await StoreClock(self._store).look()
        found = await self.get()
        definition = _readable(found)
        kept, version = await secrets_of(self._store, self.tenant, self.name)
        keys = [Key(new)]
        if kept is not None and keep_us:
            keys.append(Key(kept.keys[0].secret, now + keep_us))
        value = Secrets(tuple(keys), {} if kept is None else kept.headers)
        put = Put(self._named(SECRET_PREFIX), encode(value.checked()), version)
        after = msgspec.structs.replace(definition, rotated_at=now)
        after = _signed(after, "rotated its secret", now, by)
        written = await self._put(found, after, by, [put])
        return msgspec.structs.replace(written, secret=new)

    async def test(self, *, by: By | None = None) -> Enqueued[str]:
        """Sends an event of the kind `ping`: the answer names the job of its delivery."""
        found = await self.get()
        definition = _readable(found)
        if definition.paused is not None:
            raise InvalidInput(field="webhook", why=f"{self.name!r} is paused; resume it first")
        now = await StoreClock(self._store).look()
        nonce = random_secrets.token_hex(16)
        ping = of_ping(definition, self.name, self.tenant, nonce, now)
        [answer] = await self._store.enqueue([ping])
        if answer.error is not None:
            raise answer.error
        return answer

    async def delete(self, *, expect: int | None = None, by: By | None = None) -> None:
        """Deletes the webhook, its secret and the deliveries that wait."""
        found = await self.get()
        if expect is not None and expect != found.version:
            raise self._stale(found.version, expect)
        puts = [Put(self._named(PREFIX), None, found.version)]
        for prefix, read in (
            (SECRET_PREFIX, secrets_of),
            (CURSOR_PREFIX, position_of),
            (HEALTH_PREFIX, health_of),
        ):
            _, version = await read(self._store, self.tenant, self.name)
            if version:
                puts.append(Put(self._named(prefix), None, version))
        await self._store.settings(puts, by=by)
        await self._clear(by)

    async def _clear(self, by: By | None) -> None:
        """Deletes the deliveries that wait, in bounded steps. Those that run find no webhook."""
        scope = group(self._store, self.tenant, self.name)
        select = Selection(tenant=self.tenant, groups=(group_of(self.name),), states=ALIVE)
        after = 0
        for _ in range(2 * WEBHOOK_WAITING_MAX // CHANGE_MAX + 2):
            step = Change(select=select, act=Act.DELETE, after=after, limit=CHANGE_MAX, by=by)
            changed = await self._store.change(step)
            if changed.cursor is None:
                break
            after = changed.cursor
        if (await scope.get()).settings.paused is not None:
            await scope.resume(UNNAMED if by is None else by.author, "its webhook was deleted")

    # -- writing ---------------------------------------------------------------------------------

    async def _change(
        self,
        what: str,
        change: Callable[[Webhook], Webhook],
        now: Micros,
        by: By,
        more: Iterable[Put] = (),
    ) -> WebhookState:
        for left in range(TRIES_MAX - 1, -1, -1):
            found = await self.get()
            before = _readable(found)
            after = change(before)
            if after == before and not more:
                return found
            try:
                return await self._put(found, _signed(after, what, now, by), by, list(more))
            except StaleSetting:
                if left == 0 or more:
                    raise
        raise AssertionError("the last try raises or returns")

    async def _put(
        self, found: WebhookState | None, after: Webhook, by: By | None, more: list[Put]
    ) -> WebhookState:
        version = 0 if found is None else found.version
        name = self._named(PREFIX)
        done = await self._store.settings([Put(name, encode(after), version), *more], by=by)
        return next(state_of(one) for one in done if one.name == name)

    def _named(self, prefix: str) -> str:
        return name_of(self.tenant, self.name, prefix)

    def _stale(self, version: int, expect: int) -> StaleSetting:
        return StaleSetting(
            field="version", name=self._named(PREFIX), version=version, expected=expect
        )


def _readable(found: WebhookState) -> Webhook:
    """Its definition. Raises InvalidInput if that cannot be read."""
    if found.definition is None:
        raise InvalidInput(field="webhook", why=f"{found.name!r} {found.fault}; set it again")
    return found.definition


def _signed(after: Webhook, what: str, now: Micros, by: By | None) -> Webhook:
    """With the change in its list."""
    author, reason = (UNNAMED, "") if by is None else (by.author, by.reason)
    return after.edited(Edit(now, author, what, reason))
