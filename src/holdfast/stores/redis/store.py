"""The Redis store: one server or a cluster, any number of processes and machines.

Each verb is one script for each shard it concerns: one call with one shard. `layout.py` draws the
keys, `lua/` holds the scripts, `shards.py` says where a tenant lives.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from holdfast.core.bounds import PAGE_MAX, WAIT_S_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Clock, Micros, seconds
from holdfast.core.errors import NOT_OPEN, StoreUnavailable
from holdfast.core.job import By, Lease, NewJob
from holdfast.core.journal import Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.store import (
    Acked,
    Canceled,
    Change,
    Changed,
    Claim,
    Enqueued,
    EventPage,
    Extended,
    Extension,
    Find,
    Hold,
    Lapsed,
    Page,
    Pruned,
    Put,
    Ref,
    Setting,
    Take,
    Tally,
    Watch,
)
from holdfast.stores.redis import (
    count,
    limits_platform,
    server_check,
    settings,
    settings_copies,
)
from holdfast.stores.redis.ack import ack_transitions
from holdfast.stores.redis.cancel import cancel_jobs
from holdfast.stores.redis.change import change_jobs
from holdfast.stores.redis.claim import claim_jobs
from holdfast.stores.redis.connection import Links
from holdfast.stores.redis.enqueue import enqueue_jobs
from holdfast.stores.redis.events import Asked, read_events
from holdfast.stores.redis.explain import explain_job
from holdfast.stores.redis.extend import extend_leases
from holdfast.stores.redis.find import find_jobs
from holdfast.stores.redis.holds import list_holds, take_holds
from holdfast.stores.redis.layout import FORMAT
from holdfast.stores.redis.maintenance import find_expired, prune_ended
from holdfast.stores.redis.notify import Subscriptions
from holdfast.stores.redis.options import Options, parse
from holdfast.stores.redis.shadow import apply_step, read_shadow
from holdfast.stores.redis.shards import Shards, together
from holdfast.stores.redis.signal import send_signals

POLL_S = 1.0
"""How long a caller sleeps at most while it has no subscription."""


class RedisStore:
    """Any thread that runs an event loop may call; a verb returns when the server has answered."""

    def __init__(self, options: Options, clock: Clock | None = None) -> None:
        self.options = options
        self._clock = clock
        self._shards: Shards | None = None
        self._links: Links | None = None
        self._subscriptions: Subscriptions | None = None
        self._owner = 0
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=False,
            native_wakeup=True,
            event_log=options.events,
            time_precision_us=1,
            cluster=options.cluster,
            scopes=True,
            platform=True,
            tiers=True,
            steps=True,
            sources=True,
        )

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> RedisStore:
        return cls(parse(url), clock)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._shards is not None and self._owner == os.getpid():
            return
        links = Links(self.options)
        try:
            servers = await server_check.look(links)
            for server in servers:
                server_check.check(server, self.options)
            number = await server_check.agree(links, migrate=self.options.migrate == "auto")
            shards = Shards(links, self._clock, number, self.options.events)
            await settings_copies.settle(shards, shards.now(), reopen=True)
        except BaseException:
            await links.close()
            raise
        durable = all(server.durable for server in servers)
        self.capabilities = msgspec.structs.replace(
            self.capabilities,
            durable=durable,
        )
        self._owner = os.getpid()
        self._links = links
        self._shards = shards
        self._subscriptions = Subscriptions(self.options, shards.channel, links.addresses)

    async def close(self) -> None:
        links, subscriptions = self._links, self._subscriptions
        self._links = self._shards = self._subscriptions = None
        if self._owner != os.getpid():
            return  # After a fork the threads and the connections are the parent's.
        if subscriptions is not None:
            await subscriptions.close()
        if links is not None:
            await links.close()

    async def migrate(self) -> int:
        links = Links(self.options)
        try:
            await server_check.agree(links, migrate=True)
        finally:
            await links.close()
        return FORMAT

    # -- jobs ------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        shards = self._mine()
        return await enqueue_jobs(shards, jobs, shards.now(), whole=whole)

    async def claim(self, claim: Claim) -> list[Lease]:
        shards = self._mine()
        return await claim_jobs(shards, claim, shards.now())

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        shards = self._mine()
        return await extend_leases(shards, extensions, shards.now())

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        shards = self._mine()
        if shards.is_behind and self._subscriptions is not None:
            # The next claim is sent right after this ack, and the server takes them in this order.
            # The hint of the ack would come a third of a millisecond later, of three in all.
            self._subscriptions.here().notifier.notify_claimers()
        return await ack_transitions(shards, transitions, shards.now())

    # -- operators -------------------------------------------------------------------------------

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        shards = self._mine()
        return await send_signals(shards, signals, by, shards.now())

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        shards = self._mine()
        return await cancel_jobs(shards, refs, by, shards.now())

    async def change(self, change: Change) -> Changed:
        shards = self._mine()
        return await change_jobs(shards, change, shards.now())

    # -- maintenance -----------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        shards = self._mine()
        return await find_expired(shards, limit, shards.now())

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        shards = self._mine()
        return await prune_ended(shards, limit, events_keep_us, shards.now())

    # -- reads -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        shards = self._mine()
        return await find_jobs(shards, find, shards.now())

    async def count(
        self,
        tenant: str | None,
        *,
        by: ScopeKind = ScopeKind.QUEUE,
        part: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = PAGE_MAX,
        recount: bool = False,
    ) -> list[Tally]:
        shards = self._mine()
        now = shards.now()
        asked = count.Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        correction = 0
        if recount:
            await settings_copies.compare(shards, now)
            correction = sum(await shards.each("recount", shards.all(), (), now))
        return await count.count_scopes(shards, asked, now, correction)

    async def explain(self, ref: Ref) -> Explanation:
        shards = self._mine()
        return await explain_job(shards, ref, shards.now())

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        return await read_events(self._mine(), Asked(tenant, after, limit, job_id))

    # -- names -----------------------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        shards = self._mine()
        now = shards.now()
        done = await settings.put_settings(shards, puts, by, now)
        if under is None:
            return done
        return await settings.list_settings(shards, settings.NamePage(under, after, limit), now)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        shards = self._mine()
        now = shards.now()
        holds = await take_holds(shards, takes, now)
        if under is None:
            return holds
        return await list_holds(shards, settings.NamePage(under, after, limit), now)

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        shards = self._mine()
        if isinstance(ask, ShadowStep):
            return await apply_step(shards, ask, shards.now())
        return await read_shadow(shards, ask, shards.now())

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        shards = self._mine()
        assert self._subscriptions is not None
        subscription = self._subscriptions.here()
        # Listen first, then check: what happens in between is not lost.
        with subscription.notifier.listen(watch) as listening:
            # News cannot be checked: what came before the subscription is found by polling.
            reliable = subscription.is_active or not watch.news
            reliable = await subscription.listen(min(timeout_s, POLL_S)) and reliable
            try:
                delay_s = await self._soonest(shards, watch)
            except StoreUnavailable:
                if self._shards is shards:
                    raise
                return  # Closed meanwhile.
            if self._shards is shards:
                await listening.sleep(min(timeout_s, WAIT_S_MAX if reliable else POLL_S, delay_s))

    async def _soonest(self, shards: Shards, watch: Watch) -> float:
        """Seconds until the caller should look again; 0 if there is work now."""
        if watch.news:
            return WAIT_S_MAX
        job = None if watch.job is None else (watch.job.tenant, watch.job.id)
        tenants = watch.tenants if watch.job is None else (watch.job.tenant,)
        args = (watch.tenants, watch.queues, job)
        now = shards.now()
        answers = await together(
            shards.call("wait", shard, args, now) for shard in shards.concerned(tenants)
        )
        answers = await limits_platform.waits(shards, answers, now)
        return min((seconds(int(each)) for each in answers if int(each) >= 0), default=WAIT_S_MAX)

    # -- inside ----------------------------------------------------------------------------------

    @property
    def links(self) -> Links:
        """The way to the servers, for the doctor."""
        self._mine()
        assert self._links is not None
        return self._links

    @property
    def shards(self) -> int:
        return self._mine().number

    async def damaged(self) -> int:
        """How many rows nobody can read, for the doctor."""
        return await self._mine().sizes("damaged")

    def _mine(self) -> Shards:
        """The shards, if the store is open and opened by this very process."""
        if self._shards is None:
            raise StoreUnavailable(store=self.options.name, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; open it again in the child process"
            raise StoreUnavailable(store=self.options.name, why=why)
        return self._shards
