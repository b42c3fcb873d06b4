"""Which lines (tenant, queue) may have ready jobs: the pointers that a claim reads, tenants first.

A claim reads a bounded number of pointers. Where there are more, it begins where the last claim of
this store stopped, so that all come in turn: tenants, and the lines of one tenant. So neither
100,000 tenants nor one with 100,000 queues make a claim longer, or hide another's jobs.

    no names            LINES, if all of them fit; else TENANTS, and LINES of those who are served
    tenants             LINES of a few; TENANTS of many, and LINES of those who are served
    queues              QUEUES of each
    tenants and queues  LINES, by their very names
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product

from holdfast.core.scope import Scope, ScopeKind
from holdfast.stores.foundationdb.fairness import Selection, Turns
from holdfast.stores.foundationdb.layout import Space, after, number, text, texts
from holdfast.stores.foundationdb.overlay import Pair
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

LINES_MAX = 500
"""Pointers that one read takes."""
OWN_MAX = 100
"""Lines of one tenant that are read, where not all are."""
RANGES_AHEAD = 8
"""Ranges of tenants or queues that are requested together."""
PAIRS_MAX = 1000
"""Lines that are read by their full names at a time."""
RETURN = 64
"""After about so many reads of tenants, one reads all lines again."""
MANY = b""
"""The place of a selection that has more lines than one read takes, at the beginning."""

_chance = random.Random()

Span = tuple[bytes, bytes]


class Lines:
    """The tenants and lines that one attempt of a claim has read."""

    def __init__(self, step: Step, turns: Turns, selection: Selection) -> None:
        self._step = step
        self._turns = turns
        self._selection = selection
        self._place = turns.place(selection)
        self.tenants: dict[str, int] = {}
        """Those that may have ready jobs, and the version since which each does."""
        self.open: dict[str, dict[str, int]] = {}
        """The lines of tenants, as far as they were read, and the version of each."""
        self._own: dict[str, bytes | None] = {}
        """Of tenants that have more lines than were read: the last one read."""
        self._added: dict[str, dict[str, int]] = {}
        """Lines beside those of the pointers, of tenants whose lines are read later."""
        self.stopped: bytes | None = None
        """Where the next claim goes on; None where this one has read all."""

    # -- tenants ---------------------------------------------------------------------------------

    def ask(self) -> None:
        """Requests what `read_next` reads first."""
        tenants, queues = self._selection
        step = self._step
        if tenants is not None and queues is not None:
            step.ask(step.keys.line(*pair)[1] for pair in self._pairs())
        elif queues is not None:
            for span in _from(_of_queues(step, queues), self._place)[:RANGES_AHEAD]:
                step.ask_range(*span, LINES_MAX)
        elif tenants is not None and len(set(tenants)) > RANGES_AHEAD:
            step.ask(_tenant_key(step, tenant) for tenant in set(tenants))
        elif tenants is not None:
            self._ask_own(tenants)
        elif self._place is None:
            step.ask_under(step.keys.all(Space.LINES), LINES_MAX)
        else:
            for span in self._of_tenants():
                step.ask_range(*span, LINES_MAX)

    async def read_next(self) -> None:
        """Reads on, from where the last read stopped."""
        tenants, queues = self._selection
        self.tenants, self.open, self._added, self.stopped = {}, {}, {}, None
        if tenants is not None and queues is not None:
            await self._by_name()
        elif queues is not None:
            await self._by_queue(queues)
        elif tenants is not None:
            await self._listed(tenants)
        elif self._place is None:
            await self._every_line()
        else:
            await self._every_tenant()
        self._place = self.stopped

    async def _by_name(self) -> None:
        step, pairs = self._step, self._pairs()
        keys = [step.keys.line(*pair)[1] for pair in pairs]
        for pair, value in zip(pairs, await step.get_many(keys, snapshot=True), strict=True):
            if value is not None:
                self._add(pair, number(value))
        if len(pairs) == PAIRS_MAX:
            self.stopped = step.keys.line(*pairs[-1])[1]

    def _pairs(self) -> list[Line]:
        """The named lines, from the place on and then from the beginning."""
        tenants, queues = self._selection
        named = sorted(set(product(tenants or (), queues or ())))
        if len(named) <= PAIRS_MAX:
            return named
        place = self._place or b""
        behind = [pair for pair in named if self._step.keys.line(*pair)[1] > place]
        return (behind + named)[:PAIRS_MAX]

    async def _by_queue(self, queues: tuple[str, ...]) -> None:
        step, left = self._step, LINES_MAX
        spans = _from(_of_queues(step, queues), self._place)
        for place, span in enumerate(spans):
            if place % RANGES_AHEAD == 0:
                for each in spans[place : place + RANGES_AHEAD]:
                    step.ask_range(*each, LINES_MAX)
            pairs = (await step.range(*span, LINES_MAX, snapshot=True))[:left]
            for key, value in pairs:
                queue, tenant = texts(key[len(step.keys.all(Space.QUEUES)) :], 2)
                self._add((tenant, queue), number(value))
            left -= len(pairs)
            if left == 0:
                self.stopped = pairs[-1][0]
                return

    async def _listed(self, tenants: tuple[str, ...]) -> None:
        step, names = self._step, sorted(set(tenants))
        if len(names) <= RANGES_AHEAD:
            await self.read_lines(names)
            for tenant in names:
                if self.open[tenant]:
                    self.tenants[tenant] = min(self.open[tenant].values())
            return
        keys = [_tenant_key(step, tenant) for tenant in names]
        for tenant, value in zip(names, await step.get_many(keys, snapshot=True), strict=True):
            if value is not None:
                self.tenants[tenant] = number(value)

    async def _every_line(self) -> None:
        step, prefix = self._step, self._step.keys.all(Space.LINES)
        pairs = await step.under(prefix, LINES_MAX, snapshot=True)
        if len(pairs) == LINES_MAX:
            self._place = MANY
            await self._every_tenant()
            return
        for key, value in pairs:
            tenant, queue = texts(key[len(prefix) :], 2)
            self._add((tenant, queue), number(value))

    async def _every_tenant(self) -> None:
        step, left = self._step, LINES_MAX
        for span in self._of_tenants():
            pairs = (await step.range(*span, LINES_MAX, snapshot=True))[:left]
            for key, value in pairs:
                [tenant] = texts(key[len(step.keys.all(Space.TENANTS)) :], 1)
                self.tenants[tenant] = number(value)
            left -= len(pairs)
            if left == 0:
                self.stopped = pairs[-1][0]
                return
        # All lines are read at once again now and then: there may be few enough.
        few = len(self.tenants) < LINES_MAX and _chance.random() < 1 / RETURN
        self.stopped = None if few else MANY

    def _of_tenants(self) -> list[Span]:
        prefix = self._step.keys.all(Space.TENANTS)
        return _from([(prefix, after(prefix))], self._place or None)

    def _add(self, line: Line, since: int) -> None:
        tenant, queue = line
        self.open.setdefault(tenant, {})[queue] = since
        self.tenants[tenant] = min(since, self.tenants.get(tenant, since))

    def add(self, line: Line, since: int) -> bool:
        """Adds a line that is in no pointer; False if it is one that was read."""
        tenant, queue = line
        lines = self.open.get(tenant)
        if lines is not None and queue in lines:
            return False
        if lines is None and self.open.keys() < self.tenants.keys():
            # The lines of tenants are read when they are served, and these then go with them.
            self._added.setdefault(tenant, {})[queue] = since
            self.tenants[tenant] = min(since, self.tenants.get(tenant, since))
        else:
            self._add(line, since)
        return True

    # -- lines of a tenant -----------------------------------------------------------------------

    async def read_lines(self, tenants: Iterable[str]) -> None:
        """Reads the lines of these tenants, unless they were read."""
        unread = [tenant for tenant in tenants if tenant not in self.open]
        self._ask_own(unread)
        for tenant in unread:
            await self._read_own(tenant)

    async def read_more(self, tenant: str) -> bool:
        """Reads on among the lines of a tenant that has more; False when there are no others."""
        if self._own.get(tenant) is None:
            return False
        self._ask_own([tenant])
        await self._read_own(tenant)
        return True

    def _ask_own(self, tenants: Iterable[str]) -> None:
        for tenant in tenants:
            for span in self._of_own(tenant):
                self._step.ask_range(*span, OWN_MAX)

    async def _read_own(self, tenant: str) -> None:
        found: list[Pair] = []
        for span in self._of_own(tenant):
            found += await self._step.range(*span, OWN_MAX, snapshot=True)
        found = found[:OWN_MAX]
        prefix = self._step.keys.all(Space.LINES, text(tenant))
        self._own[tenant] = found[-1][0] if len(found) == OWN_MAX else None
        lines = self.open.setdefault(tenant, {})
        lines.update(self._added.pop(tenant, {}))
        for key, value in found:
            lines[texts(key[len(prefix) :], 1)[0]] = number(value)

    def _of_own(self, tenant: str) -> list[Span]:
        place = self._own.get(tenant) or self._turns.place(own(tenant))
        return _from([_of_tenant(self._step, tenant)], place)

    # -- afterwards ------------------------------------------------------------------------------

    def committed(self) -> None:
        """The claim was committed: the next one goes on after what this one read."""
        self._turns.stopped(self._selection, self.stopped)
        for tenant, place in self._own.items():
            self._turns.stopped(own(tenant), place)


def own(tenant: str) -> Selection:
    """The selection under which the place among a tenant's lines is remembered."""
    return (tenant,), None


