"""Groups: a job of a group without room is gated, which takes it out of the index of ready jobs.

A part is the jobs of one group in one queue.
"""

from __future__ import annotations

from holdfast.core.bounds import CLAIM_MAX
from holdfast.core.scope import (
    Scope,
    ScopeKind,
)
from holdfast.stores.sql_rows import BLOCKED
from holdfast.stores.sqlite import scope_statements as scope_sql
from holdfast.stores.sqlite.bulk import listed
from holdfast.stores.sqlite.limits_room import UNLIMITED, bound_bucket, group_room, reopen_later
from holdfast.stores.sqlite.limits_tiers import look_later
from holdfast.stores.sqlite.transaction import Transaction


def grant(transaction: Transaction, tenant: str, group: str) -> None:
    """Opens the gates of as many jobs of a group as it has room for, in their order."""
    queue, more = "", False
    while (queue := _queue_after(transaction, scope_sql.WAITING_QUEUE, tenant, group, queue)) != "":
        more |= _grant_part(transaction, tenant, group, queue)
    if transaction.scope_cache.tiered:
        _mark_resting(transaction, tenant, group, more=more)


def _mark_resting(transaction: Transaction, tenant: str, group: str, *, more: bool) -> None:
    """Notes that jobs of the group wait, so that a changed tier finds it; or that none do. If there
    is room for `more` of them, claims look again.
    """
    waits = _queue_after(transaction, scope_sql.WAITING_QUEUE, tenant, group, "") != ""
    rests = transaction.scope_cache.tier_of(tenant) if waits else None
    found = transaction.execute(scope_sql.GROUP_RESTING, (tenant, group)).fetchone()
    if more or (found is not None and found[0] != rests):
        looked = 0 if more else transaction.scopes_version
        values = (rests, looked, ScopeKind.GROUP.value, tenant, group)
        transaction.execute(scope_sql.SCOPE_REST, values)
    if more:
        look_later(transaction, tenant, ScopeKind.GROUP)


def _queue_after(
    transaction: Transaction, statement: str, tenant: str, group: str, queue: str
) -> str:
    found = transaction.execute(statement, (tenant, group, queue)).fetchone()
    return "" if found is None else found[0]


def _grant_part(transaction: Transaction, tenant: str, group: str, queue: str) -> bool:
    """Opens the gates of a part; True when more have to be opened later."""
    cache = transaction.scope_cache
    gate = cache.group(tenant, group, queue)
    if gate.open and not cache.tiered:
        _set_part(transaction, tenant, group, queue, gate=0)
        return False
    room = group_room(transaction, tenant, group, queue)
    left = room.left()
    if cache.tiered:
        left = min(left, CLAIM_MAX)  # One change of a tier may open many groups.
    if left == 0:
        reopen_later(transaction, room)
        return False
    part = (tenant, group, queue)
    if gate.ordered:
        seqs = _head(transaction, *part)
    elif gate.open:
        waiting = transaction.execute(scope_sql.GRANTABLE, (*part, left)).fetchall()
        seqs = [seq for _, seq in waiting]
    else:
        seqs = _first(transaction, part, left)
    if seqs:
        transaction.execute(scope_sql.GRANT, (listed(seqs),))
        transaction.count_move((tenant, queue, None), BLOCKED, "enqueued", len(seqs))
        transaction.ready_lines.add((tenant, queue))
    return gate.open and len(seqs) == CLAIM_MAX


def _head(transaction: Transaction, tenant: str, group: str, queue: str) -> list[int]:
    """The first job of an ordered group, if it waits in this queue."""
    found = transaction.execute(scope_sql.HEAD, (tenant, group)).fetchone()
    if found is None:
        return []
    seq, _, its_queue, state, gate, late = found
    waits = state == "enqueued" and gate == 1 and late == 0 and its_queue == queue
    return [seq] if waits else []


def _first(transaction: Transaction, part: tuple[str, str, str], left: int) -> list[int]:
    """The gated jobs that fill the room of a part, and those that come before an open one.

    Together they may be more than the room: the claim checks it again.
    """
    execute, most = transaction.execute, min(left, UNLIMITED - 1)
    waiting = execute(scope_sql.GRANTABLE, (*part, most)).fetchall()
    (granted,) = execute(scope_sql.GRANTED, (*part, most)).fetchone()
    if not granted:
        return [seq for _, seq in waiting]
    priority, last = execute(scope_sql.GRANTED_LAST, part).fetchone()
    free = left - granted
    return [
        seq
        for index, (its_priority, seq) in enumerate(waiting)
        if index < free or (-its_priority, seq) < (-priority, last)
    ]


def _set_part(transaction: Transaction, tenant: str, group: str, queue: str, *, gate: int) -> None:
    """Opens or closes the gates of all jobs of a part."""
    number = transaction.execute(scope_sql.REGATE, (gate, tenant, group, queue)).rowcount
    before, after = ("enqueued", BLOCKED) if gate else (BLOCKED, "enqueued")
    transaction.count_move((tenant, queue, None), before, after, number)
    if not gate:
        transaction.ready_lines.add((tenant, queue))


def regrant(transaction: Transaction, tenant: str, group: str) -> None:
    """Gates the jobs of a group again after its settings have changed."""
    queue = ""
    while (queue := _queue_after(transaction, scope_sql.GRANTED_QUEUE, tenant, group, queue)) != "":
        if transaction.scope_cache.gated(tenant, group, queue):
            _set_part(transaction, tenant, group, queue, gate=1)
    transaction.groups_to_check.add((tenant, group))


def regrant_queue(transaction: Transaction, queue: Scope) -> None:
    """Gates the jobs of all groups again after the settings of a queue for its groups changed."""
    tenant, execute = queue.tenant, transaction.execute
    for (part,) in execute(scope_sql.BUCKETS_OF, (tenant,)).fetchall():
        rate = transaction.scope_cache.group(tenant, part, queue.part).rate
        bound_bucket(transaction, Scope(tenant, ScopeKind.GROUP, part), rate)
    found = execute(scope_sql.GROUP_AFTER, (tenant, "")).fetchone()
    while found is not None:
        regrant(transaction, tenant, found[0])
        found = execute(scope_sql.GROUP_AFTER, (tenant, found[0])).fetchone()


def gate_jobs(transaction: Transaction, tenant: str, queue: str, seqs: list[int]) -> None:
    """Closes the gates of jobs whose group has no room for them after all."""
    if seqs:
        transaction.execute(scope_sql.GATE, (listed(seqs),))
        transaction.count_move((tenant, queue, None), "enqueued", BLOCKED, len(seqs))
