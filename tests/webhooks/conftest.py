"""An app on memory with a webhook, and a receiver of our own on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.outbound.conftest import Time
from tests.outbound.service import Seen, Service, serving

from holdfast import App, Context, JobRecord
from holdfast.core.job import State
from holdfast.testing import ManualClock, drain
from holdfast.upkeep.deliver import Deliver
from holdfast.webhooks.definition import QUEUE
from holdfast.webhooks.deliver import Delivering
from holdfast.webhooks.handle import WebhookHandle
from holdfast.webhooks.lookup import Resolve, system

SECRET = "whsec_of-the-tests-alone"
DAY_S = 24 * 3600.0


class Desk:
    """Runs jobs, the upkeep, and deliveries, one after another."""

    def __init__(self, receiver: Service, **settings: Any) -> None:
        self.clock = ManualClock()
        self.time = Time()
        self.receiver = receiver
        allow = settings.pop("webhooks_allow", ("127.0.0.1",))
        self.app = App("memory://", clock=self.clock, webhooks_allow=allow, **settings)
        self.resolve_by(system)
        self.upkeep = Deliver(self.app.store, 1.0, DAY_S)

        @self.app.job(name="send", queue="mail")
        async def send(ctx: Context, to: str = "ann") -> str:
            return f"sent to {to}"

        self.send = send

    def resolve_by(self, resolve: Resolve) -> None:
        """Has names looked up by this function."""
        made = Delivering(self.app.store, self.app.config, resolve=resolve, timing=self.time.timing)
        vars(self.app)["delivering"] = made

    async def hook(
        self, name: str = "billing", tenant: str = "acme", **given: Any
    ) -> WebhookHandle:
        """A webhook to the receiver, of enqueued jobs unless others are given."""
        handle = self.app.tenant(tenant).webhook(name)
        given = {"url": f"{self.receiver.url}/in", "kinds": ["enqueued"], "secret": SECRET, **given}
        await handle.set(**given)
        return handle

    async def enqueue(self, number: int = 1, tenant: str = "acme") -> None:
        """Jobs, whose events become deliveries."""
        await self.app.tenant(tenant).enqueue_many([self.send(to=str(n)) for n in range(number)])
        await self.upkeep.turn()

    async def deliver(self) -> None:
        """Runs the deliveries that are due."""
        await drain(self.app, queues=[QUEUE])

    async def later(self, seconds: float = DAY_S) -> None:
        """Runs them again, after a time."""
        self.clock.advance(seconds)
        self.time.now_s += seconds
        await self.deliver()

    async def deliveries(self, handle: WebhookHandle, *states: State) -> list[JobRecord]:
        return list((await handle.deliveries(states=states, limit=1000)).jobs)

    @property
    def seen(self) -> list[Seen]:
        return self.receiver.seen


@pytest.fixture
async def receiver() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@pytest.fixture
async def desk(receiver: Service) -> AsyncIterator[Desk]:
    desk = Desk(receiver)
    async with desk.app:
        yield desk
