"""A source in a storm: a service on loopback that is busy, broken, slow and changing, an app that
polls it, and what was applied. As a module, a worker of it:
`python -m tests.sources.storm STORE SERVICE`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from holdfast import App, Context
from holdfast.code_sources import Source
from holdfast.outbound import Outbound
from holdfast.sources import ChangeKind, Item, Page, SourceChange
from holdfast.worker import Worker

NAME = "consignments"
TENANT = "acme"
PAGE = 7
LEASE_S = 1.0


class Weather:
    """The remote list, what it does to those who read it, and what was applied."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.url = ""
        self.objects: dict[int, int] = dict.fromkeys(range(1, 30, 2), 1)
        self.next = 30
        self.calm = False
        self.served: Counter[str] = Counter()
        self.applied: dict[int, list[tuple[str, SourceChange]]] = {}
        """By the number of the change: the effect key and the change of each call."""
        self._over = asyncio.Event()

    # -- the list --------------------------------------------------------------------------------

    def blow(self) -> None:
        """Something happens to the list: new ids, late ones, changes and deletions."""
        act = self.chance.random()
        ids = list(self.objects)
        if act < 0.4:
            self.objects[self.next] = 1
            self.next += self.chance.choice([1, 1, 3])  # Some ids are committed later, or never.
        elif act < 0.6:
            late = self.chance.randrange(1, self.next)
            self.objects[late] = self.objects.get(late, 0) + 1
        elif act < 0.8 and ids:
            self.objects[self.chance.choice(ids)] += 1
        elif len(ids) > 10:
            del self.objects[self.chance.choice(ids)]

    async def page(self, request: web.Request) -> web.Response:
        after = int(request.query["after"])
        if self.calm:
            return self._told(after)
        self.blow()
        kind = self.chance.choice(
            ["ok"] * 9 + ["busy", "error", "garbage", "torn", "slow", "repeat", "twice"]
        )
        self.served[kind] += 1
        if kind == "busy":
            return web.Response(status=429, headers={"retry-after": "0"})
        if kind == "error":
            return web.Response(status=500)
        if kind == "garbage":
            return web.Response(body=b"<html>maintenance</html>")
        if kind == "torn":
            answer = self._told(after)
            assert isinstance(answer.body, bytes)
            return web.Response(body=answer.body[: len(answer.body) // 2])
        if kind == "slow":
            await self._over.wait()
        if kind == "repeat":
            return self._told(0)
        answer = self._told(after, times=2 if kind == "twice" else 1)
        self.blow()  # Between reading and answering.
        return answer

    def _told(self, after: int, times: int = 1) -> web.Response:
        ids = sorted(id for id in self.objects if id > after)
        items = [{"id": id, "version": self.objects[id]} for id in ids[:PAGE]] * times
        return web.Response(body=msgspec.json.encode({"items": items, "more": len(ids) > PAGE}))

    # -- the effects -----------------------------------------------------------------------------

    async def apply(self, request: web.Request) -> web.Response:
        change = msgspec.json.decode(await request.read(), type=SourceChange)
        self.add(request.headers["idempotency-key"], change)
        return web.Response(body=b"{}")

    def add(self, key: str, change: SourceChange) -> None:
        self.applied.setdefault(change.number, []).append((key, change))

    def check(self) -> None:
        """Each change has one effect, and the changes of each object are a chain that ends with
        what the list has.
        """
        for calls in self.applied.values():
            assert len({key for key, _ in calls}) == 1, calls
            assert len({msgspec.json.encode(change) for _, change in calls}) == 1, calls
        assert sorted(self.applied) == list(range(1, len(self.applied) + 1))
        last: dict[str, SourceChange] = {}
        for number in sorted(self.applied):
            change = self.applied[number][0][1]
            was = last.get(change.id)
            there = was is not None and was.kind is not ChangeKind.DELETED
            assert there is (change.kind is not ChangeKind.CREATED), change
            assert change.before == (was.version if was is not None and there else None), change
            last[change.id] = change
        alive = {
            int(id): one.version for id, one in last.items() if one.kind is not ChangeKind.DELETED
        }
        assert alive == self.objects

    def end(self) -> None:
        self._over.set()


@asynccontextmanager
async def weather(seed: int) -> AsyncIterator[Weather]:
    """The service on a free port of loopback."""
    found = Weather(seed)
    app = web.Application()
    app.router.add_get("/page", found.page)
    app.router.add_post("/apply", found.apply)
    runner: Any = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        found.url = f"http://{host}:{port}"
        yield found
    finally:
        found.end()
        await runner.cleanup()


class _Told(msgspec.Struct):
    items: list[dict[str, int]]
    more: bool


def make_app(store: Any, url: str, **settings: Any) -> tuple[App, Source]:
    """An app that polls the service, and tells it the changes."""
    app = App(store, tenant=TENANT, **settings)
    client = Outbound(url, budget=0.3, timeout=0.15, failures=1000)

    @app.source(
        NAME, page=PAGE, overlap=4, every=1.0, reconcile=1.0, page_timeout=2.0, queue="polls",
        retry="brisk", deletes=1.0, max_attempts=1000,
    )  # fmt: skip
    async def consignments(ctx: Context, cursor: int) -> Page:
        answer = await client.get(ctx, "/page", params={"after": str(cursor)})
        found = answer.check().json(_Told)
        items = [Item(one["id"], version=one["version"], body=one) for one in found.items]
        return Page(items, more=found.more)

    @consignments.changed(queue="changes", keep=0, max_attempts=1000, retry="brisk")
    async def apply(ctx: Context, change: SourceChange) -> None:
        body = msgspec.to_builtins(change)
        (await client.post(ctx, "/apply", json=body)).check()

    return app, consignments


if __name__ == "__main__":
    app, _ = make_app(sys.argv[1], sys.argv[2], lease_s=LEASE_S, poll_s=0.05)
    asyncio.run(Worker(app).run())
