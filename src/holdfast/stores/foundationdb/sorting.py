"""Sorts groups anew after their rules have changed, in as many steps as it takes.

The step that changes settings leaves a mark in SORTS, and sorts as much as one transaction can take
itself; further steps go on from where the mark says, and the last one drops it. Whoever finds a
mark may go on with it, so a process that ends in the middle leaves nothing undone for ever: prune
looks for marks. The new rules hold from the first step on all the same, for a claim looks at the
group of each job that it is about to take, and puts back what may not start.
"""

from __future__ import annotations

from holdfast.job import State
from holdfast.scope import Scope, ScopeKind
from holdfast.stores.foundationdb import gates, places
from holdfast.stores.foundationdb.layout import STEP_BYTES_MAX, Space, after, text, texts
from holdfast.stores.foundationdb.rows import Row
from holdfast.stores.foundationdb.rules import Known
from holdfast.stores.foundationdb.step import Step

SORT_MAX = 500
"""Jobs that one step sorts."""
MARKS_MAX = 100
"""Marks that one step looks at."""


def begin(step: Step, tenant: str, group: str | None) -> None:
    """The jobs of a group have to be sorted anew, or those of all groups of the tenant."""
    step.put(step.keys.all(Space.SORTS, text(tenant), text(group or "")), b"")


async def waits(step: Step) -> bool:
    """Whether anything has to be sorted."""
    return bool(await step.under(step.keys.all(Space.SORTS), 1, snapshot=True))


async def go_on(step: Step, known: Known) -> None:
    """Sorts as much of what is marked as one step can take."""
    prefix, left = step.keys.all(Space.SORTS), SORT_MAX
    for mark, place in await step.under(prefix, MARKS_MAX):
        tenant, group = texts(mark[len(prefix) :], 2)
        await places.learn(step, known, [tenant])
        left -= await _sort(step, (tenant, group), (mark, place), left)
        if left <= 0:
            break
    await gates.open_up(step)


async def _sort(step: Step, part: tuple[str, str], marked: tuple[bytes, bytes], most: int) -> int:
    """Goes on at the place of a mark; returns how many jobs it looked at."""
    (tenant, group), (mark, place) = part, marked
    prefix = step.keys.own(tenant, Space.ORDER)
    everything = prefix + text(group) if group else prefix
    start = prefix + place + b"\0" if place else everything
    pairs = await step.range(start, after(everything), most, snapshot=True)
    rows = await step.rows([(tenant, value.decode()) for _, value in pairs])
    bounded: set[tuple[str, str]] = set()
    for (key, _), row in zip(pairs, rows, strict=True):
        if row is not None:
            await _place(step, row, bounded)
        if step.bytes >= STEP_BYTES_MAX:
            step.put(mark, key[len(prefix) :])
            return most
    if len(pairs) < most:
        step.drop(mark)
    else:
        step.put(mark, pairs[-1][0][len(prefix) :])
    return len(pairs)


async def _place(step: Step, row: Row, bounded: set[tuple[str, str]]) -> None:
    """Lets one job stand where the rules of its group want it."""
    assert row.group is not None, "only jobs of groups are in order"
    if (row.group, row.queue) not in bounded:
        bounded.add((row.group, row.queue))
        rate = step.rules.group(row.tenant, row.group, row.queue).rate
        await places.bound(step, Scope(row.tenant, ScopeKind.GROUP, row.group), rate)
    if row.state is State.ENQUEUED and not row.late:
        gates.gate(step, row)
        step.save(row)
    step.groups.add((row.tenant, row.group))
