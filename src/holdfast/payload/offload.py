"""Payloads by reference: large bodies go to the bucket, and a reference takes their place.

A mapper between the dispatcher and a store (`payload/through.py`), so every enqueue, ack and extend
passes it. On the way out it notes which blobs a value names (`payload/holders.py`), has the mapper
inside it encrypt the value, if there is one, and offloads what is then larger than `above`. So what
is in the bucket is encrypted too. On the way back it leaves the references as they are: a page of
jobs must not bring their bodies. Who needs a body loads it (`payload/bodies.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.blob import (
    OFFLOADED,
    BlobRef,
    body_id,
    holder_of,
    is_offloaded,
    named_in,
    offloaded,
    read_reference,
    segment,
)
from holdfast.core.bounds import MAPPED_MORE
from holdfast.core.capabilities import Capabilities
from holdfast.core.check import is_reserved
from holdfast.core.codec import OBJECT, REFS
from holdfast.core.edge_bounds import BLOBS_AT_ONCE_MAX, OFFLOADED_MAX
from holdfast.core.errors import BlobCorrupt, HoldfastError, PayloadTooLarge
from holdfast.core.mapped import BLOB, most_of, plain_codec
from holdfast.core.schedule import schedule_of
from holdfast.payload.blobs import Blobs, Shared
from holdfast.payload.layout import Holder, HolderKind, placed
from holdfast.payload.values import Kind, Mapped, Mapper, Use, Value

OFFLOADS = frozenset({Kind.PAYLOAD, Kind.RESULT, Kind.STEP})
"""The kinds of values that are offloaded. Others have small limits of their own."""
NAMES = OFFLOADS | {Kind.SIGNAL, Kind.POSITION, Kind.SPEC}
"""The kinds of values that may name blobs which somebody needs later."""


FIRECRAWL = "firecrawl"
"""The type of the jobs of the Firecrawl protocol, whose clients get their payloads as they are."""
REPEATS_MAX = 1000
"""Bodies that a process remembers to have put."""


class Offload:
    """The mapper of one bucket."""

    def __init__(self, shared: Shared, above: int) -> None:
        self._shared = shared
        self._bucket = shared.bucket
        self._holders = shared.holders
        self._usage = shared.usage
        self._above = above
        self.inner: Mapper | None = None
        """What encrypts. It maps what is stored, and what is put into the bucket."""
        self._put: OrderedDict[tuple[str, ...], BlobRef] = OrderedDict()
        """What this process has offloaded lately."""

    @property
    def secret(self) -> bool:
        """Whether something is encrypted: see `OuterStore`."""
        return self.inner is not None and bool(getattr(self.inner, "secret", True))

    # -- out -------------------------------------------------------------------------------------

    async def outgoing(self, values: Sequence[Value]) -> Sequence[Mapped]:
        """See `Mapper`. A value of a few bytes that names no blob is not waited for."""
        busy = [value for value in values if self._may_name(value)]
        named = dict(zip(map(id, busy), await self._each(self._hold, busy), strict=True))
        answers = [named.get(id(value)) or value for value in values]
        mapped = await self._encrypted(answers)
        large = [value for value in mapped if isinstance(value, Value) and self._is_large(value)]
        moved = dict(zip(map(id, large), await self._each(self._moved, large), strict=True))
        return [moved.get(id(value)) or value for value in mapped]

    async def ready(self, value: Value) -> Value:
        """A value as `outgoing` takes it without waiting: its blobs are held, and a large body is
        offloaded. Raises why that cannot be done.
        """
        error = await self._hold(value)
        answer: Mapped | None = error
        if error is None and self._is_large(value):
            [answer] = await self._encrypted([value])
            if isinstance(answer, Value):
                answer = await self._moved(answer)
        if isinstance(answer, HoldfastError):
            raise answer
        return value if answer is None else answer

    def has_work(self, value: Value) -> bool:
        """Whether `ready` may do anything."""
        return self._may_name(value) or self._is_large(value)

    def _may_name(self, value: Value) -> bool:
        if value.kind not in NAMES:
            return False
        body = value.body
        return not isinstance(body, bytes) or b"blob-" in body or b"body-" in body

    async def _hold(self, value: Value) -> HoldfastError | None:
        """Keeps the blobs that a value names for its job or schedule."""
        for_schedule = value.kind is Kind.SPEC and schedule_of(value.id) is not None
        kind = HolderKind.SCHEDULE if for_schedule else HolderKind.JOB
        holder = Holder(value.tenant, kind, value.id)
        try:
            for blob in named_in(value.body):
                if holder_of(blob) != segment(value.id) or kind is not HolderKind.JOB:
                    await self._holders.hold(placed(value.tenant, blob), holder)
        except HoldfastError as error:
            return error
        return None

    async def _encrypted(self, answers: Sequence[Mapped]) -> Sequence[Mapped]:
        """The answers of the mapper inside. What is offloaded already was mapped before."""
        if self.inner is None:
            return answers
        todo = [one for one in answers if isinstance(one, Value) and not self._is_done(one)]
        mapped = iter(await self.inner.outgoing(todo))
        wanted = set(map(id, todo))
        return [next(mapped) if id(one) in wanted else one for one in answers]

    def _is_done(self, value: Value) -> bool:
        """Whether this is the text of an offloaded body of this job, or a copy of its payload."""
        if not is_offloaded(value.body):
            return False
        if value.kind is Kind.PAYLOAD:
            return value.codec.startswith(BLOB)
        if value.kind not in OFFLOADS:
            return False
        try:
            return holder_of(read_reference(value.body).id) == segment(value.id)
        except HoldfastError:
            return False

    def _is_large(self, value: Value) -> bool:
        if value.kind not in OFFLOADS or not isinstance(value.body, bytes):
            return False
        if value.kind is Kind.PAYLOAD and not offloads(value.codec, value.type):
            return False
        if len(value.body) > self._above:
            return True
        # A body that looks like a reference would be read as one.
        escaped = value.kind is not Kind.PAYLOAD and value.body.startswith(OFFLOADED)
        return escaped and not self._is_done(value)

    async def _moved(self, value: Value) -> Mapped:
        """The value as the text that takes its place."""
        body = value.body
        if len(body) > most_of(body, OFFLOADED_MAX):
            return PayloadTooLarge(field=value.kind.value, size=len(body), max=OFFLOADED_MAX)
        sha = hashlib.sha256(body).hexdigest()
        before = (value.tenant, value.id, value.kind, value.name, sha)
        ref = self._before(before)
        if ref is None:
            ref = BlobRef(body_id(secrets.token_hex(16), value.id), len(body), sha)
            blob = placed(value.tenant, ref.id)
            try:
                left = await self._usage.left(value.tenant) if value.kind is Kind.PAYLOAD else None
                if left is not None and len(body) > left:
                    return self._usage.full(value.tenant)
                await self._bucket.put(blob.path, body)
                self._holders.wrote(blob.path)
                self._usage.added(value.tenant, len(body))
                if blob.own_holder is None:  # The path has hashes, so a note has the names.
                    await self._holders.hold(blob, Holder(value.tenant, HolderKind.JOB, value.id))
            except HoldfastError as error:
                return error
            self._keep(before, ref)
        codec = BLOB + value.codec if value.kind is Kind.PAYLOAD else value.codec
        return msgspec.structs.replace(value, codec=codec, body=offloaded(ref))

    def _before(self, body: tuple[str, ...]) -> BlobRef | None:
        """The reference if this process has put the same body lately: a call may be repeated."""
        ref = self._put.get(body)
        if ref is None or not self._holders.recent(placed(body[0], ref.id).path):
            return None
        return ref

    def _keep(self, body: tuple[str, ...], ref: BlobRef) -> None:
        self._put[body] = ref
        while len(self._put) > REPEATS_MAX:
            self._put.popitem(last=False)

    async def _each(self, call: Any, values: Sequence[Value]) -> list[Any]:
        """The answers of `call` for each value, of which some wait for the bucket together. A
        blocking caller has no event loop: then one after the other.
        """
        if len(values) < 2 or asyncio._get_running_loop() is None:
            return [await call(value) for value in values]
        room = asyncio.Semaphore(BLOBS_AT_ONCE_MAX)

        async def one(value: Value) -> Any:
            async with room:
                return await call(value)

        return list(await asyncio.gather(*map(one, values)))

    # -- back ------------------------------------------------------------------------------------

    async def incoming(self, values: Sequence[Value], use: Use) -> Sequence[Mapped]:
        """References stay as they are. The bytes that they stand for are mapped when loaded."""
        if self.inner is None:
            return values
        todo = [value for value in values if not _stands_for_body(value)]
        mapped = dict(zip(map(id, todo), await self.inner.incoming(todo, use), strict=True))
        return [mapped.get(id(value), value) for value in values]

    async def load(self, value: Value) -> Value:
        """A value with its body in place of the text. Raises BlobNotFound, BlobCorrupt,
        BlobsUnavailable, or DecodeError for a forged text.
        """
        ref = read_reference(value.body)
        if ref.size > OFFLOADED_MAX + MAPPED_MORE:
            why = f"the reference says {ref.size} bytes, at most {OFFLOADED_MAX} are offloaded"
            raise BlobCorrupt(id=ref.id, why=why)
        body = await Blobs(self._shared, value.tenant).read_bytes(ref)
        codec = value.codec.removeprefix(BLOB)
        loaded = msgspec.structs.replace(value, codec=codec, body=body)
        if self.inner is None:
            return loaded
        [mapped] = await self.inner.incoming([loaded], Use.RUN)
        if isinstance(mapped, HoldfastError):
            raise mapped
        return mapped

    # -- life ------------------------------------------------------------------------------------

    def capabilities(self, inner: Capabilities) -> Capabilities:
        return inner if self.inner is None else self.inner.capabilities(inner)

    async def prepare(self, tenant: str) -> None:
        if self.inner is not None:
            await self.inner.prepare(tenant)

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()


def _stands_for_body(value: Value) -> bool:
    if value.kind is Kind.PAYLOAD:
        return value.codec.startswith(BLOB)
    return value.kind in OFFLOADS and is_offloaded(value.body)


def offloads(codec: str, type: str) -> bool:
    """Whether payloads of this codec and type are offloaded: not those that code besides the run
    reads, to make other jobs or to put results in.
    """
    if codec.startswith(BLOB) or plain_codec(codec) in (OBJECT, REFS):
        return False
    return not is_reserved(type) and type != FIRECRAWL
