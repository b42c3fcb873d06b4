"""App: registers job types and opens a store. The one object that a program shares."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from holdfast.code_sources import CodeSources
from holdfast.config import Config
from holdfast.context import Context, Missing, SyncContext
from holdfast.core.bounds import (
    ATTEMPTS_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_MAX,
    TENANT_MAX,
    TYPE_MAX,
)
from holdfast.core.check import RESERVED, check_name, check_whole, is_reserved
from holdfast.core.clock import Clock, micros
from holdfast.core.codec import REFS, Codec, Codecs, Upgrade
from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.core.job import Rules
from holdfast.core.retry import policy
from holdfast.default_calls import DefaultCalls
from holdfast.default_tenant import no_default
from holdfast.dispatch import Dispatcher, name_of
from holdfast.enqueue import Enqueuer, SharedOptions, amend, checked
from holdfast.events import Announcer, Subscriber
from holdfast.firing import tick_type
from holdfast.idempotency import KeyOf, key_of
from holdfast.lifespan import Lifespan, check_lifespan, opened
from holdfast.mapped_store import behind, given_store
from holdfast.middleware import Middleware, chain
from holdfast.payload.app_blobs import blobs_by
from holdfast.platform import PlatformHandle
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.sync import SyncApp
from holdfast.tenant import Tenant
from holdfast.typed import (
    AnyJob,
    Job,
    JobFunction,
    JobType,
    Registry,
    Style,
    result_of,
    the_job,
)
from holdfast.types import publish
from holdfast.unstored import unstored
from holdfast.webhooks.deliver import Delivering, webhook_type
from holdfast.webhooks.networks import allowed
from holdfast.workflow.handler import flow_types

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=type[Job])


class TypeOptions(SharedOptions, total=False):
    """The options of `@app.job`."""

    name: str
    """The name stored with every job. Do not change it when the code moves. Default: the name of
    the function or class.
    """
    key: str | KeyOf
    """Derives the idempotency key of each job: a text with names of arguments, as in
    `"waveform:{track_id}"`, or a callable that takes the job and returns its key, or None for none.
    """
    cpu: bool
    """Runs the handler in a child process, for CPU-bound work."""
    version: int
    upgrades: Mapping[int, Upgrade]
    """For each older version, a function from its plain data to that of the next version."""
    codec: str


class JobDecorator(Protocol):
    @overload  # A Job class is callable too; the first overload that matches applies.
    def __call__(self, target: K) -> K: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(
        self, target: Callable[Concatenate[Context[Any], P], Awaitable[R]]
    ) -> JobFunction[P, R]: ...
    @overload
    def __call__(self, target: Callable[Concatenate[Context[Any], P], R]) -> JobFunction[P, R]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[SyncContext[Any], P], R]
    ) -> JobFunction[P, R]: ...


class App(CodeSources, DefaultCalls):
    """`App("sqlite:///jobs.db")`; settings by name, as in `Config`; `keys` as `encryption.Keys`."""

    def __init__(
        self,
        store: str | Store,
        *,
        clock: Clock | None = None,
        middleware: tuple[Middleware, ...] = (),
        codecs: tuple[Codec, ...] = (),
        lifespan: Lifespan | None = None,
        keys: Any = None,
        **settings: Any,
    ) -> None:
        self.config = Config.of(**settings)
        self.app_blobs = blobs_by(self.config)
        self._keys = keys
        given = open_store(store, clock) if isinstance(store, str) else given_store(store)
        self.store: Dispatcher = behind(given, keys, self.app_blobs)
        allowed(self.config.webhooks_allow)  # A wrong entry is told now, not by each delivery.
        self.url = store if isinstance(store, str) else None
        """What the store was opened by, if that was a URL."""
        self.codecs = Codecs(pickle=self.config.pickle)
        for codec in codecs:
            self.codecs.register(codec)
        self.codecs.get(self.config.codec)
        self.registry = Registry()
        for own in flow_types(self):
            self.registry.add(own)
        self.registry.add(tick_type(self.firing))
        self.registry.add(webhook_type(lambda: self.delivering))
        self.middleware = middleware
        self.lifespan = check_lifespan(lifespan)
        self.announcer = Announcer()
        self._users = 0
        self._process: int | None = None
        """The id of the process that opened the store last."""
        self._published = 0
        """The number of job types already published to the store."""

    # -- types -----------------------------------------------------------------------------------

    @overload
    def job(self, target: K, /) -> K: ...  # type: ignore[overload-overlap]
    @overload
    def job(
        self, target: Callable[Concatenate[Context[Any], P], Awaitable[R]], /
    ) -> JobFunction[P, R]: ...
    @overload
    def job(self, target: Callable[Concatenate[Context[Any], P], R], /) -> JobFunction[P, R]: ...
    @overload
    def job(
        self, target: Callable[Concatenate[SyncContext[Any], P], R], /
    ) -> JobFunction[P, R]: ...
    @overload
    def job(self, **options: Unpack[TypeOptions]) -> JobDecorator: ...
    def job(self, *target: Any, **options: Any) -> Any:
        """Registers a function or a Job class as a job type; without options also as `@app.job`."""
        if not target:
            return partial(self._job, options=cast(TypeOptions, options))
        if len(target) > 1 or options:
            raise _misused()
        return self._job(target[0], {})

    def _job(self, target: Any, options: TypeOptions) -> Any:
        if not callable(target):
            raise _misused()
        name = check_name("name", options.get("name", target.__name__), TYPE_MAX)
        if inspect.isclass(target):
            self._register(name, target, target, options)
            return target
        function: JobFunction[..., Any] = JobFunction(target, name)
        self._register(name, function.kind, target, options)
        return function

    def _register(self, name: str, kind: Any, source: Any, options: TypeOptions) -> None:
        if is_reserved(name):
            raise ConfigError(field=name, why=RESERVED)
        if not issubclass(kind, Job) or not callable(getattr(kind, "run", None)):
            raise ConfigError(
                field=name, why="a job class must derive from holdfast.Job and define run()"
            )
        own = ("name", "key", "cpu", "version", "upgrades", "codec")
        defaults = checked({key: value for key, value in options.items() if key not in own})
        for option in ("id", "run_at", "delay", "group", "tags", "ttl"):
            if option in defaults:
                raise ConfigError(field=option, why="is an option of enqueue, not of a job type")
        version = check_whole("version", options.get("version", 1), 1, 1_000_000)
        upgrades = options.get("upgrades", {})
        for step in range(min(upgrades, default=version), version):
            if step not in upgrades:
                raise ConfigError(field="upgrades", why=f"no upgrade from version {step}")
        rules = amend(self._rules, defaults)
        check_whole("max_attempts", rules.max_attempts, 1, ATTEMPTS_MAX)
        codec = options.get("codec", self.config.codec)
        self.codecs.get(codec)
        if codec == REFS:
            raise ConfigError(field="codec", why=f"{REFS!r} is for jobs of flows")
        self.registry.add(
            JobType(
                name=name,
                kind=kind,
                queue=_queue(defaults.get("queue", self.config.queue)),
                priority=check_whole(
                    "priority", defaults.get("priority", 0), PRIORITY_MIN, PRIORITY_MAX
                ),
                rules=rules,
                style=_style(name, source, options.get("cpu", False)),
                version=version,
                upgrades=upgrades,
                codec=codec,
                key=key_of(name, kind.__struct_fields__, options.get("key")),
                result=result_of(_work_of(source)),
                home=f"{source.__module__}:{source.__qualname__}",
            )
        )

    @cached_property
    def _rules(self) -> Rules:
        config = self.config
        return Rules(
            max_attempts=config.max_attempts,
            retry=policy(config.retry),
            timeout_us=None if config.timeout_s is None else micros(config.timeout_s),
            keep_us=micros(config.keep_s),
            keep_failed_us=micros(config.keep_failed_s),
        )

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Opens the store. Nested opens share it; the last close closes it.

        In a forked child the opens of the parent do not count. Opening publishes the job types, so
        that enqueues from other languages get their rules (`holdfast.types`).
        """
        if self._forked():
            if not self.store.capabilities.shared:
                why = "it cannot be shared with a forked process; create the App after the fork"
                raise StoreUnavailable(store=name_of(self.store), why=why)
            self._users = 0
        if self._users == 0:
            await self.store.open()
            self._process = os.getpid()
        self._users += 1
        if len(self.registry) != self._published:
            self._published = len(self.registry)
            await publish(self.store, self.registry)

    def _forked(self) -> bool:
        """Whether the parent process opened the store before it forked this one."""
        return self._process not in (None, os.getpid())

    async def close(self) -> None:
        """Ends one `open`. Does nothing if none is left."""
        if self._users == 0 or self._forked():
            return
        self._users -= 1
        if self._users == 0:
            await self.store.close()

    async def __aenter__(self) -> App:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def use_store(self, url: str) -> None:
        """Replaces the store of an app that is not open yet; for command lines and tests."""
        self._check_closed("store")
        self._place(open_store(url))
        self.url = url
        self._published = 0

    def use_blobs(self, url: str) -> None:
        """Replaces the bucket of an app that is not open yet."""
        self._check_closed("blobs")
        self.config = msgspec.structs.replace(self.config, blobs=url)
        self.app_blobs = blobs_by(self.config)
        self._place(self.store)

    def use_keys(self, keys: Any) -> None:
        """Encrypts with these keys, unless the app has its own; for command lines."""
        if self._keys is not None:
            return
        self._check_closed("keys")
        self._keys = keys
        self._place(self.store)

    def _check_closed(self, field: str) -> None:
        if self._users:
            raise ConfigError(field=field, why="the app is open; close it first")

    def _place(self, store: Dispatcher) -> None:
        self.store = behind(store, self._keys, self.app_blobs)
        for own in ("enqueuer", "delivering"):
            self.__dict__.pop(own, None)  # They belong to the previous store.

    # -- use -------------------------------------------------------------------------------------

    @cached_property
    def enqueuer(self) -> Enqueuer:
        return Enqueuer(self.store, self.registry, self.codecs, self.config, self.app_blobs)

    @cached_property
    def delivering(self) -> Delivering:
        """What sends the deliveries of webhooks in this app."""
        return Delivering(self.store, self.config)

    def tenant(self, name: str) -> Tenant:
        """A handle whose calls all act for this tenant."""
        check_name("tenant", name, TENANT_MAX)
        return Tenant(name, self.store, self.enqueuer, self.codecs)

    @property
    def default(self) -> Tenant:
        """The handle of the default tenant. Raises ConfigError if the app has none."""
        if self.config.tenant is None:
            raise no_default()
        return self.tenant(self.config.tenant)

    def platform(self) -> PlatformHandle:
        """A handle for the limits, rate and pause of all tenants together; it has one for each
        queue and for each job type.
        """
        return PlatformHandle(self.store, self.registry)

    @cached_property
    def sync(self) -> SyncApp:
        """The same calls without await, for blocking code in any thread."""
        return SyncApp(self)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Registers a callback for confirmed outcomes of this process. It must not block."""
        self.announcer.subscribers.append(subscriber)

    async def run_now(self, job: AnyJob[R], *, tenant: str = "now") -> R:
        """Runs a job in this process, without a store, through the same middleware. Raises what the
        handler raises. The lifespan is opened for the run.
        """
        made = the_job(job)
        job_type = self.registry.of(made)
        record = unstored(tenant, job_type, made, self.codecs)

        async def handler(ctx: Context, job: Job) -> Any:
            if job_type.style is Style.PROCESS:
                ctx = Context(record, state=Missing.CHILD)
            result = job.run(ctx)
            return await result if inspect.isawaitable(result) else result

        async with opened(self.lifespan, self) as state:
            result: R = await chain(self.middleware, handler)(Context(record, state=state), made)
        return result


def _queue(name: str) -> str:
    if is_reserved(check_name("queue", name, QUEUE_MAX)):
        raise ConfigError(field="queue", why=RESERVED)
    return name


def _misused() -> ConfigError:
    why = "decorates a function or a class; give options by name: @app.job(queue='mail')"
    return ConfigError(field="job", why=why)


def _work_of(source: Any) -> Callable[..., Any]:
    """The function that runs the job."""
    work: Callable[..., Any] = getattr(source, "run", source)
    return work


def _style(name: str, source: Any, cpu: bool) -> Style:
    work = _work_of(source)
    if not inspect.iscoroutinefunction(work):
        return Style.PROCESS if cpu else Style.THREAD
    if cpu:
        raise ConfigError(
            field="cpu", why=f"{name!r} is async; cpu=True needs a function defined with `def`"
        )
    return Style.LOOP
