"""What the routes of the protocol share: settings, current holds and caches."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import msgspec
from starlette.requests import Request

from holdfast.coalesce import Coalescer
from holdfast.core.bounds import ATTEMPTS_MAX, BATCH_MAX, DELAY_S_MAX, LEASE_S_MAX, PAGE_MAX
from holdfast.core.clock import Micros, micros
from holdfast.core.errors import ConfigError, TenantFull
from holdfast.core.job import Rules
from holdfast.core.scope import Scope, ScopeKind
from holdfast.scopes import recount
from holdfast.service.auth.bearer import KEY_HEADER
from holdfast.service.auth.nobody import check_local
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.nonces import Nonces
from holdfast.service.rights import Caller, Right, rights
from holdfast.service.service import PENDING_MAX, Service
from holdfast.service.settings import MIB
from holdfast.store import Hold, Take, Tally

INDEX_S = 24 * 3600.0
"""How long a crawl is listed after a push, or after a reconcile that found jobs of it."""
RENEW_S = 3600.0
"""How often a process renews the entry that a team has jobs of a crawl."""
REMEMBERED_MAX = 50_000
"""Maximum crawls and markers that a process remembers."""
TEAMS_MAX = 10_000
"""Maximum teams of one crawl that are read."""
RECOUNT_S = 60.0
"""Minimum time between full recounts of a process, whose cost grows with the jobs."""
CLOCK = "firecrawl/clock"
OWNER = "firecrawl"
"""The owner of all holds that any process of the protocol may renew."""


ANYBODY = Caller(
    name="firecrawl",
    tenant=None,
    rights=rights([Right.PRODUCE, Right.WORK, Right.OPERATE]),
    queues=(mapping.QUEUE,),
    types=(mapping.TYPE,),
)
"""The caller without a token, if the protocol is open: for every team, only for this protocol."""
TOKEN_HEADERS = ("authorization", KEY_HEADER)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    claim_s: float = 300.0
    """Time after which a popped job that was not completed or released can be popped again."""
    keep_s: float = 3600.0
    """How long the record of a completed or expired job is kept, for operators only."""
    body_max: int = 2 * MIB
    open: bool = False
    """Whether callers without a token may use the protocol, as Firecrawl's own client does."""
    local_only: bool = False
    """If it is open, accept only requests to the names of this machine."""

    def checked(self) -> Settings:
        for name, least, most in (("claim_s", 0.1, LEASE_S_MAX), ("keep_s", 0, DELAY_S_MAX)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(field=name, why=f"must be {least} to {most:g}")
        return self


class Wire:
    """The state of the protocol; one for each process."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.store = service.store
        self.settings = settings.checked()
        self.claim_us = micros(settings.claim_s)
        keep = micros(settings.keep_s)
        # An expired claim costs an attempt, and a postponed job must not fail because of that.
        self.rules = Rules(max_attempts=ATTEMPTS_MAX, keep_us=keep, keep_failed_us=keep)
        self.holds: Coalescer[Take, Hold] = Coalescer(
            service.store.hold, batch_max=BATCH_MAX, pending_max=PENDING_MAX
        )
        self.nonces = Nonces(service.store)
        self.walked: OrderedDict[tuple[bool, str | None], int] = OrderedDict()
        """The cursors of the searches for overdue claims (True) and jobs, of a team or of all."""
        self._recounted_at = float("-inf")
        self._listed: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._markers: OrderedDict[str, tuple[Micros, str | None]] = OrderedDict()

    async def caller(self, request: Request) -> Caller:
        """The caller. A token is required unless the protocol is open; if given, it is always
        checked.
        """
        if not self.settings.open or any(name in request.headers for name in TOKEN_HEADERS):
            return await self.service.caller(request)
        if self.settings.local_only:
            check_local(request)
        return self.service.admitted(request, ANYBODY)

    async def now(self) -> Micros:
        """The current time of the store's clock."""
        [hold] = await self.store.hold([Take(CLOCK, OWNER, 1)])
        return hold.until - 1

    async def recounted(self) -> int:
        """The correction of a full recount; 0 if the last one is recent."""
        now = time.monotonic()
        if now - self._recounted_at < RECOUNT_S:
            return 0
        self._recounted_at = now
        return await recount(self.store)

    # -- crawls ----------------------------------------------------------------------------------

    async def list_crawl(self, crawl: str, tenant: str) -> None:
        """Records that the team has jobs or markers of the crawl, before the first is stored. All
        teams share the list, which is a hint: a full list refuses nothing.
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
        """Removes the crawl from the list. A concurrent push does no harm: see `crawl_tallies`."""
        for tenant in tenants:
            self._listed.pop((crawl, tenant), None)
            await self._team_of(crawl, tenant, 0)

    async def _team_of(self, crawl: str, tenant: str, length: Micros) -> None:
        name = mapping.crawl_scope(crawl).slot(mapping.TEAMS + tenant)
        await self.holds.submit(Take(name, OWNER, length))

    async def crawl_teams(self, crawl: str) -> list[str]:
        """The teams known to have jobs of the crawl; a hint."""
        under = mapping.crawl_scope(crawl).slot(mapping.TEAMS)
        return [hold.name.removeprefix(under) async for hold in self.each_hold(under, TEAMS_MAX)]

    async def each_hold(self, under: str, most: int) -> AsyncIterator[Hold]:
        """The first held names under a prefix, read page by page."""
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
        """The counts of the crawl: in one team, or in each team with jobs of it.

        The list of teams makes this cheap. A count of 0 must come from the counts of all teams,
        because a crawl without jobs is taken for finished.
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
        """Sets or renews a marker; a duration of 0 removes it. `tenant` may ask how many of its own
        have ended. The list entry of the marker is taken in the same step, or refused with it.
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
        """The number of markers of this process that have expired since the last call: of one
        tenant, or of all.
        """
        names = [
            name
            for name, (until, whose) in self._markers.items()
            if until <= now and tenant in (None, whose)
        ]
        for name in names[:most]:
            del self._markers[name]
        return len(names[:most])
