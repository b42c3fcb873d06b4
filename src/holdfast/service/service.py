"""What all requests share: the store, the coalescers, who may call, and how much is under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from starlette.requests import Request

from holdfast.coalesce import Coalescer
from holdfast.codec import Codecs
from holdfast.config import Config
from holdfast.enqueue import Enqueuer
from holdfast.job import NewJob, again
from holdfast.lifecycle import Transition
from holdfast.limits import BATCH_MAX
from holdfast.service.deadlines import Deadlines
from holdfast.service.metrics import Metrics
from holdfast.service.poll import Pollers
from holdfast.service.presences import Presences
from holdfast.service.rates import Rates
from holdfast.service.rights import Caller
from holdfast.service.settings import Limits
from holdfast.service.shares import Lanes, Places
from holdfast.store import Acked, Enqueued, Extended, Extension, Store
from holdfast.store_clock import StoreClock
from holdfast.tenant import Tenant
from holdfast.typed import Registry
from holdfast.types import Types

HELD = "holdfast.held"
"""Where a request's scope lists what gives the places back that it has taken."""
PENDING_MAX = 10_000
"""Single calls that may wait for a batch."""


class Auth(Protocol):
    """Tells who calls; Unauthenticated when nobody can tell."""

    async def caller(self, request: Request) -> Caller: ...


class Service:
    """One for each process."""

    def __init__(
        self,
        store: Store,
        auth: Auth,
        limits: Limits | None = None,
        config: Config | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.clock = clock
        """Seconds; tells when to ask again whether a token still holds."""
        self.limits = (limits or Limits()).checked()
        self.config = config or Config()
        self.codecs = Codecs()
        self.types = Types(store)
        self.pollers = Pollers(store)
        self.metrics = Metrics()
        self.enqueues: Coalescer[NewJob, Enqueued] = Coalescer(
            store.enqueue, batch_max=BATCH_MAX, pending_max=PENDING_MAX, again=again
        )
        self.acks: Coalescer[Transition, Acked] = Coalescer(
            store.ack, batch_max=BATCH_MAX, pending_max=PENDING_MAX
        )
        self.extends: Coalescer[Extension, Extended] = Coalescer(
            store.extend, batch_max=BATCH_MAX, pending_max=PENDING_MAX
        )
        self._auth = auth
        self._enqueuer = Enqueuer(store, Registry(), self.codecs, self.config)
        self._rates = Rates(self.limits.rate_per_s, self.limits.burst)
        self.deadlines = Deadlines()
        own_max = store.capabilities.payload_max or self.config.payload_max
        self.payload_max = min(self.config.payload_max, own_max)
        self.store_clock = StoreClock(store)
        self.presences = Presences()
        self.claims: dict[str, object] = {}
        """The last call of each claim that is under way, by nonce: a repeated one is the second."""
        of = self.limits
        self.under_way = Places("under_way", of.under_way, of.share)
        self.waiting = Places("waiting", of.waiting, of.share)
        self.streams = Places("streams", of.streams, of.share)
        self.reads = Lanes(of.reads)
        self.closing = False
        """Set at the end: who waits is answered at once."""

    async def caller(self, request: Request) -> Caller:
        """Who calls, if it may call now."""
        return self.admitted(request, await self.known(request))

    async def known(self, request: Request) -> Caller:
        """Who calls, however often it did."""
        return await self._auth.caller(request)

    def admitted(self, request: Request, caller: Caller) -> Caller:
        """The caller, if it has not called too often, and has a place for one call more."""
        self._rates.spend(caller.key)
        if not request.scope.get(HELD, True):  # Else it has been asked before.
            self.hold(request, self.under_way, caller)
        return caller

    def hold(self, request: Request, places: Places, caller: Caller) -> None:
        """A place for as long as the request lasts; the guard gives it back."""
        whose = places.take(caller)
        request.scope[HELD].append(partial(places.give, whose))

    def tenant(self, name: str) -> Tenant:
        return Tenant(name, self.store, self._enqueuer, self.codecs)

    @property
    def waiters(self) -> int:
        return self.waiting.taken

    def close(self) -> None:
        """Ends all waiting."""
        self.closing = True
        self.pollers.close()
