"""The page of sources: what it shows, and the actions of its forms."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from holdfast import operate
from holdfast.core.bounds import NAME_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import Micros, moment
from holdfast.core.errors import InvalidInput
from holdfast.core.source import POLL, Fault, check_source
from holdfast.dashboard import filters, session
from holdfast.dashboard.host import NotAllowed, Viewer
from holdfast.dashboard.site import Ask, moved
from holdfast.dashboard.words import link
from holdfast.definitions import schedules_page
from holdfast.sources.calls import sources_page
from holdfast.sources.handle import SourceHandle
from holdfast.sources.status import SourceStatus
from holdfast.store import Store

PAGE = 50
"""Sources on one page of a tenant; tenants on one page of all."""
READ_MAX = 20
"""Pages of schedules that are read to find the tenants with sources."""


class Row(msgspec.Struct, frozen=True):
    """One source."""

    one: SourceStatus

    @property
    def act(self) -> str:
        return link("sources", self.one.tenant, self.one.source)

    @property
    def jobs(self) -> str:
        query = urlencode({"tenant": self.one.tenant, "tag": f"source:{self.one.source}"})
        return f"{link('jobs')}?{query}"

    @property
    def faults(self) -> Sequence[tuple[str, Fault]]:
        """What went wrong last: with polls, and with full listings."""
        found = (("poll", self.one.fault), ("listing", self.one.listing_fault))
        return [(what, fault) for what, fault in found if fault is not None]


async def sources(ask: Ask) -> Response:
    """The sources of a tenant. For the whole platform those of the tenants whose sources are
    polled; one that is only pushed to is found by naming its tenant.
    """
    _check(ask.viewer)
    tenant = filters.read(ask.params).tenant
    whose = ask.viewer.check_tenant(tenant) if tenant else ask.viewer.tenant
    after = ask.params.get("after", "")
    if after:
        check_name("after", after, NAME_MAX)
    store, cursor = ask.host.store, None
    if whose is not None:
        found = await sources_page(store, whose, after=after, limit=PAGE)
        cursor = found[-1].source if len(found) == PAGE else None
    else:
        tenants, cursor = await _polled(store, after)
        found = [one for each in tenants for one in await sources_page(store, each, limit=PAGE)]
    rows = [Row(one) for one in found]
    return ask.page("sources.html", rows=rows, after=cursor, tenant=tenant, moment=_moment)


async def _polled(store: Store, after: str) -> tuple[Sequence[str], str | None]:
    """Up to PAGE tenants with sources that are polled, and the cursor of the next ones."""
    tenants: dict[str, None] = {}
    cursor: str | None = after
    for _ in range(READ_MAX):
        page, cursor = await schedules_page(store, None, after=cursor or "", limit=PAGE)
        for state in page:
            if state.definition is not None and state.definition.job.type.startswith(POLL):
                tenants[state.tenant] = None
        if cursor is None or len(tenants) >= PAGE:
            break
    return list(tenants), cursor


def _moment(at: Micros) -> str:
    """The instant for people and machines."""
    return moment(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check(viewer: Viewer) -> None:
    if not viewer.all_jobs:
        raise NotAllowed(why="this token is for some queues or types, and sources span them")


# -- actions ---------------------------------------------------------------------------------------


async def poll_source(ask: Ask) -> Response:
    """Makes a poll at once, and shows it."""
    handle, _ = await _operated(ask)
    made = await handle.poll_now()
    return moved(f"{link('jobs', handle.tenant, made.id)}?did=source_polled")


async def list_source(ask: Ask) -> Response:
    """Asks for a full listing, and shows the poll that begins it."""
    handle, _ = await _operated(ask)
    made = await handle.reconcile_now()
    return moved(f"{link('jobs', handle.tenant, made.id)}?did=source_listed")


async def pause_source(ask: Ask) -> Response:
    """Stops the polls of a source, with a reason that is shown on the page."""
    handle, reason = await _operated(ask)
    if not reason:
        raise InvalidInput(field="reason", why="is required: a reason for the pause")
    await handle.pause(reason, operate.author(ask.viewer.name))
    return _back(ask, "source_paused")


async def resume_source(ask: Ask) -> Response:
    handle, _ = await _operated(ask)
    await handle.resume()
    return _back(ask, "source_resumed")


async def _operated(ask: Ask) -> tuple[SourceHandle, str]:
    """The source of the path and the reason, if the viewer may operate and see it."""
    fields = await session.form(ask.request)
    viewer = ask.viewer
    viewer.check(viewer.operates, "operate")
    tenant = viewer.check_tenant(ask.part("tenant"))
    _check(viewer)
    handle = SourceHandle(ask.host.store, tenant, check_source(ask.part("name")))
    await handle.status()  # SourceNotFound, also for a name that only a schedule has.
    return handle, fields.get("reason", "").strip()


def _back(ask: Ask, did: str) -> Response:
    tenant = {} if ask.viewer.tenant else {"tenant": ask.part("tenant")}
    return moved(f"{link('sources')}?{urlencode({**tenant, 'did': did})}")
