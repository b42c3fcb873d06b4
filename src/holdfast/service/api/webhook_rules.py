"""What a caller of the store's verbs may do with webhooks: their settings, and their deliveries.

A webhook takes the events of a whole tenant to the outside. So it needs the right operate, and a
token for all queues and types. Its secret signs what receivers believe: only those may read it who
send deliveries, and could replace it anyway.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.job import NewJob
from holdfast.service.call import Call
from holdfast.service.rights import Forbidden, Right
from holdfast.store import Put
from holdfast.webhooks.definition import (
    CURSOR_PREFIX,
    HEALTH_PREFIX,
    PREFIX,
    PREFIXES,
    QUEUE,
    SECRET_PREFIX,
    TYPE,
    Health,
    Position,
    Secrets,
    Webhook,
    decode,
    under,
)
from holdfast.webhooks.delivery import is_ping
from holdfast.webhooks.networks import allowed, target_of

_KINDS: dict[str, Any] = {
    PREFIX: Webhook,
    SECRET_PREFIX: Secrets,
    CURSOR_PREFIX: Position,
    HEALTH_PREFIX: Health,
}


def over_all(call: Call) -> None:
    """Refuses webhooks to a token for some queues or types."""
    if not _over_all(call):
        raise Forbidden(why="this token is for some queues or types, and webhooks span them")


def _over_all(call: Call) -> bool:
    return call.caller.queues is None and call.caller.types is None


def may_send(call: Call) -> bool:
    """Whether the caller may send deliveries: it reads the secrets, and notes what failed."""
    needed = {Right.WORK, Right.OPERATE}
    return _over_all(call) and needed <= call.caller.rights


def claimed(call: Call, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The queues of a claim. Every worker asks for deliveries; one that may not do without."""
    if asked is None or may_send(call):
        return asked
    return tuple(queue for queue in asked if queue != QUEUE)


def is_of_webhooks(name: str) -> bool:
    """Whether a name, or a prefix of names, is one of webhooks."""
    return name.startswith(PREFIXES)


def listed(call: Call, prefix: str) -> None:
    """Raises Forbidden if the caller may not list these settings of webhooks."""
    over_all(call)
    if prefix.startswith(SECRET_PREFIX) and not may_send(call):
        raise Forbidden(why="this token may not read the secrets of webhooks")
    tenant = call.tenant_name
    if tenant is not None and not any(prefix.startswith(under(tenant, one)) for one in PREFIXES):
        raise Forbidden(why="this token may read only its own tenant")


def check_put(call: Call, one: Put, prefix: str) -> None:
    """Refuses a value that is none, so that nobody meets it later."""
    over_all(call)
    if one.value is None:
        return
    value = decode(_KINDS[prefix], one.value)
    if isinstance(value, Webhook):
        value.checked()
        if not is_upkeep(call):  # It pauses one also whose URL is not allowed any more.
            target_of(value.url, allowed(call.service.config.webhooks_allow))
    if isinstance(value, Secrets):
        value.checked()


def is_upkeep(call: Call) -> bool:
    """Whether the caller may do the upkeep: it is of no tenant, and has every right."""
    return call.caller.tenant is None and Right.ADMIN in call.caller.rights


def check_delivery(call: Call, job: NewJob) -> None:
    """Refuses deliveries of anybody but the upkeep, except pings: whoever made one could have a
    receiver believe what never happened.
    """
    over_all(call)
    if is_upkeep(call):
        return
    if Right.OPERATE not in call.caller.rights or not is_ping(job):
        raise Forbidden(why="only the upkeep makes deliveries of webhooks")


def is_delivery(job: NewJob) -> bool:
    """Whether the job is in the queue of deliveries, or of their type."""
    return job.queue == QUEUE or job.envelope.type == TYPE


def with_known(before: Webhook | None, wanted: Webhook) -> Webhook:
    """The definition, with what is known about who made and changed it."""
    if before is None:
        return wanted
    return msgspec.structs.replace(
        wanted, made_by=before.made_by, made_at=before.made_at, edits=before.edits
    )
