"""Limits of the platform: which jobs they count, and what waits where one has no room.

**Counting.** The running jobs of a scope over all tenants are counted while it has settings. The
step that sets the first ones marks the scope in PLATFORM as uncounted, and nothing starts in it
then. A further step counts the jobs that run, at one version, and adds what the counter lacks: that
is exact, since every step that starts or ends a job has read the stamp of the platform's settings
and counts by itself from the mark on. Any process that finds such a mark can go on.

**Waiting.** A claim that meets a line whose queue has no room over all tenants moves its pointers
to ASIDE_LINES; one that meets a job whose type has no room moves it from READY to ASIDE_JOBS.
Claims read both only where there is room, so what waits hides nothing and costs nothing. Nothing is
moved back for a place that came free: jobs are taken from where they are, and a line stays there
until it is empty, or has no limit any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.core.clock import Micros
from holdfast.core.job import State
from holdfast.core.scope import PLATFORM as WHOLE_STORE
from holdfast.core.scope import Scope, ScopeKind, platform_scopes
from holdfast.stores.foundationdb.fairness import Selection, Turns
from holdfast.stores.foundationdb.layout import (
    BY_QUEUE,
    BY_TENANT,
    Space,
    after,
    number,
    text,
    texts,
    whole,
)
from holdfast.stores.foundationdb.limits import UNLIMITED, Room, ask_room, running_key, survey
from holdfast.stores.foundationdb.overlay import Pair
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.scope_cache import COUNTED, PLATFORM, UNCOUNTED
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

ROWS_MAX = 2000
"""Held jobs that are read at a time to count them."""
LINES_MAX = 500
"""Pointers that one read takes."""
TIDY_MAX = 1000
"""Lines that one step sets aside, or looks at again."""
PAIRS_MAX = 1000
"""Lines that are read by their full names."""
ALWAYS_WAKES = 64
"""Up to this limit every place that comes free wakes sleepers; above it, if few are free."""


def queue_over_all(queue: str) -> Scope:
    return Scope(PLATFORM, ScopeKind.QUEUE, queue)


def type_over_all(type: str) -> Scope:
    return Scope(PLATFORM, ScopeKind.TYPE, type)


# -- settings and counts ---------------------------------------------------------------------------


def _mark_key(step: Step, scope: Scope) -> bytes:
    return step.keys.scope(Space.PLATFORM, scope)


async def mark(step: Step, scope: Scope, *, has_settings: bool) -> None:
    """Marks a scope whose settings this step is about to change."""
    had = scope in step.settings.platform
    if has_settings and not had:
        step.put(_mark_key(step, scope), UNCOUNTED)
    elif not has_settings:
        step.drop(running_key(step, scope))
        if await step.get(step.keys.scope(Space.ASIDE, scope)) is None:
            step.drop(_mark_key(step, scope))
        else:
            step.put(_mark_key(step, scope), COUNTED)


def uncounted(step: Step) -> list[Scope]:
    """The scopes whose running jobs have to be counted before anything starts in them."""
    return [scope for scope, value in step.settings.marked.items() if value == UNCOUNTED]


async def count_uncounted(step: Step) -> None:
    """Counts the running jobs of the scopes that are marked so."""
    await step.settings.load()
    scopes = uncounted(step)
    if not scopes:
        return
    await _correct(step, scopes)
    for scope in scopes:
        step.put(_mark_key(step, scope), COUNTED)
    await step.settings.change(PLATFORM)
    step.wakes_all = True


async def recount(step: Step) -> None:
    """Counts the running jobs of all scopes of the platform anew."""
    await step.settings.load()
    if step.settings.platform:
        await _correct(step, list(step.settings.platform))


async def _correct(step: Step, scopes: Sequence[Scope]) -> None:
    """Adds what counters lack. Of two steps that do so one is repeated."""
    true = await _held(step, frozenset(scopes))
    step.contend(step.keys.scope(Space.LIMIT_LOCKS, scopes[0]) + b"\x02")
    for scope in scopes:
        key = running_key(step, scope)
        step.add(key, true[scope] - await step.counted(key))


async def _held(step: Step, scopes: frozenset[Scope]) -> Counter[Scope]:
    """How many jobs of each scope run, at the version of this step."""
    found: Counter[Scope] = Counter()
    for space in (Space.HELD, Space.SPENT):
        begin, end = step.keys.all(space), after(step.keys.all(space))
        while pairs := await step.range(begin, end, ROWS_MAX, snapshot=True):
            for row in await step.peek([step.keys.name_of(space, key) for key, _ in pairs]):
                if row is not None and row.state is State.PROCESSING:
                    found.update(scopes.intersection(platform_scopes(row.queue, row.type)))
            begin = pairs[-1][0] + b"\0"
    return found


# -- following what a step does --------------------------------------------------------------------


async def follow(step: Step) -> None:
    """Keeps lines aside to which this step has added jobs, and has sleepers woken where it freed
    places that they may wait for.
    """
    lines = [line for line in step.pointed if queue_over_all(line[1]) in step.settings.platform]
    keys = [step.keys.aside(queue_over_all(queue), tenant, queue)[0] for tenant, queue in lines]
    for line, value in zip(lines, await step.get_many(keys), strict=True):
        if value is not None:
            step.pointed.discard(line)
    while step.freed:
        scope, freed = step.freed.popitem()
        most = step.settings.of(scope).max_running
        if most is None or step.wakes_all:
            continue
        # Claims that commit meanwhile may take some more, so a few free places count as none.
        few = max(ALWAYS_WAKES, most // 8)
        step.wakes_all = (
            most <= few or await step.counted(running_key(step, scope)) + freed >= most - few
        )


# -- aside -----------------------------------------------------------------------------------------


def set_job_aside(step: Step, row: Row, since: int) -> None:
    """Its type has no room: the job waits for it, and others of its group may go first."""
    row.aside, row.granted = True, False
    step.save(row)
    _add_line(step, type_over_all(row.type), (row.tenant, row.queue), since)


def _add_line(step: Step, scope: Scope, line: Line, since: int) -> None:
    step.put(step.keys.scope(Space.ASIDE, scope), b"")
    for key in step.keys.aside(scope, *line):
        step.least[key] = min(whole(since), step.least.get(key, whole(since)))


async def set_lines_aside(step: Step, lines: dict[Line, int]) -> None:
    """Their queues have no room: no claim meets these lines before there is some. The first
    TIDY_MAX of them: later claims meet the others again.
    """
    await step.settings.load()
    some = list(lines.items())[:TIDY_MAX]
    for (tenant, queue), since in some:
        scope = queue_over_all(queue)
        if scope not in step.settings.platform:
            continue
        for key in step.keys.line(tenant, queue):
            step.drop(key)
        _add_line(step, scope, (tenant, queue), since)
    names = {text(tenant) for (tenant, _), _ in some}
    for name in names:
        step.ask_under(step.keys.all(Space.LINES, name), 1)
    for name in names:
        # With a conflict range, so that an enqueue between wins.
        if not await step.under(step.keys.all(Space.LINES, name), 1):
            step.drop(step.keys.all(Space.TENANTS, name))


async def tidy(step: Step, scopes: Iterable[Scope], lines: Iterable[tuple[Scope, Line]]) -> None:
    """Deletes the pointers of lines of which nothing waits any more at the limit of a type, and
    those to scopes at which nothing waits. Lines of a queue without settings go back to the others.
    """
    await step.settings.load()
    some = list(lines)[:TIDY_MAX]
    jobs = [step.keys.aside_jobs(*line, scope.part) for scope, line in some]
    for prefix in jobs:
        step.ask_under(prefix, 1)
    for prefix, (scope, line) in zip(jobs, some, strict=True):
        if not await step.under(prefix, 1):
            _drop_line(step, scope, line)
    forgotten = False
    for scope in scopes:
        prefix = step.keys.scope(Space.ASIDE_LINES, scope) + BY_QUEUE
        has_settings = scope in step.settings.platform
        found = await step.under(prefix, LINES_MAX if scope.kind is ScopeKind.QUEUE else 1)
        if found and scope.kind is ScopeKind.QUEUE and not has_settings:
            for key, _ in found:
                queue, tenant = texts(key[len(prefix) :], 2)
                _drop_line(step, scope, (tenant, queue))
                step.point(tenant, queue)
        elif not found:
            step.drop(step.keys.scope(Space.ASIDE, scope))
            if not has_settings:
                step.drop(_mark_key(step, scope))
                forgotten = True
    if forgotten:
        await step.settings.change(PLATFORM)


def _drop_line(step: Step, scope: Scope, line: Line) -> None:
    for key in step.keys.aside(scope, *line):
        step.drop(key)


# -- reading what waits ----------------------------------------------------------------------------


class Waiting:
    """What waits at limits of the platform, as one step reads it: a bounded part, and the next
    claim of the store goes on after it.
    """

    def __init__(self, step: Step, turns: Turns, selection: Selection) -> None:
        self._step = step
        self._turns = turns
        self._tenants, self._queues = selection
        self._places: dict[Selection, bytes | None] = {}

    @property
    def stopped(self) -> bool:
        """Whether there is more than it read."""
        return any(place is not None for place in self._places.values())

    async def scopes(self) -> list[Scope]:
        """The scopes at which something waits, as far as the selection may have it."""
        prefix = self._step.keys.all(Space.ASIDE)
        pairs = await self._some(((PLATFORM,), None), prefix)
        found = [self._step.keys.scope_of(Space.ASIDE, key)[0] for key, _ in pairs]
        return [
            scope
            for scope in found
            if scope.kind is ScopeKind.TYPE or self._queues is None or scope.part in self._queues
        ]

    def ask(self, scopes: Iterable[Scope]) -> None:
        """Requests what `lines` reads of these scopes."""
        for scope in scopes:
            self._step.ask(self._named(scope).values())
            for selection, prefix in self._ranges(scope):
                self._step.ask_range(self._start(selection, prefix), after(prefix), LINES_MAX)

    async def lines(self, scope: Scope) -> dict[Line, int]:
        """The lines of the selection that wait at a scope, and since which version each does."""
        found: dict[Line, int] = {}
        named = self._named(scope)
        values = await self._step.get_many(list(named.values()), snapshot=True)
        for line, value in zip(named, values, strict=True):
            if value is not None:
                found[line] = number(value)
        skip = len(self._step.keys.scope(Space.ASIDE_LINES, scope) + BY_QUEUE)
        for selection, prefix in self._ranges(scope):
            for key, value in await self._some(selection, prefix):
                one, other = texts(key[skip:], 2)
                found[(other, one) if self._tenants is None else (one, other)] = number(value)
        return found

    def _queues_at(self, scope: Scope) -> tuple[str, ...] | None:
        return (scope.part,) if scope.kind is ScopeKind.QUEUE else self._queues

    def _named(self, scope: Scope) -> dict[Line, bytes]:
        """The pointers of lines, where the selection names them in full."""
        queues = self._queues_at(scope)
        if self._tenants is None or queues is None:
            return {}
        lines = [(tenant, queue) for tenant in self._tenants for queue in queues][:PAIRS_MAX]
        return {line: self._step.keys.aside(scope, *line)[0] for line in lines}

    def _ranges(self, scope: Scope) -> list[tuple[Selection, bytes]]:
        """The ranges of pointers to read, else, and the names for the places in them."""
        queues, prefix = self._queues_at(scope), self._step.keys.scope(Space.ASIDE_LINES, scope)
        if self._tenants is not None and queues is not None:
            return []
        prefix += BY_QUEUE if self._tenants is None else BY_TENANT
        names = self._tenants if self._tenants is not None else queues
        if names is None:
            return [(((PLATFORM, scope.name), None), prefix)]
        return [(((PLATFORM, scope.name, name), queues), prefix + text(name)) for name in names]

    def _start(self, selection: Selection, prefix: bytes) -> bytes:
        place = self._places.get(selection, self._turns.place(selection))
        return prefix if place is None else max(prefix, place + b"\0")

    async def _some(self, selection: Selection, prefix: bytes) -> list[Pair]:
        """The next pairs of a range, from where the last read stopped."""
        step, start = self._step, self._start(selection, prefix)
        pairs = await step.range(start, after(prefix), LINES_MAX, snapshot=True)
        full = len(pairs) == LINES_MAX
        if start != prefix and not full:
            pairs += await step.range(prefix, start, LINES_MAX - len(pairs), snapshot=True)
        self._places[selection] = pairs[-1][0] if full else None
        return pairs

    def committed(self) -> None:
        """The claim was committed: the next one goes on after what this one read."""
        for selection, place in self._places.items():
            self._turns.stopped(selection, place)


class PlatformRooms:
    """The rooms of the platform's scopes in one step, each read once."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._rooms: dict[Scope, Room | None] = {}
        """None where a scope has no settings."""

    async def at(self, scope: Scope) -> int:
        """How many jobs of a scope may start."""
        await self.read((scope,))
        return self.known(scope)

    async def read(self, scopes: Sequence[Scope]) -> None:
        """Reads the rooms of these scopes together."""
        step, new = self._step, [scope for scope in scopes if scope not in self._rooms]
        settings = step.settings.platform
        for scope in new:
            if scope in settings:
                ask_room(step, scope)
        for scope in new:
            room = await Room.of(step, scope, settings[scope]) if scope in settings else None
            if room is not None:
                room.closed = step.settings.marked.get(scope) == UNCOUNTED
            self._rooms[scope] = room

    def known(self, scope: Scope) -> int:
        """How many jobs of a scope that was read may start."""
        room = self._rooms.get(scope)
        return UNLIMITED if room is None else room.left()

    async def of_queue(self, queue: str) -> list[Room]:
        """The rooms that all jobs of a queue need."""
        scopes = WHOLE_STORE, queue_over_all(queue)
        await self.read(scopes)
        return [room for scope in scopes if (room := self._rooms[scope]) is not None]

    def start(self, scopes: Iterable[Scope]) -> None:
        """Takes the place of a job that starts in these scopes."""
        for scope in scopes:
            room = self._rooms.get(scope)
            if room is not None:
                room.start()

    def opens_at(self) -> list[Micros]:
        """When the passing of time alone makes room in those that were read."""
        found = [room.opens_at() for room in self._rooms.values() if room is not None]
        return [at for at in found if at is not None]


async def anything_aside(step: Step, selection: Selection, rooms: PlatformRooms) -> bool:
    """Whether a claim may take jobs that wait at a limit which has room by now."""
    waiting = Waiting(step, Turns(), selection)
    if await rooms.at(WHOLE_STORE) == 0:
        return False
    scopes = await waiting.scopes()
    await rooms.read(scopes)
    waiting.ask(scopes)
    for scope in scopes:
        if rooms.known(scope) == 0:
            continue
        found = await waiting.lines(scope)
        await rooms.read([queue_over_all(queue) for _, queue in found])
        lines = [line for line in found if rooms.known(queue_over_all(line[1])) > 0]
        async for line, own, ready in survey(step, lines):
            aside = step.keys.aside_jobs(*line, scope.part)
            waits = ready if scope.kind is ScopeKind.QUEUE else bool(await step.under(aside, 1))
            if waits and all(room.left() > 0 for room in own):
                return True
    return False
