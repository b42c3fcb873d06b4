"""The job types that the library has for flows: what runs at the end of one, its maps, its guards.

They are jobs as any other: they can be cut off anywhere and go on by what they remember.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.context import Context, Fail, Snooze
from holdfast.core.bounds import NODES_READ
from holdfast.core.clock import Micros
from holdfast.core.codec import JSON, Codecs, from_plain
from holdfast.core.errors import CodecNotFound
from holdfast.core.flow import (
    BEGIN,
    CANCEL,
    CANCEL_SIGNAL,
    GUARD,
    HEAD,
    ITEMS,
    KEPT,
    MAP,
    OWN_RULES,
    QUEUE,
    Guard,
    Head,
    flow_of,
    guard_of,
    head_of,
    node_id,
    own_id,
)
from holdfast.core.job import TERMINAL, JobRecord, NewJob, Reason, State
from holdfast.core.journal import Edge, OnFailure
from holdfast.core.mapped import is_mapped_codec
from holdfast.core.spec import JobSpec
from holdfast.journal_map import NAMED_MAX, child_id
from holdfast.lookup import find_jobs
from holdfast.store import Find, Ref, Selection, Store
from holdfast.typed import JobFunction, JobType, Registry, Style
from holdfast.workflow.cancel import Canceling
from holdfast.workflow.start import is_second, sweep, taken_begin

LOOK_S = 30
"""When a cancel looks again whether a map has made more jobs."""
LINE_MAX = 200
"""Characters of a node's error in the error of its flow."""


class Services(Protocol):
    """The parts of an app that these jobs use."""

    @property
    def store(self) -> Any: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def codecs(self) -> Codecs: ...


class Ended(msgspec.Struct, frozen=True):
    """How the nodes of a flow have ended. The head remembers it."""

    failed: int
    """How many have not completed."""
    named: Sequence[str]
    """Some of them, for people."""
    undo: Sequence[int]
    """The nodes to undo, in this order."""
    canceled: bool


def flow_types(app: Services) -> list[JobType]:
    """The job types of flows, which every app has."""

    async def head(
        ctx: Context,
        *,
        name: str,
        nodes: int,
        maps: Any = None,
        taken: Any = None,
        undo: Any = (),
        last: Any = (),
        origin: str | None = None,
        begins: bool = False,
    ) -> None:
        await _Ending(app.store, ctx, head_of(ctx.job)).run()

    async def items(ctx: Context, *, spec: JobSpec, field: str, most: int, over: Any) -> None:
        await _map(app, ctx, spec, field, _listed(over, most))

    async def begin(ctx: Context) -> None:
        """Its end is all that counts."""

    async def guard(ctx: Context, *, n: int, b: bool = False) -> None:
        await _guard(app.store, ctx, guard_of(ctx.job.envelope.body))

    async def cancel(ctx: Context) -> None:
        canceling = Canceling(app.store)
        flow = flow_of(ctx.job_id)
        if await canceling.finish(ctx.tenant, flow):
            await ctx.sleep("until maps have stopped", seconds=LOOK_S)
            await canceling.finish(ctx.tenant, flow)

    return [
        _type(HEAD, head),
        _type(MAP, items),
        _type(BEGIN, begin),
        _type(GUARD, guard),
        _type(CANCEL, cancel),
    ]


def _type(name: str, work: Callable[..., Awaitable[None]]) -> JobType:
    return JobType(
        name=name,
        kind=JobFunction(work, name).kind,
        queue=QUEUE,
        priority=0,
        rules=OWN_RULES,
        style=Style.LOOP,
        version=1,
        upgrades={},
        codec=JSON,
        home="holdfast itself",
        built_in=True,
    )


# -- the end of a flow -----------------------------------------------------------------------------


