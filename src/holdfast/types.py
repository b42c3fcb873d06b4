"""Job types as every process can read them: an app that opens publishes its types as settings.

So an enqueue from another language, from SQL or from a process without the code gets the type's own
queue and rules. One setting for each type, named `type/<name>`. Its value is JSON:

    {"queue": "mail", "priority": 5, "rules": {"max_attempts": 5, "timeout_us": 30000000}}

`queue` is always there. `priority` may be left out (0), and `rules`, and each of its fields, where
they are the defaults of `job.Rules`: `max_attempts`, `retry` (a `retry.RetryPolicy`), `timeout_us`,
`keep_us`, `keep_failed_us`, `key_us`. Lengths are in microseconds, those of `retry` in seconds.
`rules` is the very JSON that stores keep with each job. The app that opened last decides what a
type says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from holdfast.check import check_name, check_whole
from holdfast.codec import JSON
from holdfast.errors import HoldfastError, StaleSetting
from holdfast.job import Rules, check_rules
from holdfast.limits import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_MAX,
    TYPE_MAX,
    TYPES_MAX,
)
from holdfast.store import Put, Setting, Store
from holdfast.typed import Job, JobType, Style

PREFIX = "type/"
FRESH_S = 5.0
"""How old what a process remembers of the types may be."""
MISSING_S = 0.5
"""The same where a type is asked for that was not there."""
TRIES_MAX = 5
"""How often an app tries to publish while others do."""

log = logging.getLogger("holdfast.types")


class PublishedType(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a type says of its jobs where an enqueue says nothing."""

    queue: str
    priority: int = 0
    rules: Rules = Rules()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PublishedType).decode


async def publish(store: Store, types: Iterable[JobType]) -> None:
    """Writes what the store does not say yet. An app also runs where it cannot, as with the token
    of a remote store that may not.
    """
    values = {PREFIX + one.name: _published(one) for one in types}
    try:
        for _ in range(TRIES_MAX):
            with suppress(StaleSetting):  # Another app was faster: it may have said the same.
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
    """A type whose code is elsewhere: what its jobs get unless they say otherwise."""
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
    """The published types, as this process remembers them."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._known: Mapping[str, JobType] = {}
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def known(self, names: Iterable[str]) -> Mapping[str, JobType]:
        """The types that an app has published; read again when one of these is not among them."""
        age = float("inf") if self._read_at is None else self._clock() - self._read_at
        if age >= FRESH_S or (age >= MISSING_S and any(name not in self._known for name in names)):
            await self._read()
        return self._known

    async def _read(self) -> None:
        """Once for all who ask meanwhile."""
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
            task.exception()  # Told to those who wait for it, if any still do.


def _understood(one: Setting) -> JobType | None:
    """None where somebody wrote what is no type: its jobs get what unknown types get."""
    try:
        says = _decode(one.value)
        check_name("queue", says.queue, QUEUE_MAX)
        check_whole("priority", says.priority, PRIORITY_MIN, PRIORITY_MAX)
        check_rules(says.rules)
        return foreign_type(one.name.removeprefix(PREFIX), says)
    except (msgspec.MsgspecError, HoldfastError) as error:
        log.info("setting %r is not a job type: %s", one.name, error)
        return None
