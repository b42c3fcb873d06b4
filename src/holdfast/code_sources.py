"""`@app.source(...)`: sources that the code defines. Polls and changes are jobs of ordinary types.

A poll is a job of the type `poll/<name>`, made by a schedule of the same name, so it is limited,
paused, retried and looked at as every other job. A worker without the code leaves it to one with.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack, overload

from msgspec.structs import replace

from holdfast.code_schedules import CodeSchedules, ScheduleDecorator
from holdfast.context import Context
from holdfast.core.check import check_seconds
from holdfast.core.clock import micros
from holdfast.core.codec import JSON
from holdfast.core.errors import ConfigError, HoldfastError, InvalidInput, did_you_mean
from holdfast.core.retry import RetryPolicy
from holdfast.core.schedule import OVER_ALL
from holdfast.core.source import (
    GROUP,
    POLL,
    ChangeKind,
    SourceChange,
    SourcePlan,
    Strategy,
    check_source,
    strategy_of,
)
from holdfast.core.spec import JobSpec
from holdfast.enqueue import scheduled_for
from holdfast.firing import Tenants
from holdfast.sources.poll import Poll
from holdfast.sources.reader import FETCH_S, Fetch, Reader
from holdfast.sources.stored import Stored
from holdfast.typed import JobFunction, JobType

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("holdfast.sources")

TAG = "source:"
"""The tag of the jobs of changes: it names the source."""
POLL_ATTEMPTS = 10
"""Attempts of one poll, by default. The schedule makes another one after it."""


class PollOptions(TypedDict, total=False):
    """The options of `@app.source` that are those of the job of a poll."""

    queue: str
    priority: int
    max_attempts: int
    retry: RetryPolicy | str
    timeout: float
    keep: float
    keep_failed: float


class SourceOptions(PollOptions, total=False):
    """The options of `@app.source`. Durations are in seconds."""

    every: float | None
    """The time between two polls; without it there are only those that are asked for."""
    tenant: str
    """Whose source it is. Default: the app's tenant."""
    tenants: Tenants
    """Lists the tenants: each has the source."""
    page: int
    """How many items a full page has: a poll ends with a page that is not full."""
    pages: int
    """Pages of one poll at most; the next one goes on."""
    page_timeout: float
    strategy: Strategy | str
    overlap: float
    """How far below its cursor a poll begins: ids, or seconds."""
    reconcile: float | None
    """The time between two full listings, which find what polls missed and what is gone."""
    deletes: float
    """The share of the objects that one full listing may find gone; more is refused."""
    keep_gone: float
    """How long the tombstones of objects that are gone are kept."""
    ordered: bool
    """Runs the jobs of the changes one at a time, in the order of the changes."""
    on_change: JobFunction[..., Any]
    """The job of each change, instead of a function under `@source.changed`."""


