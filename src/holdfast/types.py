"""Published job types: an app that opens a store publishes its job types there as settings.

So an enqueue from another language, from SQL or from a process without the code gets the queue and
rules of the type. Each type is one setting, named `type/<name>`. Its value is JSON:

    {"queue": "mail", "priority": 5, "rules": {"max_attempts": 5, "timeout_us": 30000000}}

`queue` is always present. `priority` may be omitted (0), and so may `rules` and each of its fields,
if they have the defaults of `job.Rules`: `max_attempts`, `retry` (a `retry.RetryPolicy`),
`timeout_us`, `keep_us`, `keep_failed_us`, `key_us`. Durations are in microseconds, those of `retry`
in seconds. `rules` is the same JSON that stores keep with each job. If apps publish different
values for a type, the app that opened last wins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from holdfast.core.bounds import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_MAX,
    TYPE_MAX,
    TYPES_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.codec import JSON
from holdfast.core.errors import HoldfastError, StaleSetting
from holdfast.core.job import Rules, check_rules
from holdfast.store import Put, Setting, Store
from holdfast.typed import Job, JobType, Style

PREFIX = "type/"
FRESH_S = 5.0
"""How long a process caches the published types."""
MISSING_S = 0.5
"""How long a process caches that a type is not published."""
TRIES_MAX = 5
"""How often an app tries to publish while others publish too."""

log = logging.getLogger("holdfast.types")


class PublishedType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The published defaults of a type, for what an enqueue does not set."""

    queue: str
    priority: int = 0
    rules: Rules = Rules()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PublishedType).decode


async def publish(store: Store, types: Iterable[JobType]) -> None:
    """Publishes the types that differ from the stored ones. A failure is only logged: the app can
    run without publishing, for example with a token that may not write settings.
    """
    values = {PREFIX + one.name: _published(one) for one in types}
    try:
        for _ in range(TRIES_MAX):
            with suppress(
                StaleSetting
            ):  # Another app published in between; it may have written the same.
                return await _write(store, values)
    except HoldfastError as error:
        log.info("job types were not published: %s", error)


async def _write(store: Store, values: Mapping[str, bytes]) -> None:
    known = {one.name: one for one in await store.settings(under=PREFIX)}
    fresh = [name for name in values if name not in known]
    room = max(0, TYPES_MAX - len(known))
    puts = [Put(name, values[name], 0) for name in fresh[:room]]
    for name, one in known.items():
        if values.get(name, one.value) != one.value:
            puts.append(Put(name, values[name], one.version))
    if puts:
        await store.settings(puts)
    if len(fresh) > room:
        log.warning("%d job types were not published: a store has %d", len(fresh), TYPES_MAX)


def _published(one: JobType) -> bytes:
    return _encode(PublishedType(queue=one.queue, priority=one.priority, rules=one.rules))


def foreign_type(name: str, says: PublishedType | None = None) -> JobType:
    """A type without its code: the defaults of its jobs."""
    says = says or PublishedType(queue="default")
    return JobType(
        name=check_name("type", name, TYPE_MAX),
        kind=Job,
        queue=says.queue,
        priority=says.priority,
        rules=says.rules,
        style=Style.LOOP,
        version=1,
        upgrades={},
        codec=JSON,
        home="",
    )


class Types:
    """The published types, cached in this process."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: Mapping[str, JobType] = {}
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def known(self, names: Iterable[str]) -> Mapping[str, JobType]:
        """The published types. Reads them again if one of the requested names is missing."""
        age = float("inf") if self._read_at is None else self._clock() - self._read_at
        if age >= FRESH_S or (age >= MISSING_S and any(name not in self._known for name in names)):
            await self._read()
        return self._known

    async def _read(self) -> None:
        """Reads once for all concurrent callers."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())
            self._reading.add_done_callback(self._end)
        await asyncio.shield(self._reading)

    async def _read_all(self) -> None:
        found = [_understood(one) for one in await self._store.settings(under=PREFIX)]
        self._known = {one.name: one for one in found if one is not None}
        self._read_at = self._clock()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # The callers that still wait get the error.


def _understood(one: Setting) -> JobType | None:
    """Decodes a setting. None if it is not a valid type, which then counts as unknown."""
    try:
        says = _decode(one.value)
        check_name("queue", says.queue, QUEUE_MAX)
        check_whole("priority", says.priority, PRIORITY_MIN, PRIORITY_MAX)
        check_rules(says.rules)
        return foreign_type(one.name.removeprefix(PREFIX), says)
    except (msgspec.MsgspecError, HoldfastError) as error:
        log.info("setting %r is not a job type: %s", one.name, error)
        return None
