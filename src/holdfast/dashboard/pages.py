"""The pages: overview, queues, jobs, one job, dead letters, schedules, sources, workers, platform.

Also the login and the live stream.
"""

from __future__ import annotations

from markupsafe import Markup
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast import operate
from holdfast.core.errors import HoldfastError, InvalidInput
from holdfast.core.job import State
from holdfast.dashboard import (
    acts,
    feed,
    filters,
    html,
    platform_views,
    queue_views,
    schedule_views,
    session,
    source_views,
    views,
)
from holdfast.dashboard.host import Host, Viewer
from holdfast.dashboard.site import Ask, Site, moved, page
from holdfast.dashboard.words import BASE, link
from holdfast.store import Ref

PAGE = 50
"""Number of jobs on one page."""
BEAT_S = 15
SEND_S = 30
"""A reader that accepts nothing for this long is disconnected; its browser reconnects."""
GRACE_S = 3
"""At shutdown a reader ends with its next tick, and is disconnected after this time."""
KEEP_FILES = "public, max-age=31536000, immutable"


async def overview(ask: Ask) -> Response:
    snapshot = await ask.hub.channel(feed.key_of(ask.viewer)).feed.latest()
    return ask.page("overview.html", live=Markup(html.overview(snapshot)))


async def queues(ask: Ask) -> Response:
    tenant = filters.read(ask.params).tenant
    found = await queue_views.queues(ask.host.store, ask.viewer, tenant)
    return ask.page("queues.html", found=found, rows=found.rows, tenant=tenant)


async def queue(ask: Ask) -> Response:
    tenant, name = ask.part("tenant"), ask.part("queue")
    row = await queue_views.queue(ask.host.store, ask.viewer, tenant, name)
    return ask.page("queue.html", row=row)


async def jobs(ask: Ask) -> Response:
    chosen = filters.read(ask.params)
    after = filters.cursor(ask.params)
    found = await views.jobs(ask.host.store, chosen.selection(ask.viewer), after, PAGE)
    return ask.page("jobs.html", filters=chosen, found=found, after=after)


async def job(ask: Ask) -> Response:
    ref = Ref(ask.part("tenant"), ask.part("id"))
    view = await views.job(ask.host.store, ask.host.codecs, ask.viewer, ref)
    steps = ask.host.store.capabilities.steps
    return ask.page("job.html", view=view, job=view.job, steps=steps)


async def dead(ask: Ask) -> Response:
    """The dead letters; with `act`, the preview of a bulk action."""
    chosen = filters.read(ask.params).but(state=State.FAILED.value)
    after = filters.cursor(ask.params)
    store, bulk = ask.host.store, None
    if act := ask.params.get("act", ""):
        ask.viewer.check(ask.viewer.operates, "operate")
        bulk = await acts.planned(ask, chosen, act)
    found = await views.jobs(store, chosen.selection(ask.viewer), after, PAGE)
    return ask.page("dead.html", filters=chosen, found=found, after=after, bulk=bulk)


async def workers(ask: Ask) -> Response:
    viewer = ask.viewer
    found = await feed.workers(ask.host.store, viewer.tenant, viewer.queues)
    leader = None if viewer.tenant else await operate.upkeep_leader(ask.host.store)
    return ask.page("workers.html", workers=found, leader=leader)


async def platform(ask: Ask) -> Response:
    """Limits over all tenants and who gates whom; for the platform only."""
    ask.viewer.check(ask.viewer.whole_platform, "platform")
    chosen = acts.over_all(ask) if ask.params.get("kind") else None
    view = await platform_views.platform(ask.host.store, ask.viewer, chosen)
    return ask.page("platform.html", view=view, tenants_max=platform_views.TENANTS_MAX)


async def live(ask: Ask) -> Response:
    """Server-sent events: one tick per second, and the overview for pages that show it."""
    topic = ask.params.get("topic", "")
    if topic not in ("", "overview"):
        raise InvalidInput(field="topic", why=f"there is no {topic!r}")
    ask.host.stream(ask.request, ask.viewer)
    token = session.token_of(ask.request)
    standing = ask.host.standing(ask.request, token, ask.viewer)
    messages = ask.hub.follow(feed.key_of(ask.viewer), topic, standing)
    ask.host.endless()
    return EventSourceResponse(
        messages,
        headers=session.HEADERS,
        ping=BEAT_S,
        send_timeout=SEND_S,
        sep="\n",
        shutdown_grace_period=GRACE_S,
    )


# -- the login -------------------------------------------------------------------------------------