class _Ending:
    """The run of a head: compensations, the last jobs, and how the flow has ended."""

    def __init__(self, store: Store, ctx: Context, head: Head) -> None:
        self._store = store
        self._ctx = ctx
        self._head = head

    async def run(self) -> None:
        ctx = self._ctx
        parents = ctx.journal.parents()
        if parents is None:
            why = "is a copy of the head of a flow, without its nodes; retry the flow instead"
            raise Fail(f"job {ctx.job_id} {why}")
        canceled = ctx.journal.has_signal(CANCEL_SIGNAL)
        if not parents.failed and not canceled and not self._head.last:
            return  # The common case, without anything to remember.

        async def look() -> Ended:
            if parents.failed == 0 and not canceled:
                return Ended(0, (), (), False)
            return await self._look(canceled)

        ended: Ended = await ctx.step("ended", look)
        specs = dict(self._head.undo)
        trouble: list[str] = []
        for number in ended.undo:
            trouble += await self._made(f"undo {number}", [specs[number]])
        if self._head.last:
            trouble += await self._made("finally", self._head.last)
        if ended.canceled:
            await self._store.cancel([Ref(ctx.tenant, ctx.job_id)])
            return
        if ended.failed:
            more = ended.failed - len(ended.named)
            told = "; ".join(ended.named) + (f"; and {more} more" if more else "")
            trouble.insert(0, f"{ended.failed} of {self._head.nodes} nodes failed: {told}")
        if trouble:
            raise Fail("; ".join(trouble))

    async def _made(self, name: str, specs: Sequence[JobSpec]) -> list[str]:
        """Runs jobs to their end; returns what went wrong. A worker without the keys of what they
        carry leaves them to another one.
        """
        if any(is_mapped_codec(spec.codec) for spec in specs):
            raise Snooze(LOOK_S)
        ctx = self._ctx
        ended = await ctx.journal.fan_out(name, lambda spec: spec.job(ctx.tenant, ""), specs)
        if not ended.failed:
            return []
        named = await _failed_children(self._store, ctx.job, name, ended.total)
        return [f"{name}: {each}" for each in named]

    async def _look(self, canceled: bool) -> Ended:
        """Reads how each node has ended."""
        wanted = {number for number, _ in self._head.undo}
        done: list[tuple[Micros, int]] = []
        own: list[str] = []
        behind: list[str] = []
        failed = 0
        ids = self._head.ids(self._ctx.job_id)
        async for number, job in _nodes(self._store, self._ctx.tenant, ids):
            if job is not None and job.state is State.COMPLETED:
                if number in wanted:
                    done.append((job.finished_at or 0, number))
                continue
            failed += 1
            cause = job is not None and job.state is State.FAILED
            cause = cause and job is not None and job.reason is not Reason.PARENT_FAILED
            listed = own if cause else behind
            if len(listed) < NAMED_MAX:
                listed.append(_told(number, job))
        undo = [number for _, number in sorted(done, reverse=True)]
        return Ended(failed, (own + behind)[:NAMED_MAX], undo, canceled)


async def _nodes(
    store: Store, tenant: str, ids: Sequence[str]
) -> AsyncIterator[tuple[int, JobRecord | None]]:
    """Each node by its number; None if its record is gone."""
    for first in range(0, len(ids), NODES_READ):
        part = tuple(ids[first : first + NODES_READ])
        found = {job.id: job for job in await find_jobs(store, tenant, part)}
        for number, id in enumerate(part, first):
            yield number, found.get(id)


def _told(number: int, job: JobRecord | None) -> str:
    if job is None:
        return f"number {number}: its record is gone"
    why = (job.error or job.state.value).strip().splitlines()[-1][:LINE_MAX]
    return f"{job.type} ({job.id}): {why}"


# -- maps ------------------------------------------------------------------------------------------


def _listed(over: Any, most: int) -> list[Any]:
    if not isinstance(over, list):
        kind = "None" if over is None else type(over).__name__
        raise Fail(f"the result to map over is no list but {kind}")
    if len(over) > most:
        raise Fail(f"the list to map over has {len(over)} items, at most {most}")
    return over


async def _map(app: Services, ctx: Context, spec: JobSpec, field: str, listed: list[Any]) -> None:
    """Makes a job of each item and ends with the last of them."""
    known = app.registry.named(spec.type)
    edge = Edge(flow_of(ctx.job_id), KEPT, OnFailure.RUN)

    def made(item: Any) -> NewJob:
        args: Any = {field: item}
        if known is not None and known.version == spec.version:
            try:
                args = msgspec.convert(args, known.kind, dec_hook=from_plain)
            except msgspec.ValidationError as error:
                raise Fail(f"an item does not fit {spec.type!r}: {error}") from error
        try:
            sealed = app.codecs.seal(spec.type, spec.version, spec.codec, args)
        except CodecNotFound as error:
            raise Fail(str(error)) from error
        return msgspec.structs.replace(
            msgspec.structs.replace(spec, body=sealed.body).job(ctx.tenant, ""), edges=(edge,)
        )

    ended = await ctx.journal.fan_out(ITEMS, made, listed)
    if ended.failed:
        named = await _failed_children(app.store, ctx.job, ITEMS, ended.total)
        more = ended.failed - len(named)
        told = "; ".join(named) + (f"; and {more} more" if more > 0 else "")
        raise Fail(f"{ended.failed} of {ended.total} jobs failed: {told}")


async def _failed_children(store: Store, job: JobRecord, join: str, total: int) -> list[str]:
    """Some of the jobs that have not completed, for people."""
    ids = [child_id(job, join, number) for number in range(total)]
    named: list[str] = []
    async for number, child in _nodes(store, job.tenant, ids):
        if child is None or child.state is not State.COMPLETED:
            named.append(_told(number, child))
        if len(named) == NAMED_MAX:
            break
    return named


# -- guards ----------------------------------------------------------------------------------------


async def _guard(store: Store, ctx: Context, guard: Guard) -> None:
    """Removes what is left of a start that was cut off."""
    flow = flow_of(ctx.job_id)
    nodes = [node_id(flow, number) for number in range(guard.n)][::-1]
    if not guard.b:
        return
    if not is_second(ctx.job):
        page = await store.find(Find(select=Selection(tenant=ctx.tenant, ids=(flow,)), limit=1))
        if any(job.state in TERMINAL and job.state is not State.CANCELED for job in page.jobs):
            return
        if not await taken_begin(store, ctx.job, own_id(flow, BEGIN)):
            return
    await sweep(store, ctx.tenant, flow, nodes)
