"""The Redis store: one server or a cluster, any number of processes and machines.

Each verb is one script for each shard it concerns: one call with one shard. `layout.py` draws the
keys, `lua/` holds the scripts, `shards.py` says where a tenant lives.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from holdfast.clock import Clock, Micros, seconds
from holdfast.errors import NOT_OPEN, StoreUnavailable
from holdfast.job import By, Lease, NewJob
from holdfast.lifecycle import Transition
from holdfast.limits import (
    BATCH_MAX,
    CHANGE_MAX,
    CLAIM_MAX,
    EXCLUDE_MAX,
    EXPIRED_MAX,
    PAGE_MAX,
    PRUNE_MAX,
    WAIT_S_MAX,
    within,
)
from holdfast.scope import Explanation, ScopeKind
from holdfast.store import (
    Acked,
    Canceled,
    Capabilities,
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
from holdfast.stores.redis import claims, explain, facts, journey, names, opening, sight
from holdfast.stores.redis.client import Links
from holdfast.stores.redis.layout import FORMAT
from holdfast.stores.redis.options import Options, parse
from holdfast.stores.redis.shards import Shards, together
from holdfast.stores.redis.wakeup import Ear

POLL_S = 1.0
"""How long a sleeper sleeps at most while hints cannot be heard."""


class RedisStore:
    """Any thread that runs an event loop may call; a verb returns when the server has answered."""

    def __init__(self, options: Options, clock: Clock | None = None) -> None:
        self.options = options
        self._clock = clock
        self._shards: Shards | None = None
        self._links: Links | None = None
        self._ear: Ear | None = None
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
            servers = await opening.look(links)
            for server in servers:
                opening.check(server, self.options)
            number = await opening.agree(links, migrate=self.options.migrate == "auto")
        except BaseException:
            await links.close()
            raise
        durable = all(server.durable for server in servers)
        self.capabilities = msgspec.structs.replace(self.capabilities, durable=durable)
        self._owner = os.getpid()
        self._links = links
        self._shards = Shards(links, self._clock, number, self.options.events)
        self._ear = Ear(self.options, self._shards.channel, links.places)

    async def close(self) -> None:
        links, ear = self._links, self._ear
        self._links = self._shards = self._ear = None
        if self._owner != os.getpid():
            return  # After a fork the threads and the connections are the parent's.
        if ear is not None:
            await ear.close()
        if links is not None:
            await links.close()

    async def migrate(self) -> int:
        links = Links(self.options)
        try:
            await opening.agree(links, migrate=True)
        finally:
            await links.close()
        return FORMAT

    # -- journey ---------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        within("jobs", len(jobs), BATCH_MAX)
        shards = self._mine()
        return await journey.enqueue(shards, jobs, shards.now())

    async def claim(self, claim: Claim) -> list[Lease]:
        within("limit", claim.limit, CLAIM_MAX)
        within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
        shards = self._mine()
        now = shards.now()
        concerned = shards.concerned(claim.tenants)
        if not concerned or claim.limit == 0:
            return []
        if len(concerned) == 1:
            answer = await shards.call("claim", concerned[0], claims.wish(claim), now)
            found = claims.taken(answer, claim, shards.number)
        else:
            found = await claims.Claiming(shards, claim, concerned, now).taken()
        return await claims.readable(shards, found, now)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        within("extensions", len(extensions), BATCH_MAX)
        shards = self._mine()
        return await journey.extend(shards, extensions, shards.now())

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        within("transitions", len(transitions), BATCH_MAX)
        shards = self._mine()
        return await journey.ack(shards, transitions, shards.now())

    # -- will ------------------------------------------------------------------------------------

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        within("refs", len(refs), BATCH_MAX)
        shards, author = self._mine(), _checked(by)
        return await journey.cancel(shards, refs, author, shards.now())

    async def change(self, change: Change) -> Changed:
        within("limit", change.limit, CHANGE_MAX)
        sight.bounded(change.select)
        _checked(change.by)
        shards = self._mine()
        return await sight.change(shards, change, shards.now())

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        within("limit", limit, EXPIRED_MAX)
        shards = self._mine()
        return await sight.expired(shards, limit, shards.now())

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        within("limit", limit, PRUNE_MAX)
        shards = self._mine()
        return await sight.prune(shards, limit, events_keep_us, shards.now())

    # -- sight -----------------------------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        within("limit", find.limit, PAGE_MAX)
        sight.bounded(find.select)
        shards = self._mine()
        return await sight.find(shards, find, shards.now())

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
        within("limit", limit, PAGE_MAX)
        shards = self._mine()
        now = shards.now()
        asked = sight.Asked(tenant=tenant, by=by, part=part, after=after, limit=limit)
        correction = 0
        if recount:
            correction = sum(await shards.each("recount", shards.all(), (), now))
        return await sight.count(shards, asked, now, correction)

    async def explain(self, ref: Ref) -> Explanation:
        shards = self._mine()
        return await explain.explain(shards, ref, shards.now())

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        within("limit", limit, PAGE_MAX)
        return await facts.events(self._mine(), facts.Asked(tenant, after, limit, job_id))

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
        within("puts", len(puts), BATCH_MAX)
        within("limit", limit, PAGE_MAX)
        puts, author = [put.checked() for put in puts], _checked(by)
        shards = self._mine()
        now = shards.now()
        done = await names.put(shards, puts, author, now)
        if under is None:
            return done
        return await names.settings_under(shards, names.Names(under, after, limit), now)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        within("takes", len(takes), BATCH_MAX)
        within("limit", limit, PAGE_MAX)
        takes = [one.checked() for one in takes]
        shards = self._mine()
        now = shards.now()
        holds = await names.take(shards, takes, now)
        if under is None:
            return holds
        return await names.holds_under(shards, names.Names(under, after, limit), now)

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        shards = self._mine()
        assert self._ear is not None
        hearing = self._ear.here()
        # Listen first, then look: what happens in between is not lost.
        with hearing.bell.listen(watch) as listening:
            # News cannot be looked for: what came before the subscription is found by polling.
            heard = hearing.hears or not watch.news
            heard = await hearing.listen(min(timeout_s, POLL_S)) and heard
            try:
                delay_s = await self._soonest(shards, watch)
            except StoreUnavailable:
                if self._shards is shards:
                    raise
                return  # Closed meanwhile.
            if self._shards is shards:
                await listening.sleep(min(timeout_s, WAIT_S_MAX if heard else POLL_S, delay_s))

    async def _soonest(self, shards: Shards, watch: Watch) -> float:
        """Seconds until something known will be worth a look; 0 when it already is."""
        if watch.news:
            return WAIT_S_MAX
        job = None if watch.job is None else (watch.job.tenant, watch.job.id)
        tenants = watch.tenants if watch.job is None else (watch.job.tenant,)
        args = (watch.tenants, watch.queues, job)
        now = shards.now()
        answers = await together(
            shards.call("soonest", shard, args, now) for shard in shards.concerned(tenants)
        )
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


def _checked(by: By | None) -> By | None:
    return None if by is None else by.checked()