def _tenant_key(step: Step, tenant: str) -> bytes:
    return step.keys.all(Space.TENANTS, text(tenant))


def _of_queues(step: Step, queues: tuple[str, ...]) -> list[Span]:
    prefixes = sorted(step.keys.all(Space.QUEUES, text(queue)) for queue in set(queues))
    return [(prefix, after(prefix)) for prefix in prefixes]


def _from(spans: list[Span], place: bytes | None) -> list[Span]:
    """The spans after a place, then those before it."""
    if not place:
        return spans
    start = place + b"\0"
    behind = [(max(begin, start), end) for begin, end in spans if end > start]
    before = [(begin, min(end, start)) for begin, end in spans if begin < start]
    return behind + before


def ask_open_lines(step: Step, tenant: str) -> None:
    """Requests what `open_lines` reads of a tenant."""
    step.ask_range(*_of_tenant(step, tenant), OWN_MAX)


def _of_tenant(step: Step, tenant: str) -> Span:
    prefix = step.keys.all(Space.LINES, text(tenant))
    return prefix, after(prefix)


async def open_lines(step: Step, selection: Selection) -> list[Line]:
    """Lines of a selection that may have ready jobs: as many as one read takes."""
    lines = Lines(step, Turns(), selection)
    await lines.read_next()
    await lines.read_lines(list(lines.tenants)[:OWN_MAX])
    return [(tenant, queue) for tenant, queues in lines.open.items() for queue in queues]


