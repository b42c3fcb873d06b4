"""Enqueue: checks a typed job, encodes its payload and sends it to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypedDict, Unpack

import msgspec
import uuid_utils

from holdfast.coalesce import Coalescer
from holdfast.config import Config
from holdfast.core.bounds import ATTEMPTS_MAX, BATCH_MAX, QUEUE_MAX
from holdfast.core.check import check_free, check_name, check_seconds, check_whole
from holdfast.core.clock import instant, micros
from holdfast.core.codec import OBJECT, REFS, Codecs
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.core.errors import InvalidInput, PayloadTooLarge, did_you_mean
from holdfast.core.flow import NodeFields, Results, own_envelope
from holdfast.core.job import Envelope, NewJob, Rules, again, check_new
from holdfast.core.placeholder import Placeholder
from holdfast.core.retry import RetryPolicy, policy
from holdfast.core.schedule import check_made
from holdfast.core.source import SourcePlan
from holdfast.core.spec import JobSpec, spec_of
from holdfast.core.tick import reserved_tag
from holdfast.dispatch import Dispatcher
from holdfast.held import check_not_held
from holdfast.many import EnqueuedMany, ManyTally, chunks
from holdfast.payload.app_blobs import AppBlobs
from holdfast.payload.offload import offloads
from holdfast.store import Enqueued
from holdfast.typed import AnyJob, Job, JobType, Pending, Planned, Registry, the_job
from holdfast.whole import WholeCalls

PENDING_MAX = 10_000
"""Maximum single enqueues of one event loop that wait for a batch."""


class SharedOptions(TypedDict, total=False):
    """The options of a job type that one enqueue can override. Durations are in seconds."""

    queue: str
    priority: int
    key_for: float
    max_attempts: int
    max_retries: int
    retry: RetryPolicy | str
    timeout: float
    keep: float
    keep_failed: float


class Options(SharedOptions, total=False):
    """The options of one enqueue. Durations are in seconds."""

    id: str
    """Chosen by the caller, so that a repeated call returns the same job."""
    delay: float
    run_at: datetime
    key: str | None
    """The same key returns the same job until that finishes, or for `key_for` seconds. None: no
    key, also where the type derives one.
    """
    group: str
    ttl: float
    tags: Iterable[str]


class Enqueuer:
    """Builds NewJobs and sends them to the store. Concurrent single calls share a batch."""

    def __init__(
        self,
        store: Dispatcher,
        registry: Registry,
        codecs: Codecs,
        config: Config,
        blobs: AppBlobs | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._codecs = codecs
        self.rules = Rules(
            keep_us=micros(config.keep_s), keep_failed_us=micros(config.keep_failed_s)
        )
        """How long the app keeps what it enqueues."""
        self.blobs = blobs
        own_max = store.capabilities.payload_max
        self._payload_max = min(config.payload_max, own_max or config.payload_max)
        self._coalescer = Coalescer(
            store.enqueue, batch_max=BATCH_MAX, pending_max=PENDING_MAX, again=again
        )
        self.whole = WholeCalls(store, blobs)
        self.webhooks_allow = config.webhooks_allow

    async def enqueue(self, tenant: str, job: AnyJob[Any], options: Options) -> Enqueued:
        """Enqueues one job. The answer says created or existing; a refusal is raised."""
        check_not_held(self._store)  # The task of the batch may be somebody else's.
        planned = self.plan(tenant, job, options)
        if self.blobs is not None:
            planned = await self.blobs.ready(planned)
        return _checked(await self._coalescer.submit(planned))

    async def enqueue_using(
        self, connection: Any, tenant: str, job: AnyJob[Any], options: Options
    ) -> Enqueued:
        """Enqueues in the caller's transaction: the job exists only if that commits."""
        planned = self.plan(tenant, job, options)
        [result] = await self._store.enqueue_using(connection, [planned])
        return _checked(result)

    @property
    def maps(self) -> bool:
        """Whether something maps what is stored, so that `prepare` has something to do."""
        return self._store.maps

    async def prepare(self, tenant: str) -> None:
        """Reads what `enqueue_using` on a blocking connection cannot wait for."""
        await self._store.prepare(tenant)

    async def enqueue_many(
        self,
        tenant: str,
        jobs: Iterable[AnyJob[Any]],
        options: Options,
        on_batch: Callable[[list[Enqueued]], None] | None,
    ) -> EnqueuedMany:
        """Enqueues the jobs of any iterable, with one batch in memory at a time.

        It stops at the first refused job.
        """
        tally = ManyTally(on_batch)
        planned = (self.plan(tenant, job, options) for job in jobs)
        sending: asyncio.Task[list[Enqueued]] | None = None
        try:
            # One batch is sent while the next is built; never two at once, which keeps the order.
            for batch in chunks(planned):
                if sending is not None:
                    before, sending = sending, None
                    tally.add(await before)
                sending = asyncio.create_task(self._send(batch))
                await asyncio.sleep(0)  # Let it reach the store before this loop is busy again.
        finally:
            if sending is not None:
                tally.add(await sending)
        return EnqueuedMany(tally.created, tally.existing)

    async def _send(self, batch: list[NewJob]) -> list[Enqueued]:
        return await self._store.enqueue(batch)

    def plan(
        self, tenant: str, job: AnyJob[Any], options: Options, node: NodeFields | None = None
    ) -> NewJob:
        """The checked job in the form that the store takes, with what it has as a node."""
        if isinstance(job, Planned):
            merged: dict[str, Any] = {**options, **job.options}
            options = _options(**merged)
        job = the_job(job)
        job_type = self._registry.of(job)
        sealed = self.seal(job_type, job)
        if job_type.key is not None and "key" not in options:
            options = {**options, "key": job_type.key(job)}
        if options:
            return _as_node(plan_with(tenant, job_type, sealed, options), node)
        # The common case: everything comes from the type and is checked already.
        return NewJob(
            tenant=tenant,
            id=str(uuid_utils.uuid7()) if node is None else node.id,
            queue=job_type.queue,
            envelope=sealed,
            rules=job_type.rules,
            priority=job_type.priority,
            edges=() if node is None else node.edges,
            parents=0 if node is None else node.parents,
            fresh=node is None or node.fresh,
        )

    def plan_node(
        self,
        tenant: str,
        job: AnyJob[Any] | Pending,
        refs: Callable[[Placeholder], Results],
        *,
        node: NodeFields | None = None,
        encoded: bool = False,
    ) -> NewJob:
        """The job in the form that the store takes, with or without results of other jobs. It is
        encoded also for a store that takes objects, if that is asked.
        """
        options = Options()
        if isinstance(job, Planned):
            options, job = _options(**job.options), job.job
        if not isinstance(job, Pending):
            planned = self.plan(tenant, job, options, node)
            if not encoded or planned.envelope.codec != OBJECT:
                return planned
            sealed = self._sealed(self._registry.of(the_job(job)), the_job(job))
            return msgspec.structs.replace(planned, envelope=sealed)
        job_type = self.type_of(job.kind)
        if job_type.key is not None and "key" not in options:
            why = f"of {job_type.name!r} comes from arguments that are not known yet; give key="
            raise InvalidInput(field="key", why=why)
        codec, payload = job_type.codec, job.known
        if job.places:
            places = {name: refs(place) for name, place in job.places.items()}
            codec, payload = REFS, {"args": job.known, "refs": places}
        sealed = self._codecs.seal(job_type.name, job_type.version, codec, payload)
        self._check_size(sealed)
        return _as_node(plan_with(tenant, job_type, sealed, options), node)

    def type_of(self, kind: type[Job] | JobType) -> JobType:
        """The registered type of a job class. Raises JobTypeNotRegistered."""
        return kind if isinstance(kind, JobType) else self._registry.of_kind(kind)

    def scheduled(self, tenant: str, job: AnyJob[Any]) -> JobSpec:
        """The job as a schedule keeps it."""
        return scheduled_for(self._registry, self._codecs, tenant, job)

    def source_plan(self, name: str) -> Callable[[], SourcePlan] | None:
        """The plan of a source of the code, as far as this app knows it."""
        return self._registry.plans.get(name)

    def result_of(self, type: str) -> Any:
        """The type of the result of these jobs, as far as this app knows it."""
        known = self._registry.named(type)
        return Any if known is None else known.result

    def seal(self, job_type: JobType, job: Job) -> Envelope:
        """The encoded payload. PayloadTooLarge if it exceeds the limit."""
        if self._store.capabilities.encodes:
            return self._sealed(job_type, job)
        return self._codecs.seal(job_type.name, job_type.version, OBJECT, job)

    def _sealed(self, job_type: JobType, job: Job) -> Envelope:
        sealed = self._codecs.seal(job_type.name, job_type.version, job_type.codec, job)
        self._check_size(sealed)
        return sealed

    def _check_size(self, sealed: Envelope) -> None:
        most = self._payload_max
        if self.blobs is not None and offloads(sealed.codec, sealed.type):
            most = max(most, OFFLOADED_MAX)
        if len(sealed.body) > most:
            raise PayloadTooLarge(field="payload", size=len(sealed.body), max=most)

    def own_payload(self, type: str, payload: Any) -> Envelope:
        """The payload of a job of the library. PayloadTooLarge if it exceeds the limit."""
        sealed = own_envelope(type, payload)
        self._check_size(sealed)
        return sealed


