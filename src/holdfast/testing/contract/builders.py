"""Jobs and rules with defaults, so that a test names only what it is about. Ids are explicit."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.clock import SECOND, Micros
from holdfast.job import Envelope, JobRecord, NewJob, Rules
from holdfast.retry import Backoff, Jitter, RetryPolicy
from holdfast.scope import Scope, ScopeKind
from holdfast.store import Change, Changed, Find, Selection

ACME = "acme"
GLOBEX = "globex"
MAIL = "mail"
AUDIO = "audio"
CRAWL = "crawl"

LEASE: Micros = 60 * SECOND
HOUR: Micros = 3600 * SECOND
RETRY_S = 10
RETRY: Micros = RETRY_S * SECOND

RULES = Rules(
    max_attempts=3,
    retry=RetryPolicy(kind=Backoff.FIXED, base_s=RETRY_S, jitter=Jitter.NONE),
    keep_us=HOUR,
    keep_failed_us=2 * HOUR,
)


def rules(**changes: Any) -> Rules:
    """Three attempts ten seconds apart, kept for an hour (two when failed), with these changes."""
    return msgspec.structs.replace(RULES, **changes)


def job(
    id: str,
    *,
    tenant: str = ACME,
    queue: str = MAIL,
    type: str = "send",
    body: object = b"{}",
    rules: Rules = RULES,
    **options: Any,
) -> NewJob:
    """A job ready at once; the options are those of NewJob."""
    envelope = Envelope(type=type, codec="bytes", version=1, body=body)
    return NewJob(tenant=tenant, id=id, queue=queue, envelope=envelope, rules=rules, **options)


def tenant_of(tenant: str = ACME) -> Scope:
    return Scope(tenant)


def queue_of(queue: str = MAIL, tenant: str = ACME) -> Scope:
    return Scope(tenant, ScopeKind.QUEUE, queue)


def group_of(group: str = CRAWL, tenant: str = ACME) -> Scope:
    return Scope(tenant, ScopeKind.GROUP, group)


def by_id(changed: Changed) -> dict[str, str]:
    """What came of each id; no id of two tenants may be in it."""
    came = {ref.id: id for ref, id in changed.done.items()}
    assert len(came) == len(changed.done)
    return came


def select(tenant: str | None = ACME, **fields: Any) -> Selection:
    return Selection(tenant=tenant, **fields)


def finding(tenant: str | None = ACME, **options: Any) -> Find:
    """A find over a selection; `after`, `limit` and `newest_first` are the find's own."""
    own = {name: options.pop(name) for name in _FIND if name in options}
    return Find(select=select(tenant, **options), **own)


def changing(act: Any, tenant: str | None = ACME, **options: Any) -> Change:
    """A change over a selection; `after`, `limit` and the new values are the change's own."""
    own = {name: options.pop(name) for name in _CHANGE if name in options}
    return Change(select=select(tenant, **options), act=act, **own)


def ids(jobs: Any) -> list[str]:
    """The ids of records or leases, in the order given."""
    return [each.id if isinstance(each, JobRecord) else each.job.id for each in jobs]


SCOPES = (tenant_of(), queue_of(), group_of())
"""One of each kind; a job of CRAWL in MAIL of ACME is inside all three."""

_FIND = ("after", "limit", "newest_first")
_CHANGE = ("after", "limit", "priority", "delay_us", "run_at", "by")
