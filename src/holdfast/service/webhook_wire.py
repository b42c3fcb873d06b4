"""The shapes of the native API for webhooks. Instants are RFC 3339, durations are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from holdfast.core.edge_bounds import (
    WEBHOOK_ATTEMPTS_MAX,
    WEBHOOK_FILTER_MAX,
    WEBHOOK_KEEP_S_MAX,
    WEBHOOK_PAUSE_S_MAX,
    WEBHOOK_SECRET_MAX,
    WEBHOOK_SECRET_MIN,
    WEBHOOK_URL_MAX,
)
from holdfast.core.job import EventKind
from holdfast.fields import QueueName, Strict, TypeName
from holdfast.service.schedule_wire import EditOut, PausedOut
from holdfast.service.shapes import Out
from holdfast.webhooks.definition import Include

Secret = Annotated[str, Meta(min_length=WEBHOOK_SECRET_MIN, max_length=WEBHOOK_SECRET_MAX)]
Types = Annotated[tuple[TypeName, ...], Meta(max_length=WEBHOOK_FILTER_MAX)]
Queues = Annotated[tuple[QueueName, ...], Meta(max_length=WEBHOOK_FILTER_MAX)]


class WebhookIn(Strict, kw_only=True):
    """What to change; a new webhook needs `url`. Without `secret` a new one gets a random one."""

    url: Annotated[str, Meta(min_length=1, max_length=WEBHOOK_URL_MAX)] | UnsetType = UNSET
    kinds: Annotated[tuple[EventKind, ...], Meta(min_length=1)] | UnsetType = UNSET
    types: Types | UnsetType = UNSET
    queues: Queues | UnsetType = UNSET
    include: tuple[Include, ...] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    attempts: Annotated[int, Meta(ge=1, le=WEBHOOK_ATTEMPTS_MAX)] | UnsetType = UNSET
    pause_after: Annotated[float, Meta(ge=60, le=WEBHOOK_PAUSE_S_MAX)] | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET
    expect: Annotated[int, Meta(ge=0)] | UnsetType = UNSET

    def __repr__(self) -> str:
        return "WebhookIn(<redacted>)"


class RotateIn(Strict, kw_only=True):
    """How many seconds the secret before goes on signing, and the new secret if it is not to be a
    random one.
    """

    keep: Annotated[float, Meta(ge=0, le=WEBHOOK_KEEP_S_MAX)] | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET

    def __repr__(self) -> str:
        return "RotateIn(<redacted>)"


class ResumeIn(Strict):
    """With `skip`, what happened during the pause is not delivered."""

    skip: bool = False


class FailingOut(Out):
    """The failures since the last success."""

    since: datetime
    failures: int
    at: datetime
    error: str


class WebhookOut(Out):
    """A webhook. `fault` is there if its definition cannot be read."""

    name: str
    version: int
    url: str | None = None
    kinds: Sequence[EventKind] = ()
    types: Sequence[str] = ()
    queues: Sequence[str] = ()
    include: Sequence[Include] = ()
    headers: Sequence[str] = ()
    """The names of its own headers."""
    attempts: int | None = None
    pause_after: float | None = None
    made_at: datetime | None = None
    rotated_at: datetime | None = None
    paused: PausedOut | None = None
    secret: str | None = None
    """Only in the answer of the call that made it."""
    made_by: str | None = None
    """This and what follows is there only where one is read."""
    cursor: int | None = None
    """Up to which event deliveries were made."""
    gaps: int | None = None
    """How often events were deleted before they were delivered."""
    gap_at: datetime | None = None
    failing: FailingOut | None = None
    deliveries: Mapping[str, int] | None = None
    """Stored deliveries by state."""
    edits: Sequence[EditOut] | None = None
    """The newest changes, the last one first."""
    fault: str | None = None

    def __repr__(self) -> str:
        return f"WebhookOut(name={self.name!r})"


class WebhooksOut(Out):
    webhooks: Sequence[WebhookOut]