def scheduled_for(registry: Registry, codecs: Codecs, tenant: str, job: AnyJob[Any]) -> JobSpec:
    """The job as a schedule keeps it: encoded on every store, and without what each tick sets."""
    options = _options(**job.options) if isinstance(job, Planned) else Options()
    for name in ("id", "key", "key_for", "delay", "run_at"):
        if name in options:
            raise InvalidInput(field=name, why="is set by each tick of a schedule")
    made = the_job(job)
    job_type = registry.of(made)
    sealed = codecs.seal(job_type.name, job_type.version, job_type.codec, made)
    return check_made(spec_of(plan_with(tenant, job_type, sealed, options)))


def _checked(result: Enqueued) -> Enqueued:
    if result.error is not None:
        raise result.error
    return result


def plan_with(tenant: str, job_type: JobType, sealed: Envelope, options: Options) -> NewJob:
    """The NewJob of a call with options that differ from the type's."""
    if "delay" in options and "run_at" in options:
        raise InvalidInput(field="delay", why="give either delay or run_at, not both")
    delay = check_seconds("delay", options.get("delay", 0.0))
    if "key_for" in options and "key" not in options:
        raise InvalidInput(field="key_for", why="sets how long a key is held; give a key too")
    ttl = check_seconds("ttl", options["ttl"], 0.001) if "ttl" in options else None
    queue = options.get("queue", job_type.queue)
    if queue is not job_type.queue:
        check_free("queue", check_name("queue", queue, QUEUE_MAX))
    check_free("type", job_type.name)
    return check_new(
        NewJob(
            tenant=tenant,
            id=options.get("id") or _fresh_id(options),
            queue=queue,
            envelope=sealed,
            rules=_rules(job_type.rules, options),
            priority=options.get("priority", job_type.priority),
            delay_us=micros(delay),
            run_at=_run_at(options),
            ttl_us=None if ttl is None else micros(ttl),
            key=options.get("key"),
            group=options.get("group"),
            tags=_tags(options),
            fresh="id" not in options,
        )
    )


