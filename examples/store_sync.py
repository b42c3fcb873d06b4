"""Keeps a shop in step with a warehouse: polls the warehouse, applies each change to the shop.

Run it:  python examples/store_sync.py        (needs the extra `outbound`)

Both are HTTP services on this machine that are busy at times. It travels through two days on a
clock of its own.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast import App, Context
from holdfast.outbound import Outbound
from holdfast.sources import ChangeKind, Item, Page, SourceChange
from holdfast.stores import open_store
from holdfast.testing import ManualClock, drain

# -- the two services ------------------------------------------------------------------------------

warehouse: dict[int, dict[str, Any]] = {}
shop: dict[str, dict[str, Any]] = {}
done: Counter[str] = Counter()
"""How often the shop has done the call of each idempotency key."""
broken = {"77"}
"""What the shop cannot store."""
calls = Counter[str]()


class Service(BaseHTTPRequestHandler):
    def answer(self, status: int, body: object = None) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def busy(self) -> bool:
        """Every twentieth call finds the service busy."""
        calls["all"] += 1
        if calls["all"] % 20 == 0:
            calls["busy"] += 1
            self.answer(429)
            return True
        return False

    def do_GET(self) -> None:
        """The warehouse: a page of consignments after an id."""
        if not self.busy():
            asked = parse_qs(urlsplit(self.path).query)
            after, size = int(asked["after"][0]), int(asked["page_size"][0])
            ids = sorted(id for id in warehouse if id > after)[:size]
            self.answer(200, [{"id": id, **warehouse[id]} for id in ids])

    def do_PUT(self) -> None:
        """The shop: creates or changes an article."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        id = self.path.rpartition("/")[2]
        if self.busy():
            return
        if id in broken:
            self.answer(409, "the article is locked")
            return
        done[self.headers["Idempotency-Key"]] += 1
        shop[id] = body
        self.answer(200)

    def do_DELETE(self) -> None:
        if not self.busy():
            done[self.headers["Idempotency-Key"]] += 1
            shop.pop(self.path.rpartition("/")[2], None)
            self.answer(200)

    def log_message(self, *args: object) -> None: ...


server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
address = f"http://127.0.0.1:{server.server_port}"

# -- the sync --------------------------------------------------------------------------------------

clock = ManualClock()
app = App(open_store("memory://", clock), tenant="acme", retry="brisk", max_attempts=3)
their_api = Outbound(address, timeout=5, budget=30)
our_shop = Outbound(address, timeout=5, budget=30)


@app.source("consignments", every=300, page=100, overlap=50, reconcile=24 * 3600, queue="polls")
async def consignments(ctx: Context, cursor: int) -> Page:
    """One page after an id. The overlap finds ids that were committed late."""
    params = {"after": str(cursor), "page_size": "100"}
    answer = await their_api.get(ctx, "/consignments", params=params)
    found = answer.check().json(list[dict[str, Any]])
    return Page([Item(one["id"], version=one["version"], body=one) for one in found])


@consignments.changed(queue="transfer")
async def transfer(ctx: Context, change: SourceChange) -> None:
    """Applies one change. A retry sends the same idempotency key, so the shop does it once."""
    if change.kind is ChangeKind.DELETED:
        await our_shop.delete(ctx, f"/articles/{change.id}")
        return
    answer = await our_shop.put(ctx, f"/articles/{change.id}", json=change.body)
    answer.check()


async def settle(seconds: float = 300) -> None:
    """What workers do in this time."""
    clock.advance(seconds)
    for _ in range(4):
        await drain(app)
        clock.advance(2)  # For the retries.


async def main() -> None:
    acme = app.tenant("acme")
    source = acme.source("consignments")
    async with app:
        warehouse.update({id: {"version": 1, "name": f"box {id}"} for id in range(1, 251)})
        await drain(app)  # A worker does the same: it registers the source and its schedule.
        await settle()
        status = await source.status()
        print(f"{status.totals.created} created, cursor {status.cursor}, {len(shop)} in the shop")

        [dead] = (await acme.find(states=["failed"])).jobs
        print(f"dead letter: {dead.type} after {dead.attempt} attempts, {dead.reason}")
        broken.clear()
        await acme.replay(dead.id)
        await settle()
        print(f"replayed: {len(shop)} in the shop")

        del warehouse[9]
        warehouse[240] = {"version": 2, "name": "box 240, repacked"}
        warehouse[252] = {"version": 1, "name": "box 252"}
        await settle()
        warehouse[251] = {"version": 1, "name": "box 251, committed late"}
        await settle()
        await settle(24 * 3600)
        totals = (await source.status()).totals
        print(f"{totals.created} created, {totals.updated} updated, {totals.deleted} deleted")
        same = {str(id): one["version"] for id, one in warehouse.items()}
        print(
            "the shop is the warehouse:", same == {id: one["version"] for id, one in shop.items()}
        )
        print("each change was done once:", set(done.values()) == {1}, "busy:", calls["busy"] > 10)


if __name__ == "__main__":
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asyncio.run(main())
