"""Helpers for tests of webhooks: handles on the store under test, and the deliveries made."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from holdfast.core.job import Completed, JobRecord, Lease
from holdfast.store import Claim, Find, Selection, Store
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, LEASE
from holdfast.upkeep.deliver import Deliver
from holdfast.webhooks.definition import QUEUE, group_of
from holdfast.webhooks.delivery import Payload
from holdfast.webhooks.handle import WebhookHandle

URL = "https://receiver.example/hook"
SECRET = "whsec_of-the-tests-alone"
KEEP_S = 3600.0
KINDS = ("enqueued",)


class Hooking:
    """A webhook, and the deliveries that were made of it."""

    def __init__(self, bench: Bench, name: str = "billing", tenant: str = ACME) -> None:
        self.bench = bench
        self.tenant = tenant
        self.name = name
        self.handle = WebhookHandle(bench.store, tenant, name)
        self.upkeep = self.leader()

    def leader(self, store: Any = None) -> Deliver:
        """The duty of a process that has just become the leader."""
        return Deliver(store or self.bench.store, 1.0, KEEP_S)

    async def set(self, store: Store | None = None, **given: Any) -> Hooking:
        """The webhook, of enqueued jobs unless others are given."""
        handle = WebhookHandle(store or self.bench.store, self.tenant, self.name)
        given = {"url": URL, "kinds": KINDS, "secret": SECRET, **given}
        await handle.set(**given)
        return self

    async def round(self, duty: Deliver | None = None) -> None:
        """A whole round of the upkeep over all webhooks."""
        one = duty or self.upkeep
        while await one.turn() == 0.0:
            pass

    async def rounds(self) -> None:
        """As many as there are events."""
        before = -1
        while before != self.upkeep.made:
            before = self.upkeep.made
            await self.round()

    async def jobs(self) -> list[JobRecord]:
        """The deliveries, in the order in which they were made."""
        select = Selection(tenant=self.tenant, groups=(group_of(self.name),))
        found: list[JobRecord] = []
        after = None
        while True:
            find = Find(select=select, after=after, limit=1000, newest_first=False)
            page = await self.bench.store.find(find)
            found += page.jobs
            if page.cursor is None:
                return found
            after = page.cursor

    async def told(self) -> list[dict[str, Any]]:
        """What the deliveries tell."""
        return [event_of(job) for job in await self.jobs()]

    async def about(self) -> list[str]:
        """The jobs that the deliveries are about."""
        return [event["job_id"] for event in await self.told()]

    async def take(self, limit: int = 100) -> list[Lease]:
        """Leases deliveries of the tenant."""
        claim = Claim(
            worker="w1",
            nonce=secrets.token_hex(8),
            limit=limit,
            lease_us=LEASE,
            tenants=(self.tenant,),
            queues=(QUEUE,),
        )
        return await self.bench.store.claim(claim)

    async def end(self, limit: int = 100) -> int:
        """Ends deliveries, as if they were sent. Returns how many could run."""
        leases = await self.take(limit)
        for lease in leases:
            await self.bench.end(lease, Completed())
        return len(leases)


def event_of(job: JobRecord) -> dict[str, Any]:
    """What a delivery tells."""
    return msgspec.json.decode(job.envelope.body, type=Payload).event