def _as_node(job: NewJob, node: NodeFields | None) -> NewJob:
    return job if node is None else msgspec.structs.replace(job, **msgspec.structs.asdict(node))


def _fresh_id(options: Options) -> str:
    if "id" in options:
        raise InvalidInput(field="id", why="must not be empty")
    return str(uuid_utils.uuid7())


def _tags(options: Options) -> tuple[str, ...]:
    tags = options.get("tags", ())
    if isinstance(tags, str):
        raise InvalidInput(field="tags", why="must be a list of tags, not one string")
    if not isinstance(tags, Iterable):
        raise InvalidInput(field="tags", why=f"must be a list, not {type(tags).__name__}")
    found = tuple(tags)
    for tag in found:
        if isinstance(tag, str) and reserved_tag(tag):
            raise InvalidInput(field="tags", why=f"{tag!r} is a tag that only schedules give")
    return found


def _run_at(options: Options) -> int | None:
    at = options.get("run_at")
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise InvalidInput(field="run_at", why=f"must be a datetime, not {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidInput(field="run_at", why="has no time zone; use datetime(..., tzinfo=UTC)")
    return instant(at)


_RULE_OPTIONS = frozenset(
    {"max_attempts", "max_retries", "retry", "timeout", "keep", "keep_failed", "key_for"}
)


def _rules(rules: Rules, options: Options) -> Rules:
    if _RULE_OPTIONS.isdisjoint(options):
        return rules
    return amend(rules, options)


def amend(rules: Rules, options: Options) -> Rules:
    """The rules, changed by the options of a job type or of an enqueue."""
    changes: dict[str, Any] = {}
    if "max_attempts" in options:
        changes["max_attempts"] = options["max_attempts"]
    if "max_retries" in options:
        retries = check_whole("max_retries", options["max_retries"], 0, ATTEMPTS_MAX - 1)
        changes["max_attempts"] = retries + 1
    if "retry" in options:
        changes["retry"] = policy(options["retry"])
    for name, field, least in (
        ("timeout", "timeout_us", 0.001),
        ("keep", "keep_us", 0.0),
        ("keep_failed", "keep_failed_us", 0.0),
        ("key_for", "key_us", 0.0),
    ):
        if name in options:
            length = check_seconds(name, options[name], least)  # type: ignore[literal-required]
            changes[field] = micros(length)
    return msgspec.structs.replace(rules, **changes)


def _options(**given: Unpack[Options]) -> Options:
    return checked(given)


def checked(given: Any) -> Options:
    """The options as given. Raises InvalidInput, which names the option, for an unknown one."""
    for name in given:
        if name not in Options.__annotations__:
            hint = did_you_mean(name, Options.__annotations__)
            raise InvalidInput(field=name, why=f"there is no such option.{hint}")
    options: Options = given
    return options
