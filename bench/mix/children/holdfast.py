"""Holdfast, as its documentation shows it: public names only, so that older code runs it too."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from bench.mix.child import Given, Notes, serve
from bench.mix.jobs import MixJob, tenant_name
from holdfast import App, Context
from holdfast.loop import run
from holdfast.worker.worker import Worker

MAX_RUNNING = 500
RATE = "1000000/s"
AT_ONCE = 50
PLATFORM = {
    "platform": {"max_running": 1_000_000, "rate": RATE},
    "behind-50": {"max_running": 50},
}
"""What limits all tenants together, by BENCH_PLATFORM."""


class Holdfast:
    blocking = False

    def __init__(self, given: Given, notes: Notes) -> None:
        self._given = given
        self._app = app = App(given.url, concurrency=given.concurrency)
        self._types = _types(app, notes)
        app.subscribe(notes.confirmed)

    async def open(self) -> None:
        await self._app.open()

    async def prepare(self) -> None:
        """Limits of tenants that do not bind: they cost their work and hold nothing back. Limits
        over all tenants as the environment says.
        """
        over_all: Any = PLATFORM.get(os.environ.get("BENCH_PLATFORM", ""))
        if over_all is not None:
            await self._app.platform().set(**over_all)
        if not self._given.limits:
            return
        for first in range(0, self._given.tenants, AT_ONCE):
            places = range(first, min(first + AT_ONCE, self._given.tenants))
            scopes = [self._app.tenant(tenant_name(place)).scope() for place in places]
            await asyncio.gather(*(each.set(max_running=MAX_RUNNING, rate=RATE) for each in scopes))

    async def enqueue(self, job: MixJob) -> None:
        tenant, made = self._app.tenant(job.tenant), self._types[job.type](**job.fields)
        if self._given.limits and job.group is not None:
            await tenant.enqueue(made, group=job.group)
        elif self._given.limits and job.key is not None:
            await tenant.enqueue(made, key=job.key)
        else:
            await tenant.enqueue(made)

    async def start(self) -> None:
        self._working = asyncio.create_task(Worker(self._app).run())


def _types(app: App, notes: Notes) -> dict[str, Any]:
    """The five job types. Their handlers do nothing but count."""

    @app.job(name="mail", queue="mail")
    async def mail(
        ctx: Context, to: str, template: str, subject: str, values: dict[str, int]
    ) -> None:
        notes.ran()

    @app.job(name="thumbnail", queue="thumbnail")
    async def thumbnail(ctx: Context, image: str, width: int) -> None:
        notes.ran()

    @app.job(name="webhook", queue="webhook")
    async def webhook(ctx: Context, url: str, event: str, data: str) -> None:
        notes.ran()

    @app.job(name="report", queue="report")
    async def report(ctx: Context, report: int, columns: list[str], since: str, until: str) -> None:
        notes.ran()

    @app.job(name="index", queue="index")
    async def index(ctx: Context, document: int, text: str) -> None:
        notes.ran()

    found = (mail, thumbnail, webhook, report, index)
    return dict(zip(("mail", "thumbnail", "webhook", "report", "index"), found, strict=True))


if __name__ == "__main__":
    serve(Holdfast, run)