async def wake_lines(step: Step, scope: Scope) -> None:
    """Wakes sleepers of the lines of a scope: its room may have changed."""
    if scope.kind is ScopeKind.QUEUE:
        step.lines.add((scope.tenant, scope.part))
    else:
        step.lines.update(await open_lines(step, ((scope.tenant,), None)))


async def drop_empty(step: Step, lines: list[Line]) -> None:
    """Deletes the pointers of lines that have no ready jobs, unless one has come."""
    step.settings.ask()
    for line in lines:
        step.ask_under(step.keys.ready(*line), 1)
    await step.settings.load()
    gone = [line for line in lines if not await step.under(step.keys.ready(*line), 1)]
    await drop_pointers(step, gone)


async def drop_pointers(step: Step, lines: list[Line]) -> None:
    """Deletes the pointers of lines, and of tenants that have no others. Those are read with a
    conflict range, so that an enqueue between wins.
    """
    for line in lines:
        for key in step.keys.line(*line):
            step.drop(key)
        over_all = Scope("", ScopeKind.QUEUE, line[1])
        if over_all in step.settings.marked:
            for key in step.keys.aside(over_all, *line):
                step.drop(key)
    for tenant in {tenant for tenant, _ in lines}:
        if not await step.under(step.keys.all(Space.LINES, text(tenant)), 1):
            step.drop(_tenant_key(step, tenant))
