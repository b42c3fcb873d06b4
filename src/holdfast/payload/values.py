"""The bytes that jobs carry, as values that say what they are; and the protocol of a mapper."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.journal import EntryKind
from holdfast.store import Capabilities


class Kind(StrEnum):
    """What a value is of its job."""

    PAYLOAD = "payload"
    RESULT = "result"
    STEP = "step"
    POSITION = "position"
    SIGNAL = "signal"
    SPEC = "spec"
    """The payload of a job that is made later: of a schedule, or of the head of a flow."""
    ATTEMPT = "attempt"
    """The error of one attempt, with its traceback."""
    LOG = "log"
    ERROR = "error"
    """The text of the last error, in the record and in events."""
    PROGRESS = "progress"


TEXTS = frozenset({Kind.ERROR, Kind.PROGRESS})
FOR_PEOPLE = frozenset({Kind.ATTEMPT, Kind.LOG, Kind.ERROR, Kind.PROGRESS})
"""Kinds that no run reads. Stores and the upkeep write plain texts of these kinds too."""

OF_ENTRIES = {
    EntryKind.STEP: Kind.STEP,
    EntryKind.POSITION: Kind.POSITION,
    EntryKind.SIGNAL: Kind.SIGNAL,
    EntryKind.ERROR: Kind.ATTEMPT,
    EntryKind.LOG: Kind.LOG,
}
"""Kinds of entries that are mapped. The value of a join is a number that stores count with."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """One value of a job."""

    tenant: str
    id: str
    """The job's; of the spec of a schedule, the name of its setting."""
    kind: Kind
    name: str
    """Of an entry or a spec, within its job; else empty. The store numbers entries of the log, so
    theirs is empty.
    """
    codec: str
    """Of a payload or a spec; else empty."""
    body: Any
    """Bytes; an object where the store does not encode. A text is its UTF-8, or, where it was
    mapped, the mapped bytes.
    """
    type: str = ""
    """The job type, of a payload or a spec."""


class Use(StrEnum):
    """What values are read for."""

    RUN = "run"
    """A claim: the payload and the journal of a job that is going to run."""
    READ = "read"


Mapped = Value | HoldfastError


class Mapper(Protocol):
    """Maps values on their way to a store and back.

    Both ways take any number of values and answer each of them, in order: with the same object if
    it stays as it is, with another value, of which `codec` and `body` count, or with an error,
    which fails that value alone. KeyUnavailable says that it can be tried again. A value that the
    mapper has not made comes back as it is. A StoreError that is raised counts for every value.
    """

    def capabilities(self, inner: Capabilities) -> Capabilities:
        """What the store can do behind this mapper."""

    async def prepare(self, tenant: str) -> None:
        """After this `outgoing` does not wait, for values of the tenant, if it can be avoided: the
        caller may hold a blocking connection.
        """

    async def outgoing(self, values: Sequence[Value]) -> Sequence[Mapped]: ...

    async def incoming(self, values: Sequence[Value], use: Use) -> Sequence[Mapped]: ...

    async def close(self) -> None:
        """Called after the store has closed."""
