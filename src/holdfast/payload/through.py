"""A store behind a mapper: every verb of the contract, with the bytes that jobs carry mapped.

It stands between the dispatcher and the store. Several can stand behind each other: the outer one
maps first what goes out, and last what comes in. A value that cannot be mapped fails its own item,
never the others of its call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Micros
from holdfast.core.errors import BatchRefused, HoldfastError, KeyUnavailable, StoreError
from holdfast.core.job import By, Lease, NewJob, Reason, State
from holdfast.core.journal import Signal, Signaled
from holdfast.core.lifecycle import Transition, clip
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.payload import incoming, outgoing
from holdfast.payload.outer import OuterStore
from holdfast.payload.values import Mapped, Mapper, Use, Value
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
    Store,
    Take,
    Tally,
    Watch,
)

T = TypeVar("T")
Answer = TypeVar("Answer")


class ThroughStore(OuterStore):
    """A store whose jobs' bytes pass through a mapper. `inner` is the store behind it."""

    def __init__(self, inner: Store, mapper: Mapper) -> None:
        self.inner = inner
        self.mapper = mapper

    @property
    def secret(self) -> bool:
        own: bool = getattr(self.mapper, "secret", True)
        return own or (isinstance(self.inner, OuterStore) and self.inner.secret)

    @property
    def capabilities(self) -> Capabilities:
        return self.mapper.capabilities(self.inner.capabilities)

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()
        await self.mapper.close()

    async def migrate(self) -> int:
        return await self.inner.migrate()

    async def prepare(self, tenant: str) -> None:
        await self.mapper.prepare(tenant)
        if isinstance(self.inner, OuterStore):
            await self.inner.prepare(tenant)

    # -- enqueue to ack --------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, whole: bool = False) -> list[Enqueued]:
        mapped = await self._jobs(jobs)
        fit = [job for job in mapped if isinstance(job, NewJob)]
        if whole and len(fit) < len(jobs):
            return [
                Enqueued(job.id, False, BatchRefused(id=job.id) if isinstance(got, NewJob) else got)
                for job, got in zip(jobs, mapped, strict=True)
            ]
        return _merged(jobs, mapped, await self.inner.enqueue(fit, whole=whole) if fit else [])

    async def enqueue_using(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        mapped = await self._jobs(jobs)
        fit = [job for job in mapped if isinstance(job, NewJob)]
        call = cast(Any, self.inner).enqueue_using
        return _merged(jobs, mapped, await call(connection, fit) if fit else [])

    async def _jobs(self, jobs: Sequence[NewJob]) -> list[NewJob | HoldfastError]:
        found = await self._out(jobs, outgoing.job_values, outgoing.job_with, waits=False)
        return [
            outgoing.unread(job.envelope.codec, job.envelope.body) or got
            for job, got in zip(jobs, found, strict=True)
        ]

    async def claim(self, claim: Claim) -> list[Lease]:
        leases = await self.inner.claim(claim)
        return await self._in(leases, incoming.lease_values, incoming.lease_with, Use.RUN)

    async def extend(self, extensions: Sequence[Extension]) -> list[Extended]:
        """A value that cannot be mapped now does not cost its job the lease: that is renewed
        without it, and the answer says why.
        """
        mapped = await self._out(extensions, outgoing.extension_values, outgoing.extension_with)
        sent = [_bare(one, got) for one, got in zip(extensions, mapped, strict=True)]
        answers = iter(await self.inner.extend([one for one in sent if one is not None]))
        found = []
        for one, got, each in zip(extensions, mapped, sent, strict=True):
            why = got if isinstance(got, HoldfastError) else None
            answer = Extended(one.id, error=why) if each is None else next(answers)
            if why is not None and answer.error is None:
                answer = msgspec.structs.replace(answer, error=why)
            found.append(answer)
        return found

    async def ack(self, transitions: Sequence[Transition]) -> list[Acked]:
        """An outcome that can never be mapped fails the job. One that cannot be mapped now is
        answered with KeyUnavailable, and may be sent again while the lease lasts.
        """
        found = await self._out(transitions, outgoing.transition_values, outgoing.transition_with)
        mapped = [
            _lost(one, got)
            if isinstance(got, HoldfastError) and not isinstance(got, KeyUnavailable)
            else got
            for one, got in zip(transitions, found, strict=True)
        ]
        sent = [one for one in mapped if isinstance(one, Transition)]
        answers = iter(await self.inner.ack(sent) if sent else [])
        return [
            Acked(one.id, error=got) if isinstance(got, HoldfastError) else next(answers)
            for one, got in zip(transitions, mapped, strict=True)
        ]

    async def mapped(self, change: Transition) -> Transition:
        [found] = await self._out([change], outgoing.transition_values, outgoing.transition_with)
        if isinstance(found, HoldfastError):
            raise found
        return await self.inner.mapped(found) if isinstance(self.inner, OuterStore) else found

    async def ack_using(self, connection: Any, change: Transition) -> Acked:
        """The caller has had the transition `mapped`: inside its transaction nothing may wait."""
        found: Acked = await cast(Any, self.inner).ack_using(connection, change)
        return found

    # -- signal, cancel and change ---------------------------------------------------------------

    async def signal(self, signals: Sequence[Signal], *, by: By | None = None) -> list[Signaled]:
        mapped = await self._out(signals, outgoing.signal_values, outgoing.signal_with)
        sent = [one for one in mapped if isinstance(one, Signal)]
        answers = iter(await self.inner.signal(sent, by=by) if sent else [])
        return [
            Signaled(one.id, False, got) if isinstance(got, HoldfastError) else next(answers)
            for one, got in zip(signals, mapped, strict=True)
        ]

    async def cancel(self, refs: Sequence[Ref], *, by: By | None = None) -> list[Canceled]:
        return await self.inner.cancel(refs, by=by)

    async def change(self, change: Change) -> Changed:
        """A store copies the mapped bytes of a job that it replays."""
        return await self.inner.change(change)

    # -- upkeep ----------------------------------------------------------------------------------

    async def expired(self, limit: int) -> list[Lapsed]:
        """The jobs as they are stored: nobody reads what they carry."""
        return await self.inner.expired(limit)

    async def prune(self, limit: int, events_keep_us: Micros) -> Pruned:
        return await self.inner.prune(limit, events_keep_us)

    # -- find, count, explain, events ------------------------------------------------------------

    async def find(self, find: Find) -> Page:
        page = await self.inner.find(find)
        owned = list(page.journals.items())
        wanted: list[list[Value]] = [incoming.record_values(job) for job in page.jobs]
        journals = [incoming.journal_values(one) for one in owned]
        flat = [value for values in (*wanted, *journals) for value in values]
        if not flat:
            return page
        taken = iter(await _asked(flat, self.mapper.incoming(flat, Use.READ)))
        jobs = [incoming.record_with(job, taken) for job in page.jobs]
        found = dict(
            incoming.journal_with(one, [next(taken) for _ in values])
            for one, values in zip(owned, journals, strict=True)
        )
        return Page(jobs, page.cursor, found)

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
        return await self.inner.count(
            tenant, by=by, part=part, after=after, limit=limit, recount=recount
        )

    async def explain(self, ref: Ref) -> Explanation:
        return await self.inner.explain(ref)

    async def events(
        self, tenant: str | None, after: int, limit: int, job_id: str | None = None
    ) -> EventPage:
        page = await self.inner.events(tenant, after, limit, job_id)
        found = await self._in(page.events, incoming.event_values, incoming.event_with, Use.READ)
        return EventPage(found, page.cursor, page.lost)

    # -- settings and holds ----------------------------------------------------------------------

    async def settings(
        self,
        puts: Sequence[Put] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
        by: By | None = None,
    ) -> list[Setting]:
        mapped = await self._out(puts, outgoing.put_values, outgoing.put_with)
        for one in mapped:
            if isinstance(one, HoldfastError):  # All of them are stored, or none.
                raise one
        sent = [await self._kept(put) for put in cast(list[Put], mapped)]
        found = await self.inner.settings(sent, under=under, after=after, limit=limit, by=by)
        return await self._in(found, incoming.setting_values, incoming.setting_with, Use.READ)

    async def hold(
        self,
        takes: Sequence[Take] = (),
        *,
        under: str | None = None,
        after: str = "",
        limit: int = PAGE_MAX,
    ) -> list[Hold]:
        return await self.inner.hold(takes, under=under, after=after, limit=limit)

    # -- sources ---------------------------------------------------------------------------------

    async def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        """A step is stored whole or not at all, so what cannot be mapped refuses all of it."""
        if isinstance(ask, ShadowStep):
            [mapped] = await self._out([ask], outgoing.object_values, outgoing.objects_with)
            jobs = await self._jobs(ask.jobs)
            for one in (mapped, *jobs):
                if isinstance(one, HoldfastError):
                    raise one
            whole = tuple(cast(list[NewJob], jobs))
            ask = msgspec.structs.replace(cast(ShadowStep, mapped), jobs=whole)
        found = await self.inner.shadow(ask)
        rows = await self._in(
            found.rows,
            partial(incoming.row_values, ask.tenant, ask.source),
            incoming.row_with,
            Use.READ,
        )
        return found if rows is found.rows else msgspec.structs.replace(found, rows=rows)

    # -- wait ------------------------------------------------------------------------------------

    async def wait(self, watch: Watch, timeout_s: float) -> None:
        await self.inner.wait(watch, timeout_s)

    async def _kept(self, put: Put) -> Put:
        """A schedule whose payload cannot be read can be paused: its stored payload is kept."""
        if not outgoing.lacks_spec(put):
            return put
        found = await self.inner.settings(under=put.name, limit=1)
        before = next((one for one in found if one.name == put.name), None)
        return outgoing.put_kept(put, before)

    # -- inside ----------------------------------------------------------------------------------

    async def _out(
        self,
        items: Sequence[T],
        values_of: Callable[[T], list[Value]],
        put_back: Callable[[T, Sequence[Value]], T],
        *,
        waits: bool = True,
    ) -> list[T | HoldfastError]:
        """The items with their values mapped, or why one cannot be. Where what the mapper needs is
        away, they wait for it, or the call fails.
        """
        values = [values_of(item) for item in items]
        flat = [value for each in values for value in each]
        if not flat:
            return list(items)
        answers = self.mapper.outgoing(flat)
        taken = iter(await (_asked(flat, answers) if waits else answers))
        found: list[T | HoldfastError] = []
        for item, each in zip(items, values, strict=True):
            mapped = [next(taken) for _ in each]
            error = _error(mapped)
            if error is not None:
                found.append(error)
            else:
                same = all(got is value for got, value in zip(mapped, each, strict=True))
                found.append(item if same else put_back(item, cast(list[Value], mapped)))
        return found

    async def _in(
        self,
        items: Sequence[T],
        values_of: Callable[[T], list[Value]],
        put_back: Callable[[T, Sequence[Mapped]], T],
        use: Use,
    ) -> list[T]:
        """The items with their values in plain form, or with what stands for those that cannot be
        read.
        """
        values = [values_of(item) for item in items]
        flat = [value for each in values for value in each]
        if not flat:
            return list(items)
        taken = iter(await _asked(flat, self.mapper.incoming(flat, use)))
        found = []
        for item, each in zip(items, values, strict=True):
            mapped = [next(taken) for _ in each]
            same = all(got is value for got, value in zip(mapped, each, strict=True))
            found.append(item if same else put_back(item, mapped))
        return found


async def _asked(values: Sequence[Value], answers: Awaitable[Sequence[Mapped]]) -> Sequence[Mapped]:
    """What the mapper answers. Where what it needs is away, every value waits: a claim that raised
    would lose its leases, and a heartbeat those of other jobs.
    """
    try:
        return await answers
    except StoreError as error:
        away = KeyUnavailable(store="keys", why=str(error))
        return [away] * len(values)


def _error(mapped: Sequence[Mapped]) -> HoldfastError | None:
    """Why an item cannot be sent: what cannot be mended counts more than what can."""
    errors = [one for one in mapped if isinstance(one, HoldfastError)]
    lasting = (one for one in errors if not isinstance(one, KeyUnavailable))
    return next(lasting, errors[0] if errors else None)


def _merged(
    jobs: Sequence[NewJob], mapped: Sequence[NewJob | HoldfastError], answers: list[Enqueued]
) -> list[Enqueued]:
    rest = iter(answers)
    return [
        next(rest) if isinstance(got, NewJob) else Enqueued(job.id, False, got)
        for job, got in zip(jobs, mapped, strict=True)
    ]


def _bare(one: Extension, got: Extension | HoldfastError) -> Extension | None:
    """What is sent of an extension: without its values if these cannot be mapped now, nothing if
    they never can.
    """
    if isinstance(got, Extension):
        return got
    if not isinstance(got, KeyUnavailable):
        return None
    return msgspec.structs.replace(one, entries=(), progress=None)


def _lost(one: Transition, error: HoldfastError) -> Transition:
    """The failure of a job whose outcome cannot be stored; its own reason, if it has failed."""
    failed = one.to is State.FAILED and one.reason is not None
    return Transition(
        tenant=one.tenant,
        id=one.id,
        token=one.token,
        to=State.FAILED,
        lapsed=one.lapsed,
        reason=one.reason if failed else Reason.PERMANENT,
        error=clip(f"its {'error' if failed else 'outcome'} cannot be stored: {error}"),
    )
