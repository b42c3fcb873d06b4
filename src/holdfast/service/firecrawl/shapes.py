"""The bodies of the Firecrawl protocol. Unknown fields are ignored, as in the original."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from holdfast.core.redact import Redacted

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


# The names are those of the protocol.
# ruff: noqa: N815
class JobIn(Struct, frozen=True):
    id: str
    data: Raw
    priority: Int32
    listenable: bool
    listenChannelId: str | None = None


class PushIn(Struct, frozen=True):
    teamId: str
    job: JobIn
    timeout: float | None = None
    crawlId: str | None = None


class PopIn(Struct, frozen=True):
    workerId: str | None = None
    """Without it the client is of the first generation, for which pop removes the job."""
    blockedCrawlIds: tuple[str, ...] | None = None


class CompleteIn(Redacted, Struct, frozen=True):
    queueKey: str


class ReleaseIn(Struct, frozen=True):
    jobId: str


class MarkIn(Struct, frozen=True):
    teamId: str
    jobId: str
    timeout: Int64


class UnmarkIn(Struct, frozen=True):
    teamId: str
    jobId: str


class CrawlMarkIn(Struct, frozen=True):
    crawlId: str
    jobId: str
    timeout: Int64


class CrawlUnmarkIn(Struct, frozen=True):
    crawlId: str
    jobId: str


class JobOut(Struct, frozen=True):
    """UNSET fields are omitted, because null has another meaning."""

    id: str
    data: Raw
    priority: int
    listenable: bool
    createdAt: int
    timesOutAt: int | UnsetType = UNSET
    listenChannelId: str | UnsetType = UNSET
    crawlId: str | UnsetType = UNSET
    teamId: str | UnsetType = UNSET


class PoppedOut(Redacted, Struct, frozen=True):
    job: JobOut
    queueKey: str


class SuccessOut(Struct, frozen=True):
    success: bool


class CountOut(Struct, frozen=True):
    count: int


class JobIdsOut(Struct, frozen=True):
    jobIds: Sequence[str]


class CleanedOut(Struct, frozen=True):
    cleaned: int


class CorrectionOut(Struct, frozen=True):
    correction: int


class IdsOut(Struct, frozen=True):
    ids: Sequence[str]


class HealthOut(Struct, frozen=True):
    status: str
    fdbConnected: bool
