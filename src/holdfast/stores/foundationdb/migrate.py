"""Brings an installation to the newest format, in bounded steps that any process may go on with.

    1 -> 2   TENANTS for the lines there are, and counters of the slots, queues and groups of each
             tenant. Older programs keep neither: stop them first.
    2 -> 3   Rows, journals and edges of jobs that await others. Nothing to add; older programs
             would not follow edges.
    3 -> 4   Jobs that end with their parents. Nothing to add; older programs would let them wait
             for ever.

How far a migration has come is written beside the format. Of two processes that migrate at once,
one repeats its step. The format itself is written last. Every step of an open store reads it, so
that a process of another version stops.
"""

from __future__ import annotations

from holdfast.core.errors import SchemaTooNew, SchemaTooOld
from holdfast.core.scope import SLOTS, ScopeKind, slot_scope_of
from holdfast.stores.foundationdb import limits_caps
from holdfast.stores.foundationdb.layout import FORMAT, Space, after, number, text, texts, whole
from holdfast.stores.foundationdb.rows import hold_of
from holdfast.stores.foundationdb.runner import Runner
from holdfast.stores.foundationdb.step import Step

KEYS_MAX = 1000
"""Keys of one step."""
STAGES: dict[int, tuple[Space, ...]] = {1: (Space.LINES, Space.HOLDS, Space.COUNTS), 2: (), 3: ()}
"""What is read of an installation of each format, to bring it to the newest one."""


async def open_format(step: Step, place: str) -> int:
    """Writes the format of an empty installation, refuses another; returns its first version."""
    found = await step.get(step.keys.all(Space.META))
    if found is None:
        return _create(step)
    check(found, place)
    return number(found[1:])


def check(found: bytes | None, place: str) -> None:
    """Refuses an installation of another format than this code is written for."""
    format = 0 if found is None else found[0]
    if format > FORMAT:
        raise SchemaTooNew(store=place, found=format, known=FORMAT)
    if format < FORMAT:
        raise SchemaTooOld(store=place, found=format, known=FORMAT)


async def migrate(runner: Runner) -> int:
    """Runs all steps that are missing."""
    while not await runner.write(lambda step: _go_on(step, runner.options.name)):
        continue
    return FORMAT


def _create(step: Step) -> int:
    step.put(step.keys.all(Space.META), bytes([FORMAT]) + whole(step.at.version))
    return step.at.version


async def _go_on(step: Step, place: str) -> bool:
    """One step; True at the end."""
    key = step.keys.all(Space.META)
    found = await step.get(key)
    if found is None:
        _create(step)
        return True
    if found[0] >= FORMAT:
        check(found, place)
        return True
    far = await step.get(key + b"\1") or bytes([0])
    stage, last, stages = far[0], far[1:], STAGES[found[0]]
    if stage == len(stages):
        step.put(key, bytes([FORMAT]) + found[1:])
        step.drop(key + b"\1")
        return True
    prefix = step.keys.all(stages[stage])
    begin = last + b"\0" if last else prefix
    pairs = await step.range(begin, after(prefix), KEYS_MAX)
    for one, value in pairs:
        _upgrade(step, stages[stage], one, value, last)
        last = one
    more = len(pairs) == KEYS_MAX
    step.put(key + b"\1", bytes([stage]) + last if more else bytes([stage + 1]))
    return False


def _upgrade(step: Step, space: Space, key: bytes, value: bytes, last: bytes) -> None:
    """Adds what the newest format keeps of one key; `last` is the one before it."""
    keys = step.keys
    if space is Space.LINES:
        [tenant] = texts(key[len(keys.all(space)) :], 1)
        if not last.startswith(keys.all(space, text(tenant))):
            step.put(keys.all(Space.TENANTS, text(tenant)), value)
    elif space is Space.HOLDS:
        name = hold_of(keys, key, value).name
        scope = slot_scope_of(name) if name.startswith(SLOTS) else None
        if scope is not None:
            limits_caps.count_slot(step, scope.tenant, 1)
    else:
        scope, _ = keys.scope_of(space, key)
        known = last.startswith(keys.scope(space, scope))
        if scope.kind is not ScopeKind.TENANT and not known:
            step.add(limits_caps.counter_key(step, scope.tenant, limits_caps.NAMED[scope.kind]), 1)
