"""Assertions about the jobs of an application."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.app import App
from holdfast.core.job import TERMINAL, JobRecord, Reason, State
from holdfast.store import Find, Selection
from holdfast.typed import Job, JobFunction

OPEN = tuple(state for state in State if state not in TERMINAL)
SHOWN_MAX = 10
"""Maximum jobs that a failed assertion lists."""

Named = str | type[Job] | JobFunction[..., Any]
"""A job type: its name, its class, or its function."""


async def assert_enqueued(app: App, tenant: str, type: Named, /, **fields: Any) -> JobRecord:
    """The newest unfinished job of this type whose payload has these fields.

    The AssertionError lists the jobs that exist instead.
    """
    jobs = await _open_jobs(app, tenant)
    for job in jobs:
        if job.type == _name(app, type) and _has(app, job, fields):
            return job
    there = "".join(f"\n  {_told(app, job)}" for job in jobs[:SHOWN_MAX]) or " nothing"
    raise AssertionError(f"{tenant} has no {_wanted(app, type, fields)} enqueued, but:{there}")


async def assert_not_enqueued(app: App, tenant: str, type: Named, /, **fields: Any) -> None:
    """Asserts that no unfinished job of this type has these fields."""
    for job in await _open_jobs(app, tenant):
        if job.type == _name(app, type) and _has(app, job, fields):
            raise AssertionError(f"{tenant} has one enqueued: {_told(app, job)}")


async def assert_state(
    app: App, tenant: str, job_id: str, state: State | str, *, reason: Reason | str | None = None
) -> JobRecord:
    """Asserts the state of a job and, if given, its reason. Returns the job."""
    job = await app.tenant(tenant).get(job_id)
    if job.state != state or (reason is not None and job.reason != reason):
        wanted = f"{State(state)}" + (f" ({reason})" if reason is not None else "")
        raise AssertionError(f"not {wanted}: {_told(app, job)}\n{job.error or ''}".rstrip())
    return job


async def _open_jobs(app: App, tenant: str) -> list[JobRecord]:
    """Every unfinished job, the newest first."""
    jobs: list[JobRecord] = []
    after: int | None = None
    while True:
        select = Selection(tenant=tenant, states=OPEN)
        page = await app.store.find(Find(select=select, after=after))
        jobs += page.jobs
        if page.cursor is None:
            return jobs
        after = page.cursor


def _name(app: App, type: Named) -> str:
    if isinstance(type, str):
        return type
    kind = type.kind if isinstance(type, JobFunction) else type
    return app.registry.of_kind(kind).name


def _payload(app: App, job: JobRecord) -> dict[str, Any]:
    job_type = app.registry.named(job.type)
    if job_type is None:
        return {}
    value = app.codecs.unseal(job.envelope, job_type.kind, job_type.version, job_type.upgrades)
    return msgspec.structs.asdict(value)


def _has(app: App, job: JobRecord, fields: dict[str, Any]) -> bool:
    payload = _payload(app, job)
    return all(name in payload and payload[name] == value for name, value in fields.items())


def _wanted(app: App, type: Named, fields: dict[str, Any]) -> str:
    return f"{_name(app, type)}({', '.join(f'{key}={value!r}' for key, value in fields.items())})"


def _told(app: App, job: JobRecord) -> str:
    why = f" ({job.reason})" if job.reason is not None else ""
    return f"{_wanted(app, job.type, _payload(app, job))} {job.id} is {job.state}{why}"
