"""Duty: make deliveries of webhooks from stored events.

It is a duty, not a job that enqueues itself: a webhook without events then costs reads only, and no
line of the event log. Each turn goes through one page of webhooks and reads a bounded number of
events for each, shared by those of one tenant; the next turn continues with the page after it. So a
tenant with a million events gets its share of a round, as any other does, and a webhook that fails
here is passed over. What is slow, the calls of receivers, is done by jobs of the tenant.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from holdfast.core.clock import Micros, micros
from holdfast.core.edge_bounds import WEBHOOK_EVENTS, WEBHOOK_PAGE, WEBHOOK_READ_AHEAD, WEBHOOKS_MAX
from holdfast.core.errors import InvalidInput, StaleSetting, StoreError
from holdfast.store import Store
from holdfast.store_clock import StoreClock
from holdfast.webhooks.definition import (
    CURSOR_PREFIX,
    HEALTH_PREFIX,
    PREFIX,
    Health,
    Position,
    Webhook,
    decode,
    name_of,
)
from holdfast.webhooks.reader import Progress, Reader, Subscriber
from holdfast.webhooks.stored import WebhookState, gives_up, pause_itself, webhooks_page

logger = logging.getLogger("holdfast.webhooks")

WRITE_S = 300.0
"""How often the position of a webhook is written while none of its events is wanted."""
BUSY_S = 0.01
"""The pause between two rounds while events are waiting."""

S = TypeVar("S", Position, Health)


class Deliver:
    """Makes the deliveries of one page of webhooks per turn."""

    name = "deliver"

    def __init__(self, store: Store, every_s: float, events_keep_s: float) -> None:
        self._store = store
        self._every_s = every_s
        # Well before its events are deleted, so that an unwritten position is no gap.
        write_s = min(WRITE_S, events_keep_s / 4)
        self._reader = Reader(store, micros(write_s))
        self._clock = StoreClock(store)
        self._known: dict[str, Progress] = {}
        self._after = ""
        self._more = False
        self.made = 0
        """Deliveries made so far."""

    async def turn(self) -> float:
        page, after = await webhooks_page(self._store, None, after=self._after, limit=WEBHOOK_PAGE)
        if page:
            now = await self._clock.look()
            await self._page(page, now)
        self._after = after or ""
        if self._after:
            return 0.0
        delay_s = BUSY_S if self._more else self._every_s
        self._more = False
        return delay_s

    async def _page(self, page: Sequence[WebhookState], now: Micros) -> None:
        health = await self._sparse(Health, HEALTH_PREFIX, page)
        # Without its definition it cannot be delivered, and is shown as such.
        active = [
            (one, one.definition)
            for one in page
            if one.definition is not None and one.definition.paused is None
        ]
        await self._look([one for one, _ in active], now)
        of_tenant = Counter(one.tenant for one, _ in active)
        for one, hook in active:
            reason = gives_up(hook, health.get(_key(one), (None, 0))[0])
            share = WEBHOOK_EVENTS // min(of_tenant[one.tenant], WEBHOOKS_MAX)
            try:
                if reason is not None:
                    await pause_itself(self._store, one, reason, now)
                else:
                    await self._one(one, hook, share, now)
            except StoreError:
                raise  # The store is away, for all of them.
            except StaleSetting:
                self._known.pop(_key(one), None)  # Read again in the next round.
            except Exception:
                # Whatever it is about this one, it must not keep the others from theirs.
                logger.exception("webhook %r of %r: no deliveries", one.name, one.tenant)

    async def _one(self, one: WebhookState, hook: Webhook, share: int, now: Micros) -> None:
        progress = self._known.get(_key(one))
        if progress is None:
            return  # It was made or deleted meanwhile.
        step = await self._reader.step(Subscriber(one.tenant, one.name, hook), progress, share, now)
        self.made += step.made
        self._more = self._more or step.more

    async def _look(self, active: Sequence[WebhookState], now: Micros) -> None:
        """Reads the stored positions, and keeps what this process has read beyond them."""
        if len(self._known) > WEBHOOK_READ_AHEAD:
            self._known.clear()
        if not active:
            return
        stored = await self._sparse(Position, CURSOR_PREFIX, active)
        for one in active:
            key = _key(one)
            found, version = stored.get(key, (None, 0))
            progress = self._known.get(key)
            if found is None:
                self._known.pop(key, None)
            elif progress is None or progress.version != version:
                self._known[key] = Progress(found, version, found.cursor, now)

    async def _sparse(
        self, kind: type[S], prefix: str, page: Sequence[WebhookState]
    ) -> dict[str, tuple[S, int]]:
        """The values of these webhooks that there are. Their names sort as those of the webhooks
        do, so they are read in as many pages.
        """
        found: dict[str, tuple[S, int]] = {}
        last = name_of(page[-1].tenant, page[-1].name, prefix)
        wanted = {name_of(one.tenant, one.name, prefix): _key(one) for one in page}
        first = name_of(page[0].tenant, page[0].name, prefix)
        after = first[:-1].rstrip()  # A prefix of it, which sorts before it.
        while True:
            settings = await self._store.settings(under=prefix, after=after, limit=WEBHOOK_PAGE)
            for setting in settings:
                key = wanted.get(setting.name)
                if key is not None:
                    try:
                        found[key] = decode(kind, setting.value), setting.version
                    except InvalidInput as error:
                        logger.error("%s %s", setting.name, error)
            if len(settings) < WEBHOOK_PAGE or settings[-1].name >= last:
                return found
            after = settings[-1].name


def _key(one: WebhookState) -> str:
    return name_of(one.tenant, one.name, PREFIX)