class Source:
    """A source of the code: what `@app.source` makes of a function."""

    def __init__(self, app: CodeSources, name: str, fetch: Fetch, given: SourceOptions) -> None:
        self.name = name
        self.function = fetch
        self.__doc__ = fetch.__doc__
        self._app = app
        self._listing = fetch
        self._given = given
        self._change: JobFunction[..., Any] | None = given.get("on_change")
        self.owner: str | None = None
        """The tenant; None with `tenants=`."""
        self.poll: JobFunction[..., Any]

    def __call__(self, ctx: Context, cursor: Any) -> Any:
        """What the function itself gives, for tests of it."""
        return self.function(ctx, cursor)

    @overload
    def changed(self, target: JobFunction[P, R], /) -> JobFunction[P, R]: ...
    @overload
    def changed(
        self, target: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> JobFunction[P, R]: ...
    @overload
    def changed(self, /, **options: Any) -> ScheduleDecorator: ...
    def changed(self, target: Any = None, /, **options: Any) -> Any:
        """Registers a function as the job of each change: `async def apply(ctx: Context, change:
        SourceChange)`. Takes the options of `@app.job`.
        """
        if target is None:
            return lambda function: self._changed(self._app.job(**options)(function))
        if options:
            why = "decorates a function; give options by name: @source.changed(queue='sync')"
            raise ConfigError(field="changed", why=why)
        return self._changed(target if isinstance(target, JobFunction) else self._app.job(target))

    def _changed(self, made: object) -> JobFunction[..., Any]:
        if self._change is not None:
            raise self._wrong("changed", "it has a job for its changes already")
        if not isinstance(made, JobFunction):
            raise self._wrong("changed", "must decorate a function, not a class")
        self._change = made
        return made

    def listing(self, fetch: Fetch) -> Fetch:
        """Registers a function that reads the whole source, from the beginning, where the one that
        polls cannot.
        """
        self._listing = fetch
        return fetch

    @property
    def reader(self) -> Reader:
        """How a poll reads it."""
        limit = self._given.get("page_timeout", FETCH_S)
        return Reader(self.name, self.function, self._listing, limit)

    def plan(self) -> SourcePlan:
        """What the code says about it. Raises ConfigError, which names what is wrong."""
        given = self._given
        reconcile, keep = given.get("reconcile"), given.get("keep_gone")
        try:
            spec, field = self._changes()
            plan = SourcePlan(
                change=spec,
                field=field,
                poll=self._app.spec_of_poll(self),
                strategy=strategy_of(given.get("strategy", Strategy.ASCENDING)),
                overlap=given.get("overlap", 0),
                page=given.get("page", 100),
                pages=given.get("pages", 1000),
                listing_us=None
                if reconcile is None
                else micros(check_seconds("reconcile", reconcile, 1.0)),
                share=given.get("deletes", 0.5),
                ordered=bool(given.get("ordered", False)),
            )
            if keep is not None:
                plan = replace(plan, keep_us=micros(check_seconds("keep_gone", keep)))
            return plan.checked()
        except InvalidInput as error:
            raise self._wrong(str(error.facts.get("field", "")), str(error)) from None

    def _changes(self) -> tuple[JobSpec, str]:
        """The job of a change without its payload, and its argument that takes the change."""
        change = self._change
        if change is None:
            why = f"nothing takes its changes: decorate a function with @{self.name}.changed"
            raise self._wrong("changed", why)
        job_type = self._app.registry.of_kind(change.kind)
        field = self._field(change, job_type)
        spec = JobSpec(
            type=job_type.name,
            codec=JSON,
            version=job_type.version,
            body=b"",
            queue=job_type.queue,
            priority=job_type.priority,
            rules=job_type.rules,
            group=f"{GROUP}{self.name}" if self._given.get("ordered") else None,
            tags=(f"{TAG}{self.name}",),
        )
        return spec, field

    def _field(self, change: JobFunction[..., Any], job_type: JobType) -> str:
        name = job_type.name
        if job_type.codec != JSON:
            why = f"the job {name!r} of its changes must have the codec json, not {job_type.codec}"
            raise self._wrong("changed", why)
        if job_type.key is not None:
            why = f"the job {name!r} of its changes may have no key=: each change is made once"
            raise self._wrong("changed", why)
        for field in change.kind.__struct_fields__:
            sample = SourceChange(
                source=self.name, kind=ChangeKind.CREATED, id="1", number=1, version=1
            )
            try:
                change(**{field: sample})
            except InvalidInput:
                continue
            return field
        why = f"the job {name!r} of its changes must take one argument: change: SourceChange"
        raise self._wrong("changed", why)

    def _wrong(self, field: str, why: str) -> ConfigError:
        return ConfigError(field=f"source {self.name}: {field}", why=why)


class CodeSources(CodeSchedules):
    """The part of an App that defines sources."""

    def source(self, name: str, /, **given: Unpack[SourceOptions]) -> Callable[[Fetch], Source]:
        """Decorates a function that reads a page of a remote list after a cursor. A schedule polls
        it, and each change of an object becomes a job.
        """
        for option in given:
            known = {**SourceOptions.__annotations__, **PollOptions.__annotations__}
            if option not in known:
                hint = did_you_mean(option, known)
                raise ConfigError(field=option, why=f"a source has no such option.{hint}")
        try:
            check_source(name)
        except InvalidInput as error:
            raise ConfigError(field="source", why=str(error)) from None

        def decorate(fetch: Fetch) -> Source:
            return self._source(name, fetch, given)

        return decorate

    def _source(self, name: str, fetch: Fetch, given: SourceOptions) -> Source:
        if not callable(fetch):
            why = "decorates a function: @app.source('consignments', every=300)"
            raise ConfigError(field=f"source {name}", why=why)
        for option, seconds in (
            ("every", given.get("every")),
            ("reconcile", given.get("reconcile")),
        ):
            if seconds is not None:
                _check_length(name, option, seconds)
        source = Source(self, name, fetch, given)
        options: Any = {
            option: value
            for option, value in given.items()
            if option in PollOptions.__annotations__
        }
        options.setdefault("max_attempts", POLL_ATTEMPTS)
        poll = self.job(name=f"{POLL}{name}", **options)(_poll_of(self, source))
        source.poll = poll
        self._schedule_polls(source, poll, given)
        self.registry.plans[name] = source.plan
        self._code_sources.append(source)
        return source

    def _schedule_polls(
        self, source: Source, poll: JobFunction[..., Any], given: SourceOptions
    ) -> None:
        """Makes the schedule of its polls. One that pushes is only polled to be listed."""
        tenants = given.get("tenants")
        if tenants is None:
            source.owner = self._owner(given.get("tenant"), None, source.name)
        every = given.get("every") or given.get("reconcile")
        if every is None:
            return
        whose: Any = {"tenant": source.owner} if tenants is None else {"tenants": tenants}
        self.schedule(every=every, name=f"{POLL}{source.name}", **whose)(poll)

    @property
    def _code_sources(self) -> list[Source]:
        found: list[Source] = self.__dict__.setdefault("_sourced", [])
        return found

    def spec_of_poll(self, source: Source) -> JobSpec:
        """The job of its polls as a source keeps it."""
        tenant = source.owner or OVER_ALL
        return scheduled_for(self.registry, self.codecs, tenant, source.poll())

    async def register_sources(self) -> int:
        """Stores the plans of the sources of the code that are new or have changed; those of many
        tenants are stored by their polls. Returns how many. A worker calls it when it starts. A
        failure of the store is only logged: the worker can run other jobs.
        """
        number = 0
        for source in self._code_sources:
            plan = source.plan()
            if source.owner is None:
                continue
            stored = Stored(self.store, source.owner, source.name)
            try:
                number += await stored.register(plan)
            except HoldfastError as error:
                logger.warning("source %r was not registered: %s", source.name, error)
        return number


def _check_length(name: str, option: str, seconds: object) -> None:
    try:
        check_seconds(option, seconds, 1.0)
    except InvalidInput as error:
        raise ConfigError(field=f"source {name}", why=str(error)) from None


def _poll_of(app: CodeSources, source: Source) -> Callable[..., Any]:
    """The function of the job of its polls."""

    async def poll(ctx: Context) -> None:
        await Poll(app.store, ctx, source.reader, source.plan()).run()

    poll.__name__ = source.name
    poll.__module__ = source.function.__module__
    poll.__qualname__ = getattr(source.function, "__qualname__", source.name)
    return poll
