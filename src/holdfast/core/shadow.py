"""The shadow of a source in a store: its rows, and the step that changes them. Pure.

A source is a remote list of objects. Its shadow is our copy: one row for each object, and the state
of the source, which a store does not read. `core/source.py` says what both mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.core import edge_bounds
from holdfast.core.bounds import NONCE_MAX, TENANT_MAX, within
from holdfast.core.check import check_name, check_nonce, check_whole
from holdfast.core.clock import Micros
from holdfast.core.edge_bounds import (
    OBJECT_MAX,
    SHADOW_BODY_MAX,
    SHADOW_ROWS_MAX,
    SHADOW_STEP_BYTES_MAX,
    SHADOW_VERSION_MAX,
    SOURCE_MAX,
    SOURCE_STATE_MAX,
)
from holdfast.core.errors import HoldfastError, InvalidInput, StaleSource, TenantFull
from holdfast.core.job import NewJob

ROW_BYTES = 64
"""What a row takes besides its texts and its body."""
NUMBER_MAX = 2**53 - 1


class ShadowRow(msgspec.Struct, frozen=True, gc=False):
    """One object of a source, as it was last seen."""

    id: str
    version: str
    number: int
    """Of its last change."""
    seen: int
    """The last full listing that had it."""
    gone: bool = False
    """The object is no longer there: a tombstone."""
    body: bytes = b""
    at: Micros = 0
    """When the row was last written. The store sets it."""

    def checked(self) -> ShadowRow:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        check_name("id", self.id, OBJECT_MAX)
        check_name("version", self.version, SHADOW_VERSION_MAX)
        check_whole("number", self.number, 0, NUMBER_MAX)
        check_whole("seen", self.seen, 0, NUMBER_MAX)
        if len(self.body) > SHADOW_BODY_MAX:
            why = f"of object {self.id!r} has {len(self.body)} bytes, at most {SHADOW_BODY_MAX}"
            raise InvalidInput(field="body", why=why)
        return self

    @property
    def size(self) -> int:
        """The bytes that count towards the bound of its source."""
        return len(self.id.encode()) + len(self.version.encode()) + len(self.body) + ROW_BYTES


class ShadowStep(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a source: its state, rows of it and new jobs, all or none of it."""

    tenant: str
    source: str
    expect: str
    """The stamp that the source must have; empty: there is no such source yet."""
    stamp: str
    """Its next stamp, random and new: a repeated step is known by it."""
    state: bytes | None
    """None deletes the source, which must have no rows left."""
    put: tuple[ShadowRow, ...] = ()
    drop: tuple[str, ...] = ()
    """The ids of rows to delete."""
    jobs: tuple[NewJob, ...] = ()

    def checked(self) -> ShadowStep:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        _check_names(self.tenant, self.source)
        if self.expect:
            check_nonce("expect", self.expect)
        check_nonce("stamp", self.stamp)
        within("stamp", len(self.stamp), NONCE_MAX)
        within("state", len(self.state or b""), SOURCE_STATE_MAX)
        within("put", len(self.put) + len(self.drop), SHADOW_ROWS_MAX)
        within("jobs", len(self.jobs), SHADOW_ROWS_MAX)
        for row in self.put:
            row.checked()
        for id in self.drop:
            check_name("drop", id, OBJECT_MAX)
        ids = {row.id for row in self.put} | set(self.drop)
        if len(ids) < len(self.put) + len(self.drop):
            raise InvalidInput(field="put", why="names an object twice")
        if any(job.tenant != self.tenant for job in self.jobs):
            raise InvalidInput(field="jobs", why="must be of the tenant of the source")
        within("bytes", self.size, SHADOW_STEP_BYTES_MAX)
        return self

    @property
    def size(self) -> int:
        """The bytes of its rows and of the payloads of its jobs."""
        return sum(row.size for row in self.put) + sum(body_size(job) for job in self.jobs)


def body_size(job: NewJob) -> int:
    """The bytes of a payload. An object that the store does not encode counts as none."""
    body = job.envelope.body
    return len(body) if isinstance(body, bytes) else 0


class ShadowRead(msgspec.Struct, frozen=True, kw_only=True):
    """Reads a source with rows of it; or, without a name, the sources of a tenant by name."""

    tenant: str
    source: str = ""
    ids: tuple[str, ...] = ()
    """The rows of these objects. Those that are not there are left out."""
    after: str | None = None
    """A page of the rows, by id, after this one. Without a source: a page of sources."""
    limit: int = 100

    def checked(self) -> ShadowRead:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        check_name("tenant", self.tenant, TENANT_MAX)
        if self.source:
            check_name("source", self.source, SOURCE_MAX)
        within("ids", len(self.ids), SHADOW_ROWS_MAX)
        for id in self.ids:
            check_name("ids", id, OBJECT_MAX)
        if self.after:
            check_name("after", self.after, OBJECT_MAX)
        within("limit", self.limit, SHADOW_ROWS_MAX)
        return self


class SourceRow(msgspec.Struct, frozen=True):
    """A source as stored."""

    source: str
    stamp: str
    state: bytes
    rows: int
    """Its objects, tombstones included."""
    size: int
    """The bytes of these rows."""


class Shadow(msgspec.Struct, frozen=True):
    """The answer: sources and rows as they are in one step, and the instant of it."""

    at: Micros
    sources: Sequence[SourceRow] = ()
    rows: Sequence[ShadowRow] = ()


def _check_names(tenant: str, source: str) -> None:
    check_name("tenant", tenant, TENANT_MAX)
    check_name("source", source, SOURCE_MAX)


# -- decisions -------------------------------------------------------------------------------------


def is_repeat(step: ShadowStep, stamp: str | None) -> bool:
    """Whether the step was applied already. Raises StaleSource if the source has another stamp than
    it expects; None: there is no such source.
    """
    if stamp == step.stamp or (stamp is None and step.state is None):
        return True
    if (stamp or "") != step.expect:
        raise StaleSource(field="expect", source=step.source)
    return False


def totals(
    step: ShadowStep, before: SourceRow | None, sizes: Mapping[str, int], sources: int
) -> tuple[int, int]:
    """The rows and bytes of the source after the step. `sizes` are those of the rows it names that
    are there, `sources` is how many others the tenant has. Raises what refuses the step.
    """
    rows, size = (0, 0) if before is None else (before.rows, before.size)
    rows += sum(row.id not in sizes for row in step.put) - sum(id in sizes for id in step.drop)
    size += sum(row.size for row in step.put) - sum(sizes.values())
    refused = refusal(step, rows, size, sources if before is None else 0)
    if refused is not None:
        raise refused
    return rows, size


def refusal(step: ShadowStep, rows: int, size: int, sources: int) -> HoldfastError | None:
    """Why a source may not have so many rows and bytes after the step; None if it may."""
    for what, has, most in (
        ("objects of a source", rows, edge_bounds.SOURCE_OBJECTS_MAX),
        ("bytes of a source", size, edge_bounds.SOURCE_BYTES_MAX),
        ("sources", sources + 1, edge_bounds.SOURCES_MAX),
    ):
        if step.state is not None and has > most:
            return TenantFull(tenant=step.tenant, what=what, max=most)
    if step.state is None and rows:
        return InvalidInput(field="state", why=f"the source has {rows} rows left; drop them first")
    return None
