"""What the routes of the wire share: its settings, the holds under way, and what it remembers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import msgspec
from starlette.requests import Request

from holdfast.clock import Micros, micros
from holdfast.coalesce import Coalescer
from holdfast.errors import ConfigError, TenantFull
from holdfast.job import Rules
from holdfast.limits import ATTEMPTS_MAX, BATCH_MAX, DELAY_S_MAX, LEASE_S_MAX, PAGE_MAX
from holdfast.scope import Scope, ScopeKind
from holdfast.scopes import recount
from holdfast.service.auth.bearer import KEY_HEADER
from holdfast.service.auth.nobody import check_local
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.claims import Nonces
from holdfast.service.rights import Caller, Right, rights
from holdfast.service.service import PENDING_MAX, Service
from holdfast.service.settings import MIB
from holdfast.store import Hold, Take, Tally

INDEX_S = 24 * 3600.0
"""How long a crawl is listed after a push, or after a reconcile that found jobs of it."""
RENEW_S = 3600.0
"""How often a process says again that a team has jobs of a crawl."""
REMEMBERED_MAX = 50_000
"""Crawls and markers that a process remembers."""
TEAMS_MAX = 10_000
"""Teams of one crawl that are looked for."""
RECOUNT_S = 60.0
"""How often a process counts everything anew for a reconcile; that takes time for each job."""
CLOCK = "firecrawl/clock"
OWNER = "firecrawl"
"""Of all holds that any process of the wire may renew."""


ANYBODY = Caller(
    name="firecrawl",
    tenant=None,
    rights=rights([Right.PRODUCE, Right.WORK, Right.OPERATE]),
    queues=(mapping.QUEUE,),
    types=(mapping.TYPE,),
)
"""Who uses an open wire: every team, and nothing but the wire."""
TOKEN_HEADERS = ("authorization", KEY_HEADER)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    claim_s: float = 300.0
    """After this a popped job that nobody completed or released can be popped again."""
    keep_s: float = 3600.0
    """How long the record of a completed or expired job stays, for operators; the wire hides it."""
    body_max: int = 2 * MIB
    open: bool = False
    """Who sends no token may use the wire, for every team: Firecrawl's own client sends none."""
    local_only: bool = False
    """Where it is open, it serves only what was sent to this machine's own names."""

    def checked(self) -> Settings:
        for name, least, most in (("claim_s", 0.1, LEASE_S_MAX), ("keep_s", 0, DELAY_S_MAX)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(field=name, why=f"must be {least} to {most:g}")
        return self


class Wire:
    """One for each process."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.store = service.store
        self.settings = settings.checked()
        self.claim_us = micros(settings.claim_s)
        keep = micros(settings.keep_s)
        # A claim that lapses costs an attempt, and a backlog job shall not die of being postponed.
        self.rules = Rules(max_attempts=ATTEMPTS_MAX, keep_us=keep, keep_failed_us=keep)
        self.holds: Coalescer[Take, Hold] = Coalescer(
            service.store.hold, batch_max=BATCH_MAX, pending_max=PENDING_MAX
        )
        self.nonces = Nonces(service.store)
        self.walked: OrderedDict[tuple[bool, str | None], int] = OrderedDict()
        """Where the searches for overdue claims (True) and jobs stopped, of a team or of all."""
        self._recounted_at = float("-inf")
        self._listed: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._markers: OrderedDict[str, tuple[Micros, str | None]] = OrderedDict()

    async def caller(self, request: Request) -> Caller:
        """Who calls. A token is asked for where the wire is not open, and counts where it is."""
        if not self.settings.open or any(name in request.headers for name in TOKEN_HEADERS):
            return await self.service.caller(request)
        if self.settings.local_only:
            check_local(request)
        return self.service.admitted(request, ANYBODY)

    async def now(self) -> Micros:
        """By the store's clock."""
        [hold] = await self.store.hold([Take(CLOCK, OWNER, 1)])
        return hold.until - 1

    async def recounted(self) -> int:
        """What the store corrected by counting everything anew; nothing when it did so just now."""
        now = time.monotonic()
        if now - self._recounted_at < RECOUNT_S:
            return 0
        self._recounted_at = now
        return await recount(self.store)

    # -- crawls ----------------------------------------------------------------------------------

    async def list_crawl(self, crawl: str, tenant: str) -> None:
        """Says that the team has jobs or markers of the crawl; before the first is stored. All
        teams share the list, and it is a hint: a full one refuses nothing.
        """
        now = time.monotonic()
        known = self._listed.pop((crawl, tenant), None)
        if known is None or now - known >= RENEW_S:
            known = now
            with suppress(TenantFull):
                await self.renew_crawl(crawl, (tenant,))
        self._listed[crawl, tenant] = known
        if len(self._listed) > REMEMBERED_MAX:
            self._listed.popitem(last=False)

    async def renew_crawl(self, crawl: str, tenants: Iterable[str]) -> None:
        for tenant in tenants:
            await self._team_of(crawl, tenant, micros(INDEX_S))

    async def drop_crawl(self, crawl: str, tenants: Iterable[str]) -> None:
        """Lists it no more; harmless if a push comes in between: see `crawl_tallies`."""
        for tenant in tenants:
            self._listed.pop((crawl, tenant), None)
            await self._team_of(crawl, tenant, 0)

    async def _team_of(self, crawl: str, tenant: str, length: Micros) -> None:
        name = mapping.crawl_scope(crawl).slot(mapping.TEAMS + tenant)
        await self.holds.submit(Take(name, OWNER, length))

    async def crawl_teams(self, crawl: str) -> list[str]:
        """The teams that are known to have jobs of the crawl; a hint."""
        under = mapping.crawl_scope(crawl).slot(mapping.TEAMS)
        return [hold.name.removeprefix(under) async for hold in self.each_hold(under, TEAMS_MAX)]

    async def each_hold(self, under: str, most: int) -> AsyncIterator[Hold]:
        """The first held names under a prefix, read a page at a time."""
        after, more = "", True
        while more and most > 0:
            limit = min(most, PAGE_MAX)
            page = await self.store.hold(under=under, after=after, limit=limit)
            for hold in page:
                yield hold
            most -= len(page)
            more = len(page) == limit
            after = page[-1].name if page else after

    async def crawl_tallies(self, crawl: str, tenant: str | None) -> list[Tally]:
        """The crawl's counts: in one team, or in each that has jobs of it.

        The list of teams makes this cheap; only the counts themselves can say that there is
        nothing, for a crawl without jobs is taken for finished.
        """
        if tenant is not None:
            return await self.tally(Scope(tenant, ScopeKind.GROUP, crawl))
        found: list[Tally] = []
        for team in await self.crawl_teams(crawl):
            found += await self.tally(Scope(team, ScopeKind.GROUP, crawl))
        if mapping.alive(found):
            return found
        every = await self.store.count(None, by=ScopeKind.GROUP, part=crawl)
        return [one for one in every if one.tenant not in (mapping.CRAWLS, mapping.ACTIVE)]

    async def tally(self, scope: Scope) -> list[Tally]:
        """One, or nothing."""
        return await self.store.count(scope.tenant, by=scope.kind, part=scope.part, limit=1)

    # -- markers ---------------------------------------------------------------------------------

    async def mark(self, tenant: str | None, take: Take, *listed: Take) -> None:
        """Sets a marker or renews it; a length of 0 takes it away. `tenant` may ask how many of
        its own have ended. What lists the marker is taken in the same step: refused with it, too.
        """
        if listed:
            hold, *_ = await self.store.hold([take, *listed])
        else:
            hold = await self.holds.submit(take)
        self._markers.pop(take.name, None)
        if take.length_us:
            self._markers[take.name] = hold.until, tenant
            if len(self._markers) > REMEMBERED_MAX:
                self._markers.popitem(last=False)

    def lapsed(self, tenant: str | None, now: Micros, most: int) -> int:
        """How many markers that this process set have ended by time since it was last asked: of
        one tenant, or of all.
        """
        names = [
            name
            for name, (until, whose) in self._markers.items()
            if until <= now and tenant in (None, whose)
        ]
        for name in names[:most]:
            del self._markers[name]
        return len(names[:most])
