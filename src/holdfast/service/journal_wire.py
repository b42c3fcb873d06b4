"""The shapes of journals in the native API: what a job remembers, and what is sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.core.bounds import (
    EDGES_MAX,
    ENTRIES_MAX,
    ENTRY_NAME_MAX,
    ID_MAX,
    LOG_BYTES_MAX,
)
from holdfast.core.journal import EntryKind, OnFailure
from holdfast.fields import Strict
from holdfast.service.shapes import Out

EntryName = Annotated[str, Meta(min_length=1, max_length=ENTRY_NAME_MAX)]
LogLine = Annotated[str, Meta(max_length=LOG_BYTES_MAX)]
LINES_MAX = 100
"""Lines of the log in one ack or heartbeat."""


# -- written by a worker ---------------------------------------------------------------------------


class WrittenKind(StrEnum):
    """The kinds of entries that a worker writes by name."""

    STEP = "step"
    POSITION = "position"
    JOIN = "join"


class EntryIn(Strict):
    """A step and its result, a position, or a join and the number of jobs that it awaits. A second
    step or join of the same name is ignored.
    """

    kind: WrittenKind
    name: EntryName
    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


Entries = Annotated[tuple[EntryIn, ...], Meta(max_length=ENTRIES_MAX - 2)]
"""An error and lines of the log fit beside them."""
Log = Annotated[tuple[LogLine, ...], Meta(max_length=LINES_MAX)]


class EdgeIn(Strict):
    """A job that awaits the end of the new one, by one of its joins."""

    target: Annotated[str, Meta(min_length=1, max_length=ID_MAX)]
    join: Annotated[str, Meta(max_length=ENTRY_NAME_MAX)] = ""
    on_failure: OnFailure = OnFailure.FAIL


Edges = Annotated[tuple[EdgeIn, ...], Meta(max_length=EDGES_MAX)]


# -- read ------------------------------------------------------------------------------------------


class EntryOut(Out):
    """What an earlier attempt remembers, or a signal. The value of a join tells how many jobs it
    still awaits.
    """

    kind: EntryKind
    name: str
    at: datetime
    value: Raw | None = None
    value_base64: str | None = None
    """Set if it is not JSON."""


class EntriesOut(Out):
    id: str
    journal: Sequence[EntryOut]


class RememberedOut(Out):
    name: str
    at: datetime
    size: int
    """The bytes of the value."""
    value: Raw | None = None
    """Omitted if it is not JSON, and if it is large and was not asked for."""
    value_base64: str | None = None
    left_out: bool = False
    """Whether the value is large and was left out; ask with `full=true`."""


class JoinOut(Out):
    name: str
    total: int
    left: int
    """How many jobs it still awaits."""
    failed: int = 0


class AttemptErrorOut(Out):
    attempt: int
    kind: str
    """The class of the error; empty if there was none."""
    message: str
    traceback: str
    worker: str
    started_at: datetime
    ended_at: datetime


class EdgeOut(Out):
    target: str
    join: str
    on_failure: OnFailure


class JournalOut(Out):
    """What a job remembers, each kind in the order of time."""

    id: str
    steps: Sequence[RememberedOut]
    positions: Sequence[RememberedOut]
    signals: Sequence[RememberedOut]
    joins: Sequence[JoinOut]
    errors: Sequence[AttemptErrorOut]
    """Of the last attempts that failed."""
    log: Sequence[str]
    edges: Sequence[EdgeOut]
    """The first of the jobs that await its end."""
    edges_total: int
    awaits: str | None = None
    """The signal or the join that makes the parked job ready."""


# -- signals ---------------------------------------------------------------------------------------


class SignalIn(Strict):
    """A named value for a job: any JSON, or bytes in base64. Without a value it is null."""

    name: EntryName
    value: Raw | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class SignaledOut(Out):
    id: str
    stored: bool
    """False if an earlier signal of this name counts."""


class ReplayIn(Strict):
    """Where the new job starts: it remembers the steps that were finished before this one."""

    from_step: EntryName | UnsetType = UNSET