class Login:
    """Checks a pasted token and stores it in a cookie that no script can read."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def show(self, request: Request) -> Response:
        request.scope["route_name"] = "dashboard_login"
        onward = session.onward(request.query_params.get("next", "/"))
        try:
            await self._site.host.who(request, None)
        except HoldfastError:
            return page(request, None, "login.html", onward=onward, wrong="")
        return moved(onward)  # This service needs no sign-in.

    async def enter(self, request: Request) -> Response:
        request.scope["route_name"] = "dashboard_enter"
        try:
            fields = await session.form(request)
        except HoldfastError as error:
            return self._site.refused(request, error, None)
        onward = session.onward(fields.get("next", "/"))
        token = fields.get("token", "").strip()
        try:
            await self._holds(request, token)
        except HoldfastError as error:
            status = self._site.host.status(error)
            return page(request, None, "login.html", status=status, onward=onward, wrong=str(error))
        answer = moved(onward)
        session.keep_token(answer, request, token)
        return answer

    async def _holds(self, request: Request, token: str) -> Viewer:
        """The viewer of the token, if it may read."""
        if (
            not 0 < len(token) <= session.TOKEN_MAX
            or not token.isascii()
            or not token.isprintable()
        ):
            raise InvalidInput(field="token", why="is empty, too long, or has odd characters")
        viewer = await self._site.host.who(request, token)
        viewer.check("read" in viewer.rights, "read")
        return viewer

    async def leave(self, request: Request) -> Response:
        request.scope["route_name"] = "dashboard_leave"
        try:
            await session.form(request)
        except HoldfastError as error:
            return self._site.refused(request, error, None)
        answer = moved(link("login"))
        session.drop_token(answer)
        return answer


# -- the table -------------------------------------------------------------------------------------


async def file(request: Request) -> Response:
    """The style sheet and the script, which are public."""
    request.scope["route_name"] = "dashboard_file"
    name = request.path_params["name"]
    if name not in html.MEDIA:
        return Response("not found", 404, media_type="text/plain", headers=session.HEADERS)
    kept = KEEP_FILES if request.query_params.get("v") == html.version() else "no-cache"
    headers = {**session.HEADERS, "cache-control": kept, "content-type": html.MEDIA[name]}
    return Response(html.static(name), headers=headers)


GETS = {
    "/": overview,
    f"{BASE}/queues": queues,
    f"{BASE}/queues/{{tenant}}/{{queue}}": queue,
    f"{BASE}/jobs": jobs,
    f"{BASE}/jobs/{{tenant}}/{{id}}": job,
    f"{BASE}/dead": dead,
    f"{BASE}/workers": workers,
    f"{BASE}/schedules": schedule_views.schedules,
    f"{BASE}/sources": source_views.sources,
    f"{BASE}/platform": platform,
    f"{BASE}/live": live,
}
POSTS = {
    f"{BASE}/queues/{{tenant}}/{{queue}}/pause": acts.pause,
    f"{BASE}/queues/{{tenant}}/{{queue}}/resume": acts.resume,
    f"{BASE}/jobs/{{tenant}}/{{id}}/cancel": acts.cancel,
    f"{BASE}/jobs/{{tenant}}/{{id}}/signal": acts.signal,
    f"{BASE}/jobs/{{tenant}}/{{id}}/replay": acts.replay,
    f"{BASE}/jobs/{{tenant}}/{{id}}/reprioritise": acts.reprioritise,
    f"{BASE}/jobs/{{tenant}}/{{id}}/reschedule": acts.reschedule,
    f"{BASE}/dead/{{act}}": acts.bulk,
    f"{BASE}/schedules/{{tenant}}/{{name}}/pause": schedule_views.pause_schedule,
    f"{BASE}/schedules/{{tenant}}/{{name}}/resume": schedule_views.resume_schedule,
    f"{BASE}/schedules/{{tenant}}/{{name}}/run": schedule_views.run_schedule,
    f"{BASE}/sources/{{tenant}}/{{name}}/poll": source_views.poll_source,
    f"{BASE}/sources/{{tenant}}/{{name}}/list": source_views.list_source,
    f"{BASE}/sources/{{tenant}}/{{name}}/pause": source_views.pause_source,
    f"{BASE}/sources/{{tenant}}/{{name}}/resume": source_views.resume_source,
    f"{BASE}/platform/limit": acts.limit_all,
    f"{BASE}/platform/pause": acts.pause_all,
    f"{BASE}/platform/resume": acts.resume_all,
}


def routes(host: Host) -> list[BaseRoute]:
    """All routes of the dashboard, for the host to mount."""
    site = Site(host)
    login = Login(site)
    return [
        *(Route(path, site.endpoint(get.__name__, get)) for path, get in GETS.items()),
        *(
            Route(path, site.endpoint(post.__name__, post), methods=["POST"])
            for path, post in POSTS.items()
        ),
        Route(f"{BASE}/login", login.show),
        Route(f"{BASE}/login", login.enter, methods=["POST"]),
        Route(f"{BASE}/logout", login.leave, methods=["POST"]),
        Route(f"{BASE}/static/{{name}}", file),
    ]
