"""Results of other jobs as arguments: a worker puts them in before it decodes a job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from holdfast.core.blob import offloaded_bytes
from holdfast.core.bounds import BATCH_MAX, RESOLVED_BYTES_MAX
from holdfast.core.codec import JSON, REFS, Codecs, JsonCodec
from holdfast.core.errors import CodecNotFound, DecodeError, JobNotFound, StoreError
from holdfast.core.flow import ITEMS, Results, check_pledge, each_node, node_id
from holdfast.core.job import Envelope, JobRecord, State
from holdfast.core.journal import EntryKind, join_of
from holdfast.core.mapped import plain_codec
from holdfast.core.placeholder import How
from holdfast.journal_map import child_id
from holdfast.lookup import find_jobs
from holdfast.payload.app_blobs import AppBlobs, with_result
from holdfast.store import Find, Ref, Selection, Store
from holdfast.typed import JobType

_json = JsonCodec()
_NULL = msgspec.Raw(b"null")
PAGE = 250
"""Jobs whose results are read in one call."""


class Resolver:
    """Puts results into the payload of one job."""

    def __init__(
        self, store: Store, codecs: Codecs, job: JobRecord, blobs: AppBlobs | None = None
    ) -> None:
        self._store = store
        self._codecs = codecs
        self._job = job
        self._blobs = blobs
        self._size = 0
        self._from: dict[str, str] = {}
        """Where each argument comes from, for errors."""

    async def envelope(self) -> Envelope:
        """The payload with the results. Raises DecodeError, which names the argument."""
        sealed = self._job.envelope
        try:
            pledge = check_pledge(sealed.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise self._wrong(f"it is not a payload with results of other jobs: {error}") from error
        found: dict[str, msgspec.Raw] = dict(pledge.args)
        for name, results in pledge.refs.items():
            found[name] = await self._value(name, results)
        return Envelope(sealed.type, JSON, sealed.version, msgspec.json.encode(found))

    def explained(self, error: DecodeError, job_type: JobType, body: bytes) -> DecodeError:
        """The error that names the argument and the job that it comes from, if it is one."""
        values = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        fields = {field.encode_name: field for field in msgspec.structs.fields(job_type.kind)}
        for name, source in self._from.items():
            if name not in fields:
                continue
            try:
                _json.decode(bytes(values[name]), fields[name].type)
            except Exception as wrong:
                return self._wrong(f"argument {name!r}, {source}, does not fit: {wrong}")
        return error

    async def _value(self, name: str, results: Results) -> msgspec.Raw:
        nodes = [node_id(flow, number) for flow, number in each_node(results.nodes)]
        if results.how is How.RESULT:
            self._from[name] = f"the result of job {nodes[0]}"
            [(id, job)] = [each async for each in self._read(nodes)]
            if job is None:
                raise self._wrong(f"argument {name!r}: {JobNotFound(id=id)}")
            if job.state is not State.COMPLETED:  # The type of the argument may allow None.
                self._from[name] += f", which is {job.state.value}"
            return await self._raw(name, job)
        if results.how is How.MAP:
            self._from[name] = f"the results of map {nodes[0]}"
            nodes = await self._children(name, nodes[0])
        else:
            self._from[name] = f"the results of {len(nodes)} jobs"
        listed = [
            await self._raw(name, job)
            async for _, job in self._read(nodes)
            if job is not None and job.state is State.COMPLETED
        ]
        return msgspec.Raw(b"[" + b",".join(bytes(each) for each in listed) + b"]")

    async def _children(self, name: str, id: str) -> list[str]:
        """The jobs that a map has made."""
        select = Selection(tenant=self._job.tenant, ids=(id,))
        page = await self._store.find(Find(select=select, limit=1, journals=True))
        if not page.jobs:
            raise self._wrong(f"argument {name!r}: {JobNotFound(id=id)}")
        journal = page.journals.get(Ref(self._job.tenant, id))
        for entry in () if journal is None else journal.entries:
            if (entry.kind, entry.name) == (EntryKind.JOIN, ITEMS):
                total = join_of(entry).total
                return [child_id(page.jobs[0], ITEMS, number) for number in range(total)]
        return []

    async def _read(self, ids: Sequence[str]) -> AsyncIterator[tuple[str, JobRecord | None]]:
        """The jobs in the order of their ids."""
        for first in range(0, len(ids), min(PAGE, BATCH_MAX)):
            part = tuple(ids[first : first + PAGE])
            found = {job.id: job for job in await find_jobs(self._store, self._job.tenant, part)}
            for id in part:
                yield id, found.get(id)

    async def _raw(self, name: str, job: JobRecord) -> msgspec.Raw:
        """A result as JSON."""
        if job.result is None:
            return _NULL
        if self._size + offloaded_bytes(job.result) > RESOLVED_BYTES_MAX:
            raise self._too_large(name)
        job = await with_result(self._blobs, job)
        codec = plain_codec(job.envelope.codec)
        if codec in (JSON, REFS):
            body = job.result
        else:
            try:
                value: Any = self._codecs.unseal_result(codec, job.result)
                body = _json.encode(value)
            except (CodecNotFound, StoreError):
                raise
            except Exception as error:
                why = f"argument {name!r}: the result of job {job.id} is not JSON: {error}"
                raise self._wrong(why) from error
        self._size += len(body)
        if self._size > RESOLVED_BYTES_MAX:
            raise self._too_large(name)
        return msgspec.Raw(body)

    def _too_large(self, name: str) -> DecodeError:
        why = f"argument {name!r}: the results have more than {RESOLVED_BYTES_MAX} bytes"
        return self._wrong(f"{why}; store large data elsewhere and return references")

    def _wrong(self, why: str) -> DecodeError:
        return DecodeError(codec=REFS, type=self._job.type, why=why)
