"""Helpers for tests of sources: a remote list in this process, and an app that polls it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from holdfast.app import App
from holdfast.code_sources import Source
from holdfast.context import Context, Snooze
from holdfast.core.clock import SECOND
from holdfast.core.job import Completed, Failed, Lease, Snoozed
from holdfast.core.source import ChangeKind, Item, Page, SourceChange
from holdfast.sources.handle import SourceHandle
from holdfast.sources.poll import Poll
from holdfast.store import Claim, Store
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME
from holdfast.testing.contract.ticking import Deadly
from holdfast.testing.drain import drain

EVERY_S = 300.0
NAME = "consignments"
POLLS = "polls"
CHANGES = "sync"


class Remote:
    """A remote list: objects by number, each with a version."""

    def __init__(self, *ids: int) -> None:
        self.objects: dict[int, int] = {}
        self.requests: list[Any] = []
        self.put(*ids)

    def put(self, *ids: int) -> None:
        """Makes these objects, or changes those that are there."""
        for id in ids:
            self.objects[id] = self.objects.get(id, 0) + 1

    def drop(self, *ids: int) -> None:
        for id in ids:
            del self.objects[id]

    def items(self, after: int, size: int) -> list[Item]:
        """The next objects after an id."""
        ids = sorted(id for id in self.objects if id > after)[:size]
        return [self.item(id) for id in ids]

    def item(self, id: int) -> Item:
        return Item(id, body={"version": self.objects[id]})


class Sourcing:
    """An app with one source of ACME, polled every five minutes, and what its changes did."""

    def __init__(self, bench: Bench, remote: Remote, **options: Any) -> None:
        self.bench = bench
        self.remote = remote
        self.app = App(cast(Store, Deadly(bench.store)), tenant=ACME, retry="brisk")
        self.changes: list[SourceChange] = []
        self.effects: Counter[str] = Counter()
        self.fetch: Callable[[Context, Any], Any] | None = None
        """Stands in for the remote list."""
        given = {"every": EVERY_S, "page": 3, "queue": POLLS, **options}

        @self.app.source(NAME, **given)
        async def consignments(ctx: Context, cursor: Any) -> Any:
            remote.requests.append(cursor)
            if self.fetch is not None:
                answer = self.fetch(ctx, cursor)
                return await answer if hasattr(answer, "__await__") else answer
            return Page(remote.items(cursor or 0, given["page"]))

        @consignments.changed(queue=CHANGES, keep=0)
        async def transfer(ctx: Context, change: SourceChange) -> None:
            self.changes.append(change)
            self.effects[ctx.effect_key] += 1

        self.source: Source = consignments
        self.handle: SourceHandle = self.app.default.source(NAME)

    # -- run -------------------------------------------------------------------------------------

    async def run(self) -> list[str]:
        """Runs everything that is due now. Returns the types of the jobs."""
        return [one.job.type for one in await drain(self.app)]

    async def walk(self, times: int = 1, seconds: float = EVERY_S) -> None:
        """Moves the clock so often, and runs what is due each time."""
        for _ in range(times):
            self.bench.clock.advance(seconds)
            await self.run()

    async def claim_poll(self) -> Lease:
        """A new poll, claimed."""
        await self.handle.poll_now()
        claim = Claim(
            worker="w1", nonce=secrets.token_hex(8), limit=1, lease_us=60 * SECOND, queues=(POLLS,)
        )
        [lease] = await self.bench.store.claim(claim)
        return lease

    def poll(self, lease: Lease, store: Any = None) -> Poll:
        """What a worker runs for a poll, on this or on another store object."""
        ctx = Context(lease.job)
        return Poll(store or self.bench.store, ctx, self.source.reader, self.source.plan())

    async def once(self, store: Any = None) -> None:
        """One run of a poll; its job is acked as its worker would."""
        lease = await self.claim_poll()
        try:
            await self.poll(lease, store).run()
        except Snooze as snooze:
            await self.bench.end(lease, Snoozed(int(snooze.seconds * SECOND)))
        except Exception as error:
            await self.bench.end(lease, Failed(str(error), retryable=False))
            raise
        else:
            await self.bench.end(lease, Completed())

    # -- look ------------------------------------------------------------------------------------

    def kinds(self) -> list[tuple[str, str]]:
        """What happened to which object, in the order of the changes."""
        ordered = sorted(self.changes, key=lambda change: change.number)
        return [(change.kind.value, change.id) for change in ordered]

    async def shadow(self) -> dict[int, int]:
        """The objects of the shadow that are there, with their versions."""
        found, after = {}, ""
        while True:
            page = await self.handle.objects(after=after)
            found.update({int(one.id): one.body["version"] for one in page.objects if not one.gone})
            if page.after is None:
                return found
            after = page.after

    async def check(self) -> None:
        """The shadow is what the source has, and each change was applied once: the changes of an
        object are a chain, in which each begins where the one before it ended.
        """
        assert await self.shadow() == self.remote.objects
        numbers = Counter(change.number for change in self.changes)
        assert set(numbers.values()) <= {1}
        assert set(self.effects.values()) <= {1}
        told: dict[str, SourceChange] = {}
        for change in sorted(self.changes, key=lambda change: change.number):
            was = told.get(change.id)
            there = was is not None and was.kind is not ChangeKind.DELETED
            assert there is (change.kind is not ChangeKind.CREATED), change
            assert change.before == (was.version if was is not None and there else None), change
            told[change.id] = change
        alive = {
            int(id): change.body["version"]
            for id, change in told.items()
            if change.kind is not ChangeKind.DELETED
        }
        assert alive == self.remote.objects


async def polled(bench: Bench, *ids: int, **options: Any) -> Sourcing:
    """A source of these objects, after its first poll."""
    bench.needs("sources")
    sourcing = Sourcing(bench, Remote(*ids), **options)
    await sourcing.run()
    await sourcing.walk()
    return sourcing
