"""Deliveries: what is sent about an event, and the job that sends it. Pure.

The id of a delivery is a hash of its webhook and the cursor of its event. So a reader that reads an
event again, or two readers at once, make one job.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.core.clock import SECOND, Micros, moment
from holdfast.core.codec import JSON
from holdfast.core.edge_bounds import WEBHOOK_ATTEMPTS_MAX, WEBHOOK_NOTE_MAX
from holdfast.core.job import Envelope, Event, EventKind, NewJob, Reason, Rules
from holdfast.core.retry import Backoff, Jitter, RetryPolicy
from holdfast.webhooks.definition import QUEUE, TAG, TYPE, Include, Webhook, group_of

GAP = "gap"
"""The kind of a delivery that tells that events were deleted before they could be delivered."""
PING = "ping"
"""The kind of a delivery that somebody asked for, to test the receiver."""

RETRY = RetryPolicy(kind=Backoff.EXPONENTIAL, base_s=10.0, cap_s=3600.0, jitter=Jitter.EQUAL)
"""10 s, 20 s, 40 s and so on up to an hour: 20 attempts take half a day."""
KEEP: Micros = 3600 * SECOND
"""How long a delivery that worked is kept. It must outlive a takeover of the upkeep: as long as the
job is there, reading its event again makes no second one.
"""
TIMEOUT_S = 60.0

_ERRORS = frozenset({EventKind.FAILED, EventKind.RETRYING})
"""Kinds whose note has the text of an error."""


class Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a delivery's job. No secret is in it, nor the URL."""

    hook: str
    of: str
    """The id of the webhook that it is of."""
    event: dict[str, Any]


def delivery_id(tenant: str, hook: Webhook, what: str) -> str:
    """The id of a delivery, and of its job."""
    name = f"{len(tenant)}:{tenant}:{len(hook.id)}:{hook.id}:{what}"
    return f"delivery-{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def of_event(hook: Webhook, webhook: str, event: Event) -> NewJob:
    """The delivery of an event."""
    id = delivery_id(event.tenant, hook, str(event.cursor))
    told: dict[str, Any] = {
        **_head(id, event.kind.value, event.at, event.tenant),
        "cursor": event.cursor,
        "job_id": event.job_id,
        "type": event.type,
        "queue": event.queue,
        "attempt": event.attempt,
        **_note(hook, event),
    }
    if event.until is not None:
        told["until"] = _text(event.until)
    return _job(hook, webhook, event.tenant, id, told)


def of_gap(hook: Webhook, webhook: str, tenant: str, after: int, at: Micros) -> NewJob:
    """The delivery that tells that events after a cursor are lost."""
    id = delivery_id(tenant, hook, f"{GAP}:{after}")
    return _job(hook, webhook, tenant, id, {**_head(id, GAP, at, tenant), "after": after})


def of_ping(hook: Webhook, webhook: str, tenant: str, nonce: str, at: Micros) -> NewJob:
    """A delivery to test the receiver."""
    id = delivery_id(tenant, hook, f"{PING}:{nonce}")
    return _job(hook, webhook, tenant, id, _head(id, PING, at, tenant))


def is_ping(job: NewJob) -> bool:
    """Whether the job is a ping as `of_ping` makes it, of whatever webhook; for calls from outside.
    A delivery of anything else would let its maker sign what never happened.
    """
    try:
        payload = msgspec.json.decode(job.envelope.body, type=Payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return False
    head = _head(job.id, PING, 0, job.tenant) | {"at": payload.event.get("at")}
    return (
        payload.event == head
        and isinstance(head["at"], str)
        and (job.queue, job.envelope.type) == (QUEUE, TYPE)
        and job.envelope.codec == JSON
        and job.group == group_of(payload.hook)
        and job.tags == (f"{TAG}{payload.hook}",)
        and job.rules == _rules(min(job.rules.max_attempts, WEBHOOK_ATTEMPTS_MAX))
        and job.id.startswith("delivery-")
        and job.key is None
        and not job.edges
        and not job.parents
    )


def _head(id: str, kind: str, at: Micros, tenant: str) -> dict[str, Any]:
    return {"id": id, "kind": kind, "at": _text(at), "tenant": tenant}


def _text(at: Micros) -> str:
    return moment(at).isoformat().replace("+00:00", "Z")


def _note(hook: Webhook, event: Event) -> dict[str, str]:
    """Reason and error of a failure, the error only where it is asked for; or another note."""
    if event.note is None:
        return {}
    note = event.note.encode("utf-8", "replace").decode()
    if event.kind not in _ERRORS:
        return {"note": note[:WEBHOOK_NOTE_MAX]}
    found = {}
    if event.kind is EventKind.FAILED:
        reason, _, note = note.partition(": ")
        if reason in Reason.__members__:
            found["reason"] = reason
    if note and Include.ERROR in hook.include:
        found["error"] = note[:WEBHOOK_NOTE_MAX]
    return found


def _rules(attempts: int) -> Rules:
    return Rules(
        max_attempts=attempts,
        retry=RETRY,
        timeout_us=int(TIMEOUT_S) * SECOND,
        keep_us=KEEP,
    )


def _job(hook: Webhook, webhook: str, tenant: str, id: str, told: dict[str, Any]) -> NewJob:
    payload = Payload(webhook, hook.id, told)
    return NewJob(
        tenant=tenant,
        id=id,
        queue=QUEUE,
        envelope=Envelope(TYPE, JSON, 1, msgspec.json.encode(payload)),
        rules=_rules(hook.attempts),
        group=group_of(webhook),
        tags=(f"{TAG}{webhook}",),
    )
