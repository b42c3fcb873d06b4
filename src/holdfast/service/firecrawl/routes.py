"""THE TABLE of the Firecrawl protocol: every route with the right that it needs, and its mount."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import BaseRoute, Route

from holdfast.service.app import Mount
from holdfast.service.firecrawl import active, janitor, mapping, queue
from holdfast.service.firecrawl.endpoint import Endpoint, Handler, Line, Read, reader
from holdfast.service.firecrawl.shapes import (
    CompleteIn,
    CrawlMarkIn,
    CrawlUnmarkIn,
    MarkIn,
    PopIn,
    ReleaseIn,
    UnmarkIn,
)
from holdfast.service.firecrawl.wire import Settings, Wire
from holdfast.service.rights import Right
from holdfast.service.service import Service

_PRODUCE, _WORK, _READ, _OPERATE = Right.PRODUCE, Right.WORK, Right.READ, Right.OPERATE


def _line(
    method: str, path: str, right: Right | None, handler: Handler, body: Read | None = None
) -> Line:
    name = "firecrawl" + path.partition("{")[0].rstrip("/").replace("/", "_").replace("-", "_")
    return Line(name=name, method=method, path=path, right=right, handler=handler, body=body)


LINES: tuple[Line, ...] = (
    _line("GET", "/health", None, janitor.health),
    _line("POST", "/queue/push", _PRODUCE, queue.push, mapping.read_push),
    _line("POST", "/queue/pop/{team}", _WORK, queue.pop, reader(PopIn)),
    _line("POST", "/queue/complete", _WORK, queue.complete, reader(CompleteIn)),
    _line("POST", "/queue/release", _WORK, queue.release, reader(ReleaseIn)),
    _line("GET", "/queue/count/team/{team}", _READ, queue.count_team),
    _line("GET", "/queue/count/crawl/{crawl}", _READ, queue.count_crawl),
    _line("GET", "/queue/jobs/team/{team}", _READ, queue.jobs_of_team),
    _line("POST", "/active/push", _WORK, active.mark, reader(MarkIn)),
    _line("DELETE", "/active/remove", _WORK, active.unmark, reader(UnmarkIn)),
    _line("GET", "/active/count/{team}", _READ, active.count),
    _line("GET", "/active/jobs/{team}", _READ, active.jobs),
    _line("POST", "/active/crawl/push", _WORK, active.mark_crawl, reader(CrawlMarkIn)),
    _line("DELETE", "/active/crawl/remove", _WORK, active.unmark_crawl, reader(CrawlUnmarkIn)),
    _line("GET", "/active/crawl/jobs/{crawl}", _READ, active.jobs_of_crawl),
    _line("POST", "/cleanup/expired-jobs", _OPERATE, janitor.expired_jobs),
    _line("POST", "/cleanup/expired-active-jobs", _OPERATE, janitor.expired_markers),
    _line("POST", "/cleanup/stale-counters", _OPERATE, janitor.stale_counters),
    _line("POST", "/cleanup/orphaned-claims", _OPERATE, janitor.orphaned_claims),
    _line("POST", "/reconcile/team/queue/{team}", _OPERATE, janitor.team_queue),
    _line("POST", "/reconcile/team/active/{team}", _OPERATE, janitor.team_active),
    _line("POST", "/reconcile/crawl/queue/{crawl}", _OPERATE, janitor.crawl_queue),
    _line("POST", "/reconcile/crawl/active/{crawl}", _OPERATE, janitor.crawl_active),
    _line("GET", "/sample/teams", _READ, janitor.teams),
    _line("GET", "/sample/crawls", _READ, janitor.crawls),
)


def mounting(settings: Settings) -> Mount:
    """The mount of the protocol with these settings, for `application`."""

    def mounted(service: Service) -> Sequence[BaseRoute]:
        wire = Wire(service, settings)
        return [
            Route(line.path, Endpoint(line, wire), methods=[line.method], name=line.name)
            for line in LINES
        ]

    return mounted


mount = mounting(Settings())
