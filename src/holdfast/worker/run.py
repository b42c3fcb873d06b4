"""One run of one job: a pipeline of named steps from a lease to an outcome."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.app import App
from holdfast.coalesce import Coalescer
from holdfast.config import Config
from holdfast.context import Context, Fail, Missing, Retry, Snooze, StopReason, SyncContext
from holdfast.core.bounds import BATCH_MAX, CONCURRENCY_MAX
from holdfast.core.clock import micros, seconds
from holdfast.core.codec import OBJECT, REFS
from holdfast.core.edge_bounds import OFFLOADED_MAX
from holdfast.core.errors import (
    BlobError,
    CodecNotFound,
    DecodeError,
    InvalidInput,
    InvalidPayload,
    JobNotFound,
    PayloadTooLarge,
    StoreError,
    Timeout,
    WorkerShutdown,
)
from holdfast.core.job import (
    Abandoned,
    Completed,
    Failed,
    JobRecord,
    Outcome,
    Reason,
    Released,
    Snoozed,
)
from holdfast.core.mapped import BLOB, plain_codec
from holdfast.held import check_not_held
from holdfast.job_journal import with_left_out
from holdfast.journal import Park, Session, StoredJournal
from holdfast.journal_map import Children
from holdfast.loop import RETRY_MOST_S
from holdfast.middleware import Call, chain
from holdfast.payload.app_blobs import with_result
from holdfast.store import Extended, Extension
from holdfast.typed import Job, JobType, Style
from holdfast.worker.completion import OwnCompletion
from holdfast.worker.lease import ActiveJob
from holdfast.worker.log import Strangers, after_completion, failed, logger
from holdfast.worker.pool import Threads, run_in_process
from holdfast.workflow.refs import Resolver

UNKNOWN_DELAY_MOST_S = 300.0


class Runner:
    """Runs jobs of an app. It turns a lease into an outcome, or into None if the lease is lost."""

    def __init__(
        self,
        app: App,
        threads: Threads,
        config: Config | None = None,
        state: Any = Missing.LIFESPAN,
    ) -> None:
        self._app = app
        self._state = state
        self._config = config or app.config
        self._threads = threads
        self._call = chain(app.middleware, self._dispatch)
        self._unseal: Callable[..., Job] = app.codecs.unseal
        self._leftovers: dict[Context, asyncio.Future[Any]] = {}
        self._strangers = Strangers()
        self._secret = app.store.secret
        self._blobs = app.app_blobs
        self._remembers = app.store.capabilities.steps
        self._completion_of = self._completion
        self._loop = asyncio.get_running_loop()
        self._extends: Coalescer[Extension, Extended] = Coalescer(
            app.store.extend, batch_max=BATCH_MAX, pending_max=CONCURRENCY_MAX
        )

    async def run(self, active: ActiveJob) -> Outcome | None:
        """The outcome of the job; None if the lease was lost."""
        record = active.lease.job
        job_type = self._app.registry.named(record.type)
        if job_type is None or record.envelope.version > job_type.version:
            known = None if job_type is None else job_type.version
            return self._missed(record, Reason.UNKNOWN_TYPE, _type_of(record, known))
        try:
            if record.envelope.codec.startswith(BLOB) and self._blobs is not None:
                sealed = await self._blobs.payload_of(record)
                record = msgspec.structs.replace(record, envelope=sealed)
            if record.envelope.codec == REFS:
                job = await self._with_results(record, job_type)
            else:
                job = self._unseal(
                    record.envelope, job_type.kind, job_type.version, job_type.upgrades
                )
            if active.lease.left_out:
                active.lease = await with_left_out(self._app.store, active.lease)
        except StoreError as error:  # Its journal or results of other jobs cannot be read now.
            logger.info("job %s: what it needs was not read: %s", record.id, error)
            return Released(micros(RETRY_MOST_S))
        except JobNotFound:  # It was canceled, or its lease has ended.
            return None
        except CodecNotFound:
            return self._missed(record, Reason.DECODE, f"codec {record.envelope.codec!r}")
        except (DecodeError, BlobError) as error:
            return self._failed(record, Failed(str(error), reason=Reason.DECODE, retryable=False))
        active.remembers = self._remembers
        journal = partial(self._journal, active) if self._remembers else None
        kind = Context if job_type.style is not Style.THREAD else SyncContext
        ctx = active.context = kind(
            record, self._app.tenant, self._state, journal, active.left_s,
            completion_of=self._completion_of, run=active,
        )  # fmt: skip
        active.task = asyncio.current_task()
        if active.ending is not None:
            return self._stopped(active)
        call = self._dispatch if job_type.built_in else self._call
        return await self._perform(active, ctx, job, call)

    async def _with_results(self, record: JobRecord, job_type: JobType) -> Job:
        """A job that has results of other jobs among its arguments."""
        resolver = Resolver(self._app.store, self._app.codecs, record, self._blobs)
        envelope = await resolver.envelope()
        try:
            return self._unseal(envelope, job_type.kind, job_type.version, job_type.upgrades)
        except DecodeError as error:
            raise resolver.explained(error, job_type, envelope.body) from error

    def _journal(self, active: ActiveJob) -> StoredJournal:
        """The journal of this run, made when its handler first asks for it: most never do."""
        record, lease_s = active.lease.job, self._config.lease_s
        enqueuer = self._app.enqueuer
        session = Session(
            lease=active.lease,
            lease_us=micros(lease_s),
            ahead_us=active.ahead_us,
            extend=self._extend,
            until_s=active.end_s,
            renewed=lambda sent_s: active.renewed(sent_s, lease_s),
            children=Children(
                parent=record,
                store=self._app.store,
                plan=lambda job: enqueuer.plan(record.tenant, job, {}),
                result=self._result,
            ),
            blobs=self._blobs,
        )
        active.journal = StoredJournal(session, self._loop)
        return active.journal

    async def _extend(self, extension: Extension) -> Extended:
        check_not_held(self._app.store)
        return await self._extends.submit(extension)

    def _completion(self, active: ActiveJob) -> OwnCompletion:
        """How the handler completes its job itself, made when it first does."""
        assert active.context is not None, "the handler runs"
        encode = partial(self._completed, active, active.context.job)
        lease_us = micros(self._config.lease_s)
        active.completion = OwnCompletion(active, self._app.store, encode, lease_us, self._loop)
        return active.completion

    async def _result(self, job: JobRecord) -> Any:
        """The decoded result of a completed job."""
        job = await with_result(self._blobs, job)
        kind = self._app.enqueuer.result_of(job.type)
        return self._app.codecs.unseal_result(plain_codec(job.envelope.codec), job.result, kind)

    async def _perform(
        self, active: ActiveJob, ctx: Context, job: Job, call: Call
    ) -> Outcome | None:
        """Calls the handler with its time-out and turns the result or exception into an outcome."""
        record = active.lease.job
        active.started_s = time.monotonic()
        timer = _timer(active, record.rules.timeout_us)
        try:
            result = await self._called(active, call, ctx, job)
            return active.outcome or await self._completed(active, ctx.job, result)
        except Park as wish:
            active.entries = wish.entries
            return wish.outcome
        except Snooze as wish:
            return Snoozed(micros(wish.seconds))
        except Retry as wish:
            after = None if wish.after is None else micros(wish.after)
            active.error = wish
            why = str(wish) or "the handler asked for a retry"
            return self._failed(record, Failed(why, after_us=after), wish)
        except Fail as wish:
            active.error = wish
            why = str(wish) or "the handler failed the job permanently"
            return self._failed(record, Failed(why, Reason.PERMANENT, retryable=False), wish)
        except asyncio.CancelledError:
            if active.ending is None:
                return self._failed(record, Failed("the handler was cancelled from inside"))
            return self._stopped(active)
        except KeyboardInterrupt:
            raise  # These are meant for the process, not for the job.
        except BaseException as error:
            active.error = error
            by_check = isinstance(error, Timeout | WorkerShutdown)
            if active.lost or (by_check and active.ending is not None):
                return self._stopped(active)
            return self._failed(record, Failed(_told(error)), error)
        finally:
            _close(active, timer)

    async def _called(self, active: ActiveJob, call: Call, ctx: Context, job: Job) -> Any:
        """What the handler returns. After it has completed its job itself, nothing else counts."""
        try:
            result = await call(ctx, job)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if active.outcome is None:
                raise
            after_completion(active.lease.job, f"it raised {error!r}")
            return None
        own = active.completion
        if own is not None and active.outcome is not None and result not in (None, own.result):
            after_completion(active.lease.job, "what it returned is not stored")
        return result

    async def _dispatch(self, ctx: Context, job: Job) -> Any:
        """The innermost call: on the event loop, in a thread or in a process, depending on the
        type.
        """
        job_type = self._app.registry.of(job)
        if job_type.style is Style.LOOP:
            return await job.run(ctx)
        if job_type.style is Style.PROCESS:
            return await run_in_process(job_type, job, ctx.job)
        thread = self._threads.run(lambda: job.run(ctx))
        self._leftovers[ctx] = thread
        try:
            result = await asyncio.shield(thread)
        finally:
            if thread.done():
                self._leftovers.pop(ctx, None)
        return result

    async def afterwards(self, active: ActiveJob) -> None:
        """Waits for a thread that outlives its run. Its slot stays occupied until it ends."""
        context = active.context
        thread = None if context is None else self._leftovers.pop(context, None)
        if thread is not None:
            await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()  # Ignored: its run was acked already.
        active.leave()

    async def _completed(self, active: ActiveJob, record: JobRecord, result: Any) -> Outcome:
        codec = record.envelope.codec
        if result is None:
            return Completed()
        if codec == OBJECT:
            return await self._kept(active, record, result)
        try:
            body = self._app.codecs.get(codec).encode(result)
        except Exception as error:
            why = InvalidPayload(field="result", type=record.type, why=f"result: {error}")
            return self._failed(record, Failed(str(why), Reason.PERMANENT, retryable=False))
        most = self._config.result_max
        if self._blobs is not None:
            most = max(most, OFFLOADED_MAX)
        if len(body) > most:
            large = PayloadTooLarge(field="result", size=len(body), max=most)
            return self._failed(record, Failed(str(large), Reason.PERMANENT, retryable=False))
        return await self._kept(active, record, body)

    async def _kept(self, active: ActiveJob, record: JobRecord, body: Any) -> Outcome:
        """The outcome with a result; a large one is offloaded, and its blobs are held."""
        if self._blobs is not None:
            try:
                body = await self._blobs.result(record, body, active.end_s)
            except InvalidInput as error:
                return self._failed(record, Failed(str(error), Reason.PERMANENT, retryable=False))
        return Completed(body)

    def _stopped(self, active: ActiveJob) -> Outcome | None:
        if active.lost:
            return None
        if active.ending is StopReason.TIMEOUT:
            timeout = active.lease.job.rules.timeout_us or 0
            why = f"not finished within {seconds(timeout):g} s"
            return self._failed(active.lease.job, Failed(why, reason=Reason.TIMEOUT))
        return Abandoned()

    def _failed(
        self, record: JobRecord, outcome: Failed, error: BaseException | None = None
    ) -> Failed:
        """Logs a failed attempt; without its text if that is stored encrypted."""
        return failed(record, outcome, error, secret=self._secret)

    def _missed(self, record: JobRecord, reason: Reason, what: str) -> Outcome:
        """Releases a job whose type, version or codec this worker does not know. Another worker may
        know it, now or after a deploy.
        """
        delay = min(self._config.unknown_delay_s * 2**record.misses, UNKNOWN_DELAY_MOST_S)
        self._strangers.bounced(record, what, micros(delay))
        return Released(micros(delay), miss=True, reason=reason)


def _type_of(record: JobRecord, known: int | None) -> str:
    """The type as text for the log, with its version if only the version is unknown."""
    name = f"type {record.type!r}"
    return name if known is None else f"version {record.envelope.version} of {name}"


def _timer(active: ActiveJob, timeout: int | None) -> asyncio.TimerHandle | None:
    """Stops the run after its time-out, so that the handler sees the reason while it cleans up."""
    if timeout is None:
        return None
    loop = asyncio.get_running_loop()
    return loop.call_later(seconds(timeout), active.end, StopReason.TIMEOUT)


def _close(active: ActiveJob, timer: asyncio.TimerHandle | None) -> None:
    """Ends what belongs to the run alone."""
    if timer is not None:
        timer.cancel()
    if active.completion is not None:
        active.completion.close()
    if active.ending is not None and active.task is not None:
        active.task.uncancel()  # The worker requested this cancel and handles it.


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).strip()
