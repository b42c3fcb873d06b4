"""Builders of jobs and rules with defaults, so that a test names only what matters to it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.clock import SECOND, Micros
from holdfast.core.job import Envelope, JobRecord, NewJob, Rules
from holdfast.core.retry import Backoff, Jitter, RetryPolicy
from holdfast.core.scope import PLATFORM, Scope, ScopeKind
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
    """A job that is ready at once. The options are those of NewJob."""
    envelope = Envelope(type=type, codec="bytes", version=1, body=body)
    return NewJob(tenant=tenant, id=id, queue=queue, envelope=envelope, rules=rules, **options)


def tenant_of(tenant: str = ACME) -> Scope:
    return Scope(tenant)


def queue_of(queue: str = MAIL, tenant: str = ACME) -> Scope:
    return Scope(tenant, ScopeKind.QUEUE, queue)


def group_of(group: str = CRAWL, tenant: str = ACME) -> Scope:
    return Scope(tenant, ScopeKind.GROUP, group)


def over_all(queue: str = MAIL) -> Scope:
    """A queue over all tenants."""
    return Scope("", ScopeKind.QUEUE, queue)


def type_of(type: str = "send") -> Scope:
    """A job type over all tenants."""
    return Scope("", ScopeKind.TYPE, type)


def by_id(changed: Changed) -> dict[str, str]:
    """The result for each id. Ids must be unique over tenants."""
    came = {ref.id: id for ref, id in changed.done.items()}
    assert len(came) == len(changed.done)
    return came


def select(tenant: str | None = ACME, **fields: Any) -> Selection:
    return Selection(tenant=tenant, **fields)


def finding(tenant: str | None = ACME, **options: Any) -> Find:
    """A Find. `after`, `limit` and `newest_first` are its own fields, others its selection's."""
    own = {name: options.pop(name) for name in _FIND if name in options}
    return Find(select=select(tenant, **options), **own)


def changing(act: Any, tenant: str | None = ACME, **options: Any) -> Change:
    """A Change. `after`, `limit` and the new values are its own fields, others its selection's."""
    own = {name: options.pop(name) for name in _CHANGE if name in options}
    return Change(select=select(tenant, **options), act=act, **own)


def ids(jobs: Any) -> list[str]:
    """The ids of records or leases, in the order given."""
    return [each.id if isinstance(each, JobRecord) else each.job.id for each in jobs]


SCOPES = (tenant_of(), queue_of(), group_of())
"""One scope of each kind. A job of CRAWL in MAIL of ACME is inside all three."""
PLATFORM_SCOPES = (PLATFORM, over_all(), type_of())
"""One of each kind of the platform's. A job of type send in MAIL is inside all three."""

_FIND = ("after", "limit", "newest_first")
_CHANGE = ("after", "limit", "priority", "delay_us", "run_at", "from_step", "by")
