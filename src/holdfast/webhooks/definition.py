"""What a webhook is: settings of its tenant. Pure.

webhook/...          its definition, which anybody who may read may see
webhook-secret/...   its secrets and the values of its headers, for those who sign and those who set
webhook-cursor/...   up to which event deliveries were made
webhook-health/...   since when deliveries fail; missing while they do not
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TypeVar

import msgspec

from holdfast.core.bounds import EDITS_MAX, QUEUE_MAX, REASON_MAX, TENANT_MAX, TYPE_MAX
from holdfast.core.check import check_free, check_name, check_whole
from holdfast.core.clock import SECOND, Micros
from holdfast.core.edge_bounds import (
    WEBHOOK_ATTEMPTS_MAX,
    WEBHOOK_FILTER_MAX,
    WEBHOOK_HEADERS_MAX,
    WEBHOOK_MAX,
    WEBHOOK_PAUSE_S_MAX,
    WEBHOOK_SECRETS_MAX,
    WEBHOOK_URL_MAX,
)
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Event, EventKind
from holdfast.core.schedule import ITSELF, Edit, Paused
from holdfast.webhooks.signing import check_secret

PREFIX = "webhook/"
SECRET_PREFIX = "webhook-secret/"
CURSOR_PREFIX = "webhook-cursor/"
HEALTH_PREFIX = "webhook-health/"
PREFIXES = (PREFIX, SECRET_PREFIX, CURSOR_PREFIX, HEALTH_PREFIX)

QUEUE = "holdfast.webhooks"
"""The queue of deliveries. No other job may be in it."""
TYPE = "holdfast.webhook"
"""The job type of deliveries."""
TAG = "webhook:"
"""The tag of deliveries: it names the webhook."""
GROUP = "webhook/"
"""The group of deliveries: it is limited, and paused together with the webhook."""

KINDS = frozenset(EventKind) - {EventKind.CONFIGURED}
"""The kinds that can be subscribed to: those about a job."""
USUAL_KINDS = (EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELED)
ATTEMPTS = 20
PAUSE_AFTER: Micros = 3 * 24 * 3600 * SECOND


class Include(StrEnum):
    """What is sent besides the event itself."""

    PAYLOAD = "payload"
    RESULT = "result"
    ERROR = "error"


class Webhook(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The definition. Its tenant and name are in the name of the setting."""

    id: str
    """Random and new when it is made, so that a later webhook of the same name is another one."""
    url: str
    kinds: tuple[EventKind, ...] = USUAL_KINDS
    types: tuple[str, ...] = ()
    """Empty: every type."""
    queues: tuple[str, ...] = ()
    """Empty: every queue."""
    include: tuple[Include, ...] = ()
    headers: tuple[str, ...] = ()
    """The names of its own headers. Their values are with the secrets."""
    attempts: int = ATTEMPTS
    pause_after_us: Micros = PAUSE_AFTER
    """It pauses itself after failing for so long."""
    made_by: str
    made_at: Micros
    rotated_at: Micros | None = None
    paused: Paused | None = None
    edits: tuple[Edit, ...] = ()
    """The newest changes, the last one first."""

    def checked(self) -> Webhook:
        """Returns itself. Raises InvalidInput, which names the wrong field. Whether the URL may be
        called is another question, for `networks.target_of`.
        """
        check_name("id", self.id, WEBHOOK_MAX)
        check_name("url", self.url, WEBHOOK_URL_MAX)
        if not self.kinds:
            raise InvalidInput(field="kinds", why="names no kind of event")
        for kind in self.kinds:
            if kind not in KINDS:
                why = f"{kind.value!r} is about settings, not about a job"
                raise InvalidInput(field="kinds", why=why)
        for field, names, most in (
            ("types", self.types, TYPE_MAX),
            ("queues", self.queues, QUEUE_MAX),
        ):
            if len(names) > WEBHOOK_FILTER_MAX:
                why = f"has {len(names)}, at most {WEBHOOK_FILTER_MAX}"
                raise InvalidInput(field=field, why=why)
            for name in names:
                check_free(field, check_name(field, name, most))
        if len(self.headers) > WEBHOOK_HEADERS_MAX:
            why = f"has {len(self.headers)}, at most {WEBHOOK_HEADERS_MAX}"
            raise InvalidInput(field="headers", why=why)
        check_whole("attempts", self.attempts, 1, WEBHOOK_ATTEMPTS_MAX)
        most_us = int(WEBHOOK_PAUSE_S_MAX) * SECOND
        check_whole("pause_after_us", self.pause_after_us, 60 * SECOND, most_us)
        check_name("made_by", self.made_by, REASON_MAX)
        if self.paused is not None:
            check_name("reason", self.paused.reason, REASON_MAX)
            check_name("author", self.paused.author, REASON_MAX)
        return self

    def wants(self, event: Event) -> bool:
        """Whether the event is delivered. What the library's own jobs do is not: a delivery of a
        delivery would have no end.
        """
        return (
            event.kind in self.kinds
            and event.kind in KINDS
            and not event.type.startswith("holdfast.")
            and not event.queue.startswith("holdfast.")
            and (not self.types or event.type in self.types)
            and (not self.queues or event.queue in self.queues)
        )

    @property
    def gave_up(self) -> bool:
        """Whether it paused itself."""
        return self.paused is not None and self.paused.author == ITSELF

    def edited(self, edit: Edit) -> Webhook:
        """The same with one more entry in its list of changes."""
        return msgspec.structs.replace(self, edits=(edit, *self.edits)[:EDITS_MAX])


