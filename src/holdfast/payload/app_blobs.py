"""What an app, or a service, has for its blobs: the bucket, the mapper, and how bodies come back.

A page of jobs brings references, not bodies. Who decodes a payload, a result or a step loads it
here first: the worker before a run, `wait` before it answers, a flow before it puts results in.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import msgspec

from holdfast.config import Config
from holdfast.core.backoff import Delays
from holdfast.core.blob import is_offloaded
from holdfast.core.check import is_reserved
from holdfast.core.edge_bounds import BLOB_KNOWN_S, BLOBS_AT_ONCE_MAX
from holdfast.core.errors import BlobsUnavailable, ConfigError
from holdfast.core.job import Envelope, JobRecord, NewJob
from holdfast.core.journal import Entry
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.bucket import Bucket, open_bucket
from holdfast.payload.holders import Holders
from holdfast.payload.offload import Offload
from holdfast.payload.usage import Usage
from holdfast.payload.values import Kind, Value

T = TypeVar("T")

Until = Callable[[], float]

FIRST_S = 0.2
MOST_S = 2.0


class AppBlobs:
    """The bucket of an app and what uses it. Keeps no resource that is to be closed."""

    def __init__(self, bucket: Bucket, config: Config) -> None:
        self.bucket = bucket
        holders = Holders(bucket, min(BLOB_KNOWN_S, config.blob_grace_s / 4))
        self._shared = Shared(bucket, holders, Usage(bucket, config.blob_tenant_max))
        self.mapper = Offload(self._shared, config.blob_above)

    def of(self, tenant: str) -> Blobs:
        """The blobs of a tenant."""
        return Blobs(self._shared, tenant)

    # -- out -------------------------------------------------------------------------------------

    async def ready(self, job: NewJob) -> NewJob:
        """The job in the form that goes into a batch, so that other jobs of the batch do not wait
        for its upload. Raises why it cannot be stored.
        """
        sealed = job.envelope
        value = Value(job.tenant, job.id, Kind.PAYLOAD, "", sealed.codec, sealed.body, sealed.type)
        if not self.mapper.has_work(value):
            return job
        mapped = await self.mapper.ready(value)
        if mapped is value:
            return job
        made = Envelope(sealed.type, mapped.codec, sealed.version, mapped.body)
        return msgspec.structs.replace(job, envelope=made)

    async def ready_all(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """The same of several. Those of the library itself carry what its batch looks at."""
        room = asyncio.Semaphore(BLOBS_AT_ONCE_MAX)

        async def one(job: NewJob) -> NewJob:
            async with room:
                return job if is_reserved(job.envelope.type) else await self.ready(job)

        return await asyncio.gather(*map(one, jobs))

    async def result(self, job: JobRecord, body: object, until_s: Until) -> object:
        """What is acked as the result of a run. `until_s` says how long its lease certainly lasts:
        while the bucket does not answer, it is tried again so long.
        """
        return await _tried(lambda: self.ready_result(job.tenant, job.id, body), until_s)

    async def ready_result(self, tenant: str, id: str, body: object) -> Any:
        """A result in the form that goes into a batch."""
        value = Value(tenant, id, Kind.RESULT, "", "", body)
        return (await self.mapper.ready(value)).body if self.mapper.has_work(value) else body

    async def step(self, job: JobRecord, name: str, body: bytes, until_s: Until) -> bytes:
        """What is remembered as the result of a step."""
        value = Value(job.tenant, job.id, Kind.STEP, name, "", body)
        if not self.mapper.has_work(value):
            return body
        return cast(bytes, (await _tried(lambda: self.mapper.ready(value), until_s)).body)

    # -- back ------------------------------------------------------------------------------------

    async def payload_of(self, job: JobRecord) -> Envelope:
        """The payload with its body. Raises what `Offload.load` raises."""
        sealed = job.envelope
        value = Value(job.tenant, job.id, Kind.PAYLOAD, "", sealed.codec, sealed.body, sealed.type)
        found = await self.mapper.load(value)
        return Envelope(sealed.type, found.codec, sealed.version, found.body)

    async def result_of(self, job: JobRecord) -> Any:
        """The body of a result that was offloaded."""
        return (
            await self.mapper.load(Value(job.tenant, job.id, Kind.RESULT, "", "", job.result))
        ).body

    async def step_of(self, job: JobRecord, entry: Entry) -> bytes:
        """The body of a remembered step that was offloaded."""
        value = Value(job.tenant, job.id, Kind.STEP, entry.name, "", entry.value)
        return cast(bytes, (await self.mapper.load(value)).body)


# -- for those that may have no bucket -------------------------------------------------------------


async def with_result(blobs: AppBlobs | None, job: JobRecord) -> JobRecord:
    """The job with its result, also if that was offloaded. Raises ConfigError without a bucket."""
    if not is_offloaded(job.result):
        return job
    return msgspec.structs.replace(job, result=await needed(blobs).result_of(job))


async def _tried(call: Callable[[], Awaitable[T]], until_s: Until) -> T:
    """Tries again while the bucket does not answer: the work of the handler is done already."""
    delays = Delays(FIRST_S, MOST_S, chance=random.random)
    while True:
        try:
            return await call()
        except BlobsUnavailable:
            pause_s = delays.next_s()
            if time.monotonic() + pause_s >= until_s():
                raise
            await asyncio.sleep(pause_s)


def blobs_by(config: Config) -> AppBlobs | None:
    """What the settings say; None without a bucket."""
    return None if config.blobs is None else AppBlobs(open_bucket(config.blobs), config)


def needed(blobs: AppBlobs | None) -> AppBlobs:
    """Raises ConfigError for an app that has no bucket."""
    if blobs is None:
        why = "this app has no bucket: App(..., blobs='file:///var/lib/blobs') sets one"
        raise ConfigError(field="blobs", why=why)
    return blobs
