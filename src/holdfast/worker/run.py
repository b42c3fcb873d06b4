"""One run of one job: a pipeline of named steps from a lease to an outcome."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from holdfast.app import App
from holdfast.clock import micros, seconds
from holdfast.codec import OBJECT
from holdfast.config import Config
from holdfast.context import Context, Fail, Retry, Snooze
from holdfast.errors import DecodeError, InvalidPayload, PayloadTooLarge
from holdfast.job import (
    Abandoned,
    Completed,
    Failed,
    JobRecord,
    Outcome,
    Reason,
    Released,
    Snoozed,
)
from holdfast.middleware import chain
from holdfast.typed import Job, Style
from holdfast.worker.lease import Ending, Holding
from holdfast.worker.pool import Threads, run_in_process

UNKNOWN_DELAY_MOST_S = 300.0


class Runner:
    """Runs jobs of an app. Holds no leases: it turns a holding into an outcome, or into nothing."""

    def __init__(self, app: App, threads: Threads, config: Config | None = None) -> None:
        self._app = app
        self._config = config or app.config
        self._threads = threads
        self._call = chain(app.middleware, self._dispatch)
        self._leftovers: dict[Context, asyncio.Future[Any]] = {}

    async def run(self, holding: Holding) -> Outcome | None:
        """What became of the job; None when the lease was lost and nothing can be said any more."""
        record = holding.lease.job
        job_type = self._app.registry.named(record.type)
        if job_type is None or record.envelope.version > job_type.version:
            return self._unknown(record)
        try:
            job = self._app.codecs.unseal(
                record.envelope, job_type.kind, job_type.version, job_type.upgrades
            )
        except DecodeError as error:
            return Failed(str(error), reason=Reason.DECODE, retryable=False)
        ctx = holding.context = Context(record, self._app.tenant)
        if holding.ending is not None:
            return _stopped(holding)
        return await self._perform(holding, ctx, job, record)

    async def _perform(
        self, holding: Holding, ctx: Context, job: Job, record: JobRecord
    ) -> Outcome | None:
        """Calls the handler within its time and reads what it meant."""
        timeout = record.rules.timeout_us
        limit = None if timeout is None else asyncio.timeout(seconds(timeout))
        try:
            if limit is None:
                result = await self._call(ctx, job)
            else:
                async with limit:
                    result = await self._call(ctx, job)
            return self._completed(record, result)
        except Snooze as wish:
            return Snoozed(micros(wish.seconds))
        except Retry as wish:
            after = None if wish.after is None else micros(wish.after)
            return Failed(str(wish) or "the handler asked for a retry", after_us=after)
        except Fail as wish:
            return Failed(str(wish) or "the handler gave up", Reason.PERMANENT, retryable=False)
        except asyncio.CancelledError:
            return self._cancelled(holding)
        except TimeoutError as error:
            if limit is not None and limit.expired():
                ctx.cancel()
                why = f"not done within {limit_text(timeout)}"
                return Failed(why, reason=Reason.TIMEOUT)
            return Failed(_told(error))
        except KeyboardInterrupt:
            raise  # Meant for the process.
        except BaseException as error:
            if holding.ending is Ending.LOST:
                return None
            return Failed(_told(error))

    async def _dispatch(self, ctx: Context, job: Job) -> Any:
        """The innermost call: on the loop, in a thread, or in a process, as the type says."""
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

    async def afterwards(self, holding: Holding) -> None:
        """Waits for a thread that outlived its run: it goes on, so its slot stays taken."""
        if holding.context is None:
            return
        thread = self._leftovers.pop(holding.context, None)
        if thread is not None:
            await asyncio.wait([thread])
            if not thread.cancelled():
                thread.exception()  # Seen: the run it belonged to was settled already.

    def _completed(self, record: JobRecord, result: Any) -> Outcome:
        codec = record.envelope.codec
        if result is None or codec == OBJECT:
            return Completed(result)
        try:
            body = self._app.codecs.get(codec).encode(result)
        except Exception as error:
            why = InvalidPayload(field="result", type=record.type, why=f"result: {error}")
            return Failed(str(why), Reason.PERMANENT, retryable=False)
        if len(body) > self._config.result_max:
            large = PayloadTooLarge(field="result", size=len(body), max=self._config.result_max)
            return Failed(str(large), Reason.PERMANENT, retryable=False)
        return Completed(body)

    def _unknown(self, record: JobRecord) -> Outcome:
        """Another worker may know this type or version, today or after the deploy that is under
        way.
        """
        delay = min(self._config.unknown_delay_s * 2**record.misses, UNKNOWN_DELAY_MOST_S)
        return Released(micros(delay), miss=True)

    def _cancelled(self, holding: Holding) -> Outcome | None:
        if holding.ending is None:
            return Failed("the handler was cancelled from inside")
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # The cancel was ours and is dealt with; the settling must go on.
        return _stopped(holding)


def _stopped(holding: Holding) -> Outcome | None:
    return Abandoned() if holding.ending is Ending.SHUTDOWN else None


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).strip()


def limit_text(timeout: int | None) -> str:
    return "" if timeout is None else f"{seconds(timeout):g} s"