class Key(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One secret. After a rotation the one before goes on signing until an instant."""

    secret: str
    until: Micros | None = None

    def __repr__(self) -> str:
        return "Key(<redacted>)"


class Secrets(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What only the sender and the receiver know."""

    keys: tuple[Key, ...]
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        return "Secrets(<redacted>)"

    def checked(self) -> Secrets:
        if not 1 <= len(self.keys) <= WEBHOOK_SECRETS_MAX:
            raise InvalidInput(field="secret", why=f"has 1 to {WEBHOOK_SECRETS_MAX} keys")
        for key in self.keys:
            check_secret(key.secret)
        return self

    def signing(self, now: Micros) -> list[str]:
        """The secrets that sign at this instant, the newest first."""
        return [one.secret for one in self.keys if one.until is None or one.until > now]


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far events were read, and where some were lost."""

    cursor: int
    gaps: int = 0
    gap_at: Micros | None = None


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of failures, without a success in between."""

    since: Micros
    failures: int
    at: Micros
    """When the last one was."""
    error: str
    gone: bool = False
    """Whether the receiver answered 410: it wants no more."""


# -- names -----------------------------------------------------------------------------------------


def check_webhook(name: object) -> str:
    """The name if a webhook may have it."""
    return check_name("webhook", name, WEBHOOK_MAX)


def group_of(webhook: str) -> str:
    """The group of its deliveries."""
    return GROUP + webhook


def under(tenant: str | None, prefix: str = PREFIX) -> str:
    """The prefix of a tenant's webhooks; None: of all."""
    return prefix if tenant is None else f"{prefix}{len(tenant)}:{tenant}/"


def name_of(tenant: str, webhook: str, prefix: str = PREFIX) -> str:
    """The name of a setting. The length in it keeps names with slashes distinct."""
    return f"{under(tenant, prefix)}{webhook}"


_NAMED = re.compile(r"(webhook(?:-secret|-cursor|-health)?/)([0-9]{1,4}):")


def webhook_of(name: str) -> tuple[str, str, str] | None:
    """Prefix, tenant and webhook of a setting; None if it is none of a webhook's."""
    if not name.startswith(PREFIXES):
        return None
    head = _NAMED.match(name)
    end = 0 if head is None else head.end() + int(head[2])
    if head is None or name[end : end + 1] != "/":
        raise InvalidInput(field="webhook", why=f"{name!r} is not the name of a webhook")
    tenant, webhook = name[head.end() : end], name[end + 1 :]
    check_name("tenant", tenant, TENANT_MAX)
    check_webhook(webhook)
    if name_of(tenant, webhook, head[1]) != name:
        raise InvalidInput(field="webhook", why=f"{name!r} is not the name of a webhook")
    return head[1], tenant, webhook


# -- stored form -----------------------------------------------------------------------------------

T = TypeVar("T", Webhook, Secrets, Position, Health)
encode = msgspec.json.Encoder().encode


def decode(kind: type[T], value: bytes) -> T:
    """A stored value. Raises InvalidInput, which shows nothing of it."""
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # Of secrets not even the fields are told.
        why = "cannot be read" if kind is Secrets else f"cannot be read: {error}"
        raise InvalidInput(field="webhook", why=why) from None
