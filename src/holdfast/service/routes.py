"""THE TABLE: every route of the native API. Routing, the OpenAPI document and the tests of rights
read it; a route that is not here does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.service import (
    flow_wire,
    journal_wire,
    schedule_wire,
    scope_wire,
    tier_wire,
    wire,
)
from holdfast.service.api import (
    blobs,
    dead,
    events,
    flows,
    holds,
    jobs,
    journals,
    platform,
    schedules,
    scopes,
    settings,
    shadows,
    storage,
    system,
    tiers,
    work,
)
from holdfast.service.endpoint import Handler, Route
from holdfast.service.rights import Right
from holdfast.service.source_routes import source_routes
from holdfast.service.webhook_routes import webhook_routes
from holdfast.workflow import written

PRODUCE, WORK, READ = Right.PRODUCE, Right.WORK, Right.READ
OPERATE, PLATFORM, ADMIN = Right.OPERATE, Right.PLATFORM, Right.ADMIN


def _route(
    part: str, name: str, where: str, right: Right | None, handler: Handler, **more: Any
) -> Route:
    method, path = where.split(" ")
    summary = (handler.__doc__ or name.replace("_", " ")).split("\n\n")[0].replace("\n    ", " ")
    return Route(
        part=part,
        name=name,
        method=method,
        path=path,
        right=right,
        handler=handler,
        summary=" ".join(summary.split()),
        **more,
    )


def _jobs() -> Iterator[Route]:
    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return _route("jobs", name, where, right, handler, **more)

    yield line(
        "enqueue", "POST /v1/jobs", PRODUCE, jobs.enqueue,
        body=wire.NewJobIn, answer=wire.EnqueuedOut, status=201,
    )  # fmt: skip
    yield line(
        "enqueue_many", "POST /v1/jobs/batch", PRODUCE, jobs.enqueue_many,
        body=wire.NewJobsIn, answer=wire.EnqueuedManyOut,
    )  # fmt: skip
    yield line("find", "GET /v1/jobs", READ, jobs.find, query=jobs.Listing, answer=wire.JobsOut)
    yield line("get", "GET /v1/jobs/{id}", READ, jobs.get, answer=wire.JobOut)
    yield line(
        "result", "GET /v1/jobs/{id}/result", READ, jobs.result,
        query=jobs.Waiting, answer=wire.ResultOut, waits=True,
    )  # fmt: skip
    yield line("explain", "GET /v1/jobs/{id}/explain", READ, jobs.explain, answer=wire.ExplainedOut)
    yield line("timeline", "GET /v1/jobs/{id}/events", READ, jobs.timeline, answer=wire.EventsOut)
    yield line("cancel", "POST /v1/jobs/{id}/cancel", PRODUCE, jobs.cancel, answer=wire.CanceledOut)
    yield line(
        "signal", "POST /v1/jobs/{id}/signal", PRODUCE, journals.signal,
        body=journal_wire.SignalIn, answer=journal_wire.SignaledOut,
    )  # fmt: skip
    yield line(
        "journal", "GET /v1/jobs/{id}/journal", READ, journals.journal,
        query=journals.Reading, answer=journal_wire.JournalOut,
    )  # fmt: skip
    yield line(
        "replay", "POST /v1/jobs/{id}/replay", OPERATE, jobs.replay,
        body=journal_wire.ReplayIn, optional_body=True, answer=wire.ReplayedOut,
    )  # fmt: skip
    yield line(
        "reprioritise", "POST /v1/jobs/{id}/reprioritise", OPERATE, jobs.reprioritise,
        body=wire.PriorityIn, answer=wire.JobOut,
    )  # fmt: skip
    yield line(
        "reschedule", "POST /v1/jobs/{id}/reschedule", OPERATE, jobs.reschedule,
        body=wire.TimeIn, answer=wire.JobOut,
    )  # fmt: skip
    yield line("delete", "DELETE /v1/jobs/{id}", OPERATE, jobs.delete, answer=wire.DeletedOut)


def _blobs() -> Iterator[Route]:
    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return _route("blobs", name, where, right, handler, **more)

    yield line(
        "put_blob", "POST /v1/blobs", PRODUCE, blobs.put,
        query=blobs.Putting, answer=wire.BlobOut, status=201, takes_bytes=True,
    )  # fmt: skip
    yield line("blob", "GET /v1/blobs/{blob}", READ, blobs.get, gives_bytes=True)
    yield line(
        "blob_of_job", "GET /v1/jobs/{id}/blobs/{blob}", WORK, blobs.of_job, gives_bytes=True
    )


def _work() -> Iterator[Route]:
    def line(name: str, where: str, handler: Handler, **more: Any) -> Route:
        return _route("work", name, where, WORK, handler, **more)

    yield line(
        "claim", "POST /v1/claim", work.claim,
        body=wire.ClaimIn, optional_body=True, answer=wire.LeasesOut, waits=True,
    )  # fmt: skip
    yield line("ack", "POST /v1/ack", work.ack, body=wire.AcksIn, answer=wire.AcksOut)
    yield line(
        "extend", "POST /v1/extend", work.extend, body=wire.ExtendsIn, answer=wire.ExtendsOut
    )
    yield line(
        "remembered", "GET /v1/jobs/{id}/remembered", journals.remembered,
        answer=journal_wire.EntriesOut,
    )  # fmt: skip


def _scopes() -> Iterator[Route]:
    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return _route("scopes", name, where, right, handler, **more)

    yield line("queues", "GET /v1/queues", READ, scopes.queues, answer=scope_wire.TalliesOut)
    yield line(
        "groups", "GET /v1/groups", READ, scopes.groups,
        query=scopes.Paging, answer=scope_wire.TalliesOut,
    )  # fmt: skip
    yield line(
        "load", "GET /v1/load", READ, scopes.load, query=scopes.LoadQuery, answer=scopes.LoadOut
    )
    yield line(
        "scopes",
        "GET /v1/scopes",
        READ,
        scopes.every,
        query=scopes.Listing,
        answer=scope_wire.ScopesOut,
    )
    for name, where in (("tenant", "tenant"), ("part", "{kind}/{name}")):
        path = f"/v1/scopes/{where}"
        yield line(f"{name}_scope", f"GET {path}", READ, scopes.get, answer=scope_wire.ScopeOut)
        yield line(
            f"change_{name}_scope", f"PATCH {path}", OPERATE, scopes.change,
            body=scope_wire.ScopeIn, answer=scope_wire.ScopeOut,
        )  # fmt: skip
        yield line(
            f"{name}_counts", f"GET {path}/counts", READ, scopes.counts, answer=scope_wire.TallyOut
        )
        yield line(
            f"{name}_effective", f"GET {path}/effective", READ, scopes.effective,
            answer=tier_wire.EffectivesOut,
        )  # fmt: skip
        yield line(
            f"pause_{name}", f"POST {path}/pause", OPERATE, scopes.pause,
            body=scope_wire.PauseIn, answer=scope_wire.ScopeOut,
        )  # fmt: skip
        yield line(
            f"resume_{name}",
            f"POST {path}/resume",
            OPERATE,
            scopes.resume,
            answer=scope_wire.ScopeOut,
        )
        yield line(
            f"{name}_slots",
            f"GET {path}/slots",
            READ,
            scopes.slots,
            query=scopes.Listing,
            answer=scope_wire.SlotsOut,
        )
        yield line(
            f"push_{name}_slot", f"PUT {path}/slots/{{slot}}", WORK, scopes.push_slot,
            body=scope_wire.SlotIn, answer=scope_wire.SlotOut,
        )  # fmt: skip
        yield line(
            f"remove_{name}_slot", f"DELETE {path}/slots/{{slot}}", WORK, scopes.remove_slot,
            answer=scope_wire.SlotOut,
        )  # fmt: skip
    yield line(
        "cancel_group", "POST /v1/scopes/{kind}/{name}/cancel", OPERATE, scopes.cancel_group,
        query=scopes.Step, answer=wire.DoneOut,
    )  # fmt: skip


def _flows() -> Iterator[Route]:
    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return _route("flows", name, where, right, handler, **more)

    path = "/v1/flows/{id}"
    yield line(
        "start_flow", "POST /v1/flows", PRODUCE, flows.start,
        body=written.FlowIn, answer=flow_wire.FlowStartedOut, status=201,
    )  # fmt: skip
    yield line(
        "flows", "GET /v1/flows", READ, flows.every, query=flows.Listing, answer=flow_wire.FlowsOut
    )
    yield line("flow", f"GET {path}", READ, flows.get, answer=flow_wire.FlowOut)
    yield line(
        "flow_nodes", f"GET {path}/nodes", READ, flows.nodes,
        query=flows.NodesQuery, answer=flow_wire.FlowNodesOut,
    )  # fmt: skip
    yield line(
        "cancel_flow", f"POST {path}/cancel", PRODUCE, flows.cancel,
        answer=flow_wire.FlowCanceledOut,
    )  # fmt: skip
    yield line(
        "retry_flow", f"POST {path}/retry", OPERATE, flows.retry,
        body=flow_wire.FlowRetryIn, optional_body=True,
        answer=flow_wire.FlowRetriedOut, status=201,
    )  # fmt: skip


def _schedules() -> Iterator[Route]:
    def line(name: str, where: str, right: Right, handler: Handler, **more: Any) -> Route:
        return _route("schedules", name, where, right, handler, **more)

    path = "/v1/schedules/{name}"
    out = schedule_wire.ScheduleOut
    yield line(
        "schedules", "GET /v1/schedules", READ, schedules.every,
        query=schedules.Listing, answer=schedule_wire.SchedulesOut,
    )  # fmt: skip
    yield line("schedule", f"GET {path}", READ, schedules.get, answer=out)
    yield line(
        "set_schedule", f"PUT {path}", PRODUCE, schedules.put,
        body=schedule_wire.ScheduleIn, answer=out, status=201,
    )  # fmt: skip
    yield line(
        "delete_schedule", f"DELETE {path}", PRODUCE, schedules.delete, answer=wire.DeletedOut
    )
    yield line(
        "pause_schedule", f"POST {path}/pause", OPERATE, schedules.pause,
        body=scope_wire.PauseIn, answer=out,
    )  # fmt: skip
    yield line("resume_schedule", f"POST {path}/resume", OPERATE, schedules.resume, answer=out)
    yield line(
        "run_schedule_now", f"POST {path}/run-now", OPERATE, schedules.run_now,
        answer=wire.EnqueuedOut, status=201,
    )  # fmt: skip
    yield line(
        "backfill_schedule", f"POST {path}/backfill", OPERATE, schedules.backfill,
        body=schedule_wire.BackfillIn, answer=schedule_wire.BackfillOut,
    )  # fmt: skip


def _platform() -> Iterator[Route]:
    """About all tenants, so for no token of one."""

    def line(name: str, where: str, handler: Handler, **more: Any) -> Route:
        return _route("platform", name, where, PLATFORM, handler, tenant=False, **more)

    yield line(
        "platform_scopes", "GET /v1/platform/scopes", platform.every,
        query=scopes.Listing, answer=scope_wire.ScopesOut,
    )  # fmt: skip
    yield line("tiers", "GET /v1/platform/tiers", tiers.every, answer=tier_wire.TiersOut)
    for name, path in (
        ("defaults", "/v1/platform/defaults"),
        ("tier", "/v1/platform/tiers/{tier}"),
    ):
        yield line(name, f"GET {path}", tiers.get, answer=tier_wire.TierOut)
        yield line(
            f"change_{name}", f"PATCH {path}", tiers.change,
            body=tier_wire.TierIn, answer=tier_wire.TierOut,
        )  # fmt: skip
    yield line("delete_tier", "DELETE /v1/platform/tiers/{tier}", tiers.delete, answer=wire.DoneOut)
    for name, path in (
        ("platform", "/v1/platform"),
        ("platform_queue", "/v1/platform/queues/{queue}"),
        ("platform_type", "/v1/platform/types/{type}"),
    ):
        told = scope_wire.PlatformOut
        yield line(f"{name}_scope", f"GET {path}", platform.get, answer=told)
        yield line(
            f"change_{name}_scope", f"PATCH {path}", platform.change,
            body=scope_wire.PlatformIn, answer=told,
        )  # fmt: skip
        yield line(
            f"{name}_counts", f"GET {path}/counts", platform.counts, answer=scope_wire.TallyOut
        )
        yield line(
            f"pause_{name}", f"POST {path}/pause", platform.pause,
            body=scope_wire.PauseIn, answer=told,
        )  # fmt: skip
        yield line(f"resume_{name}", f"POST {path}/resume", platform.resume, answer=told)


def _dead() -> Iterator[Route]:
    yield _route(
        "dead letters", "dead", "GET /v1/dead", READ, dead.find,
        query=jobs.Listing, answer=wire.JobsOut,
    )  # fmt: skip
    for name, handler in (("replay", dead.replay), ("purge", dead.purge)):
        yield _route(
            "dead letters", f"{name}_dead", f"POST /v1/dead/{name}", OPERATE, handler,
            query=dead.Steps, answer=wire.DoneOut,
        )  # fmt: skip


def _events() -> Iterator[Route]:
    yield _route(
        "events", "events", "GET /v1/events", READ, events.page,
        query=events.Reading, answer=wire.EventsOut,
    )  # fmt: skip
    yield _route(
        "events", "follow", "GET /v1/events/stream", READ, events.follow,
        query=events.Following, waits=True, streams=True,
    )  # fmt: skip


def _system() -> Iterator[Route]:
    def line(name: str, where: str, right: Right | None, handler: Handler, answer: Any) -> Route:
        return _route("service", name, where, right, handler, answer=answer, tenant=False)

    yield line("tenants", "GET /v1/tenants", ADMIN, system.tenants, system.TenantsOut)
    yield _route(
        "service", "workers", "GET /v1/workers", ADMIN, system.workers,
        query=scopes.Listing, answer=system.WorkersOut, tenant=False,
    )  # fmt: skip
    yield line("metrics", "GET /metrics", READ, system.metrics, None)
    yield line("alive", "GET /healthz", None, system.alive, system.HealthOut)
    yield line("ready", "GET /readyz", None, system.ready, system.ReadyOut)


def _store() -> Iterator[Route]:
    """For our own remote store, in msgpack: not in the document, which is for other languages."""

    def line(name: str, right: Right, handler: Handler, **more: Any) -> Route:
        more = {"tenant": None, "hidden": True, **more}
        return _route("store", f"store_{name}", f"POST /v1/store/{name}", right, handler, **more)

    yield _route(
        "store", "store_hello", "GET /v1/store", None, storage.hello, tenant=False, hidden=True
    )
    yield line("enqueue", PRODUCE, storage.enqueue)
    yield line("claim", WORK, storage.claim)
    yield line("extend", WORK, storage.extend)
    yield line("ack", WORK, storage.ack)
    yield line("remembered", WORK, storage.remembered)
    yield line("lapse", ADMIN, storage.lapse, tenant=False)
    yield line("signal", PRODUCE, storage.signal)
    yield line("cancel", PRODUCE, storage.cancel)
    yield line("change", OPERATE, storage.change)
    yield line("expired", ADMIN, storage.expired, tenant=False)
    yield line("prune", ADMIN, storage.prune, tenant=False)
    yield line("find", READ, storage.find)
    yield line("count", READ, storage.count)
    yield line("recount", ADMIN, storage.recount, tenant=False)
    yield line("explain", READ, storage.explain)
    yield line("events", READ, storage.events)
    yield line("settings", READ, settings.settings)
    yield line("put", OPERATE, settings.put)
    yield line("holds", READ, holds.holds)
    yield line("hold", WORK, holds.hold)
    yield line("shadow", READ, shadows.shadow)
    yield line("step", PRODUCE, shadows.step)
    yield line("wait", WORK, storage.wait, waits=True)
    yield line("watch", READ, storage.watch, waits=True)


ROUTES: tuple[Route, ...] = (
    *_jobs(),
    *_blobs(),
    *_work(),
    *_scopes(),
    *_flows(),
    *_schedules(),
    *webhook_routes(_route),
    *source_routes(_route),
    *_platform(),
    *_dead(),
    *_events(),
    *_system(),
    *_store(),
)
