"""The remote store: the verbs of the contract, sent to a Holdfast service over HTTP.

Workers and clients that use it need no access to the database: the service runs the verbs on its
own store, by its own clock. `wire.py` has the message types, `client.py` connections and retries.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.check import check_token
from holdfast.core.clock import Clock, Micros
from holdfast.core.errors import (
    NOT_OPEN,
    HoldfastError,
    InvalidInput,
    PayloadTooLarge,
    SchemaTooNew,
    StoreUnavailable,
    StoreUnsupported,
)
from holdfast.core.job import By, Lease, NewJob, State
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
    Selection,
    Setting,
    Take,
    Tally,
    Watch,
)
from holdfast.stores.notifier import Notifier
from holdfast.stores.remote import wire
from holdfast.stores.remote.client import Client, HttpTransport, Transport, packed
from holdfast.stores.remote.options import Options, parse
from holdfast.stores.remote.wire import Hello, Verb

NEWS_S = 1.0
"""The longest wait for news: what happened before the service listens cannot be looked for."""

POLL_S = 1.0
"""How long a wait sleeps here when too many others of this process wait in the service already."""

READ = "read"
"""The right that `find` needs."""

NO_TOKEN = "-"
"""A token that no claim gives."""

T = TypeVar("T")
WithToken = TypeVar("WithToken", Extension, Transition)
Item = TypeVar("Item")


class RemoteStore:
    """Any thread that runs an event loop may call; a verb returns when the service has answered."""

    def __init__(
        self, options: Options, transport: Callable[[Options], Transport] = HttpTransport
    ) -> None:
        self.options = options
        self._transport = transport
        self._client: Client | None = None
        self._notifier = Notifier()
        self._wait_limit = _WaitLimit(options.waits)
        self._owner = 0
        self._hello: Hello | None = None
        # These hold until `open` has asked the service for those of its store.
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            encodes=True,
            payload_max=None,
            transactional_enqueue=False,
            native_wakeup=True,
            event_log=True,
            time_precision_us=1,
            cluster=False,
            scopes=True,
            platform=False,
            tiers=False,
            steps=False,
            sources=False,
        )

    @classmethod
    def from_url(cls, url: str, clock: Clock | None = None) -> RemoteStore:
        """The service's clock decides; a clock given here is not used."""
        return cls(parse(url))

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._client is not None and self._owner == os.getpid():
            return
        client = Client(self.options, self._transport(self.options))
        try:
            hello = await self._greet(client)
        except BaseException:
            await client.close()
            raise
        self._owner = os.getpid()
        self._client, self._hello = client, hello
        self.capabilities = msgspec.structs.replace(
            hello.capabilities,
            shared=True,
            encodes=True,
            transactional_enqueue=False,
            transactional_ack=False,
        )

    async def _greet(self, client: Client) -> Hello:
        hello = await client.hello()
        if hello.format > wire.FORMAT:
            name = self.options.name
            raise SchemaTooNew(store=name, found=hello.format, known=wire.FORMAT)
        if hello.format < wire.FORMAT:
            raise StoreUnsupported(store=self.options.name, feature=wire.other_format(hello.format))
        if self.options.token is not None and hello.caller is None:
            why = "the service does not know this token, or it has expired"
            raise StoreUnavailable(store=self.options.name, why=why)
        return hello

    async def close(self) -> None:
        client, self._client = self._client, None
        if self._owner != os.getpid():
            return  # After a fork the connections are the parent's.
        self._notifier.notify_all()
        if client is not None:
            await client.close()

    async def migrate(self) -> int:
        """The service migrates its own store; returns the version of the wire format."""
        client = Client(self.options, self._transport(self.options))
        try:
            return (await self._greet(client)).format
        finally:
            await client.close()

    # -- enqueue to ack ----------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        # A call whose answer was lost is sent again, and then the service knows its ids already.
        jobs = [msgspec.structs.replace(job, fresh=False) if job.fresh else job for job in jobs]
        if whole:
            return await self._enqueue_whole(jobs)
        return await self._in_parts(
            wire.ENQUEUE, jobs, lambda job, error: Enqueued(job.id, False, error), wire.NewJobs
        )

    async def _enqueue_whole(self, jobs: list[NewJob]) -> list[Enqueued]:
        client, hello = self._mine()
        body = packed(wire.ENQUEUE, wire.NewJobs(jobs, whole=True))
        if len(body) <= hello.body_max:
            return await client.ask(wire.ENQUEUE, body)
        error = PayloadTooLarge(field="jobs", size=len(body), max=hello.body_max)
        return [Enqueued(job.id, False, error) for job in jobs]

    async def claim(self, claim: Claim) -> list[Lease]:
        return await self._ask(wire.CLAIM, claim)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        return await self._in_parts(
            wire.EXTEND,
            [_sendable(one) for one in extensions],
            lambda one, error: Extended(one.id, error=error),
        )

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        # Acks of upkeep have a route of their own: a worker's token has no right to it.
        upkeep = any(change.lapsed or change.token is None for change in transitions)
        return await self._in_parts(
            wire.LAPSE if upkeep else wire.ACK,
            [_sendable(change) for change in transitions],
            lambda change, error: Acked(change.id, error=error),
        )

    # -- cancel and change -------------------------------------------------------------------------

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        return await self._in_parts(
            wire.SIGNAL,
            signals,
            lambda signal, error: Signaled(signal.id, False, error),
            lambda part: wire.Signals(part, by),
        )

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        return await self._ask(wire.CANCEL, wire.Refs(list(refs), by))

    async def change(self, change: Change) -> Changed:
        return (await self._ask(wire.CHANGE, change)).changed()

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        return await self._ask(wire.EXPIRED, wire.Limit(limit))

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        return await self._ask(wire.PRUNE, wire.Pruning(limit, events_keep_us))

    # -- find, count, explain, events --------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        ref = _running(find)
        caller = self.hello.caller
        if ref is not None and caller is not None and READ not in caller.rights:
            return (await self._ask(wire.REMEMBERED, ref)).page()
        return (await self._ask(wire.FIND, find)).page()

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
        asked = wire.Counting(tenant=tenant, by=by, part=part, after=after, limit=limit)
        return await self._ask(wire.RECOUNT if recount else wire.COUNT, asked)

    async def explain(self, ref: Ref) -> Explanation:
        return await self._ask(wire.EXPLAIN, ref)

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        asked = wire.Reading(tenant=tenant, after=after, limit=limit, job_id=job_id)
        return await self._ask(wire.EVENTS, asked)

    # -- settings and holds ------------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        listed = None if under is None else wire.Under(under, after, limit)
        if puts:
            return await self._ask(wire.PUT, wire.Puts(list(puts), listed, by))
        return [] if listed is None else await self._ask(wire.SETTINGS, listed)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        listed = None if under is None else wire.Under(under, after, limit)
        if takes:
            return await self._ask(wire.HOLD, wire.Takes(list(takes), listed))
        return [] if listed is None else await self._ask(wire.HOLDS, listed)

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        if isinstance(ask, ShadowRead):
            return await self._ask(wire.SHADOW, ask)
        # As with enqueue: a step whose answer was lost is sent again.
        jobs = tuple(msgspec.structs.replace(job, fresh=False) for job in ask.jobs)
        return await self._ask(wire.STEP, msgspec.structs.replace(ask, jobs=jobs))

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        """Returns early if the service allows only shorter waits: waking in vain is allowed."""
        client, hello = self._mine()
        most = min(hello.wait_s, NEWS_S if watch.news else hello.wait_s)
        wait_s = max(0.0, min(timeout_s, most))
        verb = wire.WATCH if watch.news or watch.job is not None else wire.WAIT
        body = packed(verb, wire.Sleep(watch, wait_s))
        with self._notifier.listen(watch) as listener, self._wait_limit.one() as allowed:
            if not allowed:
                await listener.sleep(min(wait_s, POLL_S))
                return
            asking = asyncio.ensure_future(client.ask(verb, body, wait_s=wait_s))
            closing = asyncio.ensure_future(listener.sleep(wait_s + 2 * self.options.timeout_s))
            try:
                await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in (asking, closing):
                    one.cancel()
                await asyncio.gather(asking, closing, return_exceptions=True)
        if not asking.cancelled() and self._client is client:
            asking.result()

    # -- inside ----------------------------------------------------------------------------------

    @property
    def hello(self) -> Hello:
        """What the service said when the store was opened, for the doctor."""
        return self._mine()[1]

    async def _ask(self, verb: Verb[T], value: object) -> T:
        client, _ = self._mine()
        return await client.ask(verb, packed(verb, value))

    async def _in_parts(
        self,
        verb: Verb[list[T]],
        items: Sequence[Item],
        refused: Callable[[Item, HoldfastError], T],
        shape: Callable[[list[Item]], object] = list,
    ) -> list[T]:
        """Sends a batch in as many calls as the service's limit on bodies requires, mostly one."""
        client, hello = self._mine()
        body = packed(verb, shape(list(items)))
        if len(body) <= hello.body_max:
            return await client.ask(verb, body)
        if len(items) == 1:
            error = PayloadTooLarge(field="payload", size=len(body), max=hello.body_max)
            return [refused(items[0], error)]
        half = len(items) // 2
        parts: list[Any] = await self._in_parts(verb, items[:half], refused, shape)
        return parts + await self._in_parts(verb, items[half:], refused, shape)

    def _mine(self) -> tuple[Client, Hello]:
        """The client, if this process has opened the store."""
        if self._client is None or self._hello is None:
            raise StoreUnavailable(store=self.options.name, why=NOT_OPEN)
        if self._owner != os.getpid():
            why = "it was opened before a fork; open it again in the child process"
            raise StoreUnavailable(store=self.options.name, why=why)
        return self._client, self._hello


def _running(find: Find) -> Ref | None:
    """The job of which this reads what its lease has left out; None if it reads something else."""
    select = find.select
    if not find.journals or select.tenant is None or len(select.ids) != 1:
        return None
    [id] = select.ids
    asked = Selection(tenant=select.tenant, ids=(id,), states=(State.PROCESSING,))
    return Ref(select.tenant, id) if select == asked else None


def _sendable(one: WithToken) -> WithToken:
    """The item. A token that no claim can have given is replaced by one that no claim gives: the
    service would refuse the whole batch because of it, its store refuses only this item.
    """
    if one.token is not None:
        try:
            check_token("token", one.token)
        except InvalidInput:
            return msgspec.structs.replace(one, token=NO_TOKEN)
    return one


class _WaitLimit:
    """How many waits may be open in the service at a time: each takes a connection."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[bool]:
        """Whether one more is allowed; it counts until the end of the block."""
        with self._lock:
            allowed = self._open < self._most
            self._open += allowed
        try:
            yield allowed
        finally:
            with self._lock:
                self._open -= allowed
