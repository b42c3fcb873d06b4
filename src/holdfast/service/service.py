"""What all requests share: the store, the coalescers, authentication, and concurrency limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec
from starlette.requests import Request

from holdfast.coalesce import Coalescer
from holdfast.config import Config
from holdfast.core.bounds import BATCH_MAX
from holdfast.core.codec import Codecs
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.core.job import Envelope, NewJob, again
from holdfast.core.lifecycle import Transition
from holdfast.dispatch import dispatched
from holdfast.enqueue import Enqueuer
from holdfast.mapped_store import offloading
from holdfast.payload.app_blobs import AppBlobs, blobs_by
from holdfast.payload.offload import offloads
from holdfast.service.deadlines import Deadlines
from holdfast.service.metrics import Metrics
from holdfast.service.poll import Pollers
from holdfast.service.presences import Presences
from holdfast.service.rates import Rates
from holdfast.service.rights import Caller
from holdfast.service.settings import Limits
from holdfast.service.shares import ReadLimits, ShareLimit
from holdfast.store import Acked, Enqueued, Extended, Extension, Store
from holdfast.store_clock import StoreClock
from holdfast.tenant import Tenant
from holdfast.typed import Registry
from holdfast.types import Types

HELD = "holdfast.held"
"""Key of the request's scope with the functions that release what it has taken."""
PENDING_MAX = 10_000
"""Maximum single calls that wait for a batch."""


class Auth(Protocol):
    """Identifies the caller. Raises Unauthenticated if that is not possible."""

    async def caller(self, request: Request) -> Caller: ...


class Service:
    """The shared state; one for each process."""

    def __init__(
        self,
        store: Store,
        auth: Auth,
        limits: Limits | None = None,
        config: Config | None = None,
        *,
        blobs: AppBlobs | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config or Config()
        self.app_blobs = blobs_by(self.config) if blobs is None else blobs
        """What it has for blobs: that of the app whose store it serves, or a bucket of its own."""
        store = dispatched(store)
        if self.app_blobs is not None:
            store = offloading(store, self.app_blobs)
        self.store = store
        self.clock = clock
        """A clock in seconds, for repeated checks of tokens."""
        self.limits = (limits or Limits()).checked()
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
        self.enqueuer = Enqueuer(store, Registry(), self.codecs, self.config, self.app_blobs)
        self._rates = Rates(self.limits.rate_per_s, self.limits.burst)
        self.deadlines = Deadlines()
        own_max = store.capabilities.payload_max or self.config.payload_max
        self.payload_max = min(self.config.payload_max, own_max)
        self.store_clock = StoreClock(store)
        self.presences = Presences()
        self.claims: dict[str, object] = {}
        """The last call of each current claim, by its nonce, to recognise a repeated claim."""
        of = self.limits
        self.under_way = ShareLimit("under_way", of.under_way, of.share)
        self.waiting = ShareLimit("waiting", of.waiting, of.share)
        self.streams = ShareLimit("streams", of.streams, of.share)
        self.reads = ReadLimits(of.reads)
        self.closing = False
        """Set at shutdown, so that waiting calls are answered at once."""

    def payload_most(self, sealed: Envelope) -> int:
        """How many bytes this payload of a caller may have."""
        if self.app_blobs is not None and offloads(sealed.codec, sealed.type):
            return max(self.payload_max, OFFLOADED_MAX)
        return self.payload_max

    @property
    def result_most(self) -> int:
        """How many bytes a result may have."""
        own = self.config.result_max
        return own if self.app_blobs is None else max(own, OFFLOADED_MAX)

    async def enqueued(self, job: NewJob) -> Enqueued:
        """Enqueues a job in a batch with those of others, which do not wait for its upload."""
        if self.app_blobs is not None:
            job = await self.app_blobs.ready(job)
        return await self.enqueues.submit(job)

    async def ready_ack(self, change: Transition) -> Transition:
        """The same of an ack. Raises why its result cannot be stored now."""
        if self.app_blobs is None or not isinstance(change.result, bytes):
            return change
        body = await self.app_blobs.ready_result(change.tenant, change.id, change.result)
        return msgspec.structs.replace(change, result=body)

    async def caller(self, request: Request) -> Caller:
        """The caller, if it may call now."""
        return self.admitted(request, await self.known(request))

    async def known(self, request: Request) -> Caller:
        """The caller, without a check of its rate."""
        return await self._auth.caller(request)

    def admitted(self, request: Request, caller: Caller) -> Caller:
        """The caller, if its rate and its share of concurrent requests allow another call."""
        self._rates.spend(caller.key)
        if not request.scope.get(HELD, True):  # Otherwise it was checked before.
            self.hold(request, self.under_way, caller)
        return caller

    def charge(self, caller: Caller, calls: int) -> None:
        """Counts a call that does the work of several as so many more. Later calls wait for it."""
        self._rates.charge(caller.key, calls)

    def hold(self, request: Request, places: ShareLimit, caller: Caller) -> None:
        """Takes a place for the duration of the request; the guard releases it."""
        whose = places.take(caller)
        request.scope[HELD].append(partial(places.give, whose))

    def tenant(self, name: str) -> Tenant:
        return Tenant(name, self.store, self.enqueuer, self.codecs)

    @property
    def waiters(self) -> int:
        return self.waiting.taken

    def close(self) -> None:
        """Ends all waiting calls."""
        self.closing = True
        self.pollers.close()
