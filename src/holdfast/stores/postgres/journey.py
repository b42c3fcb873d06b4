"""How jobs come in, are claimed, extended and settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import Micros, micros
from holdfast.errors import HoldfastError, IdConflict, JobNotFound, QueueFull, TenantFull
from holdfast.job import TERMINAL, Lease, NewJob, State
from holdfast.lifecycle import Transition, apply, refusal, why
from holdfast.limits import CLAIM_REPEAT_S, REPAIR_MAX, REPAIR_PASSES_MAX
from holdfast.scope import LINES_PER_CLAIM
from holdfast.store import Acked, Claim, Enqueued, Extended, Extension, Ref
from holdfast.stores.bell import Line
from holdfast.stores.postgres import bloom, using
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.bloom import Seen
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.rows import TAGS_BETWEEN, Row, asked, plain, read_leases, seq_of
from holdfast.stores.postgres.step import Step
from holdfast.stores.sql_rows import Columns, rules_text

_PRIORITY, _SEQ = 9, 14  # Their places in `holdfast.leased`; the visit is the first.

RETRY_AFTER_S = 1.0
"""When a full tenant may try again."""

PACK_MIN = 8
"""Jobs of a call that make a pack; fewer are better off as rows."""

HINT_MAX = 7900
"""Bytes that a notification can carry."""


def hint(sender: str, lines: set[Line]) -> str:
    """What other processes are told: these lines, or that anything may have come up."""
    text = msgspec.json.encode([sender, sorted(lines)]).decode()
    return text if len(text.encode()) <= HINT_MAX else "*"


# -- enqueue ---------------------------------------------------------------------------------------


def _column(values: list[Any], empty: Any = None) -> list[Any] | None:
    """The values of one field, or None where no job has any: then nothing needs to travel."""
    return None if all(value == empty for value in values) else values


def alike(jobs: Sequence[NewJob]) -> bool:
    """They say nothing special, and differ in nothing but their payloads and ids, which grow."""
    first, before = jobs[0], ""
    tenant, queue, priority, rules = first.tenant, first.queue, first.priority, first.rules
    sealed = first.envelope
    for job in jobs:
        envelope = job.envelope
        if (
            job.id <= before
            or job.tenant != tenant
            or job.queue != queue
            or job.fresh != first.fresh
            or job.priority != priority
            or (job.rules is not rules and job.rules != rules)
            or envelope.type != sealed.type
            or envelope.codec != sealed.codec
            or envelope.version != sealed.version
            or job.delay_us
            or job.tags
            or job.run_at is not None
            or job.ttl_us is not None
            or job.key is not None
            or job.group is not None
            or job.origin is not None
        ):
            return False
        before = job.id
    return True


def packable(jobs: Sequence[NewJob]) -> bool:
    """Whether these jobs, which are alike, may wait in packs. A repeated call says the same."""
    return len(jobs) >= PACK_MIN and jobs[0].fresh


async def enqueue(
    step: Step,
    jobs: Sequence[NewJob],
    channel: str | None,
    sender: str,
    seen: Seen | None = None,
) -> list[Enqueued]:
    """With `seen`: keys that were certainly not seen here are taken without a look before."""
    lines = {(job.tenant, job.queue) for job in jobs}
    tell = (step.given, step.events_on, channel, None if channel is None else hint(sender, lines))
    if alike(jobs):
        if len(jobs) == 1 and await _enqueue_one(step, jobs[0], tell):
            step.lines |= lines
            return [Enqueued(jobs[0].id, True)]
        way = sql.ENQUEUE_PACK if packable(jobs) else sql.ENQUEUE_ALIKE
        # Whoever says that an id is new, it is looked for: nothing else keeps it from coming twice.
        found = await step.rows(way, *_shared(jobs), *tell, False)
    elif seen is not None and seen.none_of(jobs):
        found = await step.rows(bloom.ENQUEUE_FRESH, *_each(jobs), *tell)
    else:
        found = await step.rows(sql.ENQUEUE, *_each(jobs), *tell)
    step.lines |= lines
    made = answers(jobs, found)
    if seen is not None:
        seen.add(job for job, answer in zip(jobs, made, strict=True) if answer.error is None)
    return made


async def _enqueue_one(step: Step, job: NewJob, tell: tuple[Any, ...]) -> bool:
    """False where more care is needed: nothing was done then."""
    kept: bool = await step.value(sql.ENQUEUE_ONE, *_same(job), job.id, job.envelope.body, *tell)
    return kept


def _shared(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """What jobs that are alike are told by: what they share once, the rest as columns."""
    return (
        *_same(jobs[0]),
        [job.id for job in jobs],
        [job.envelope.body for job in jobs],
    )


def _same(first: NewJob) -> tuple[Any, ...]:
    """What jobs that are alike share."""
    sealed, rules = first.envelope, first.rules
    return (
        first.tenant,
        first.queue,
        sealed.type,
        sealed.codec,
        sealed.version,
        rules_text(rules),
        first.priority,
        rules.max_attempts,
        rules.keep_us,
    )


def _each(jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """What any jobs are told by: their columns."""
    return (
        [job.tenant for job in jobs],
        [job.id for job in jobs],
        [job.queue for job in jobs],
        [job.envelope.type for job in jobs],
        [job.envelope.codec for job in jobs],
        [job.envelope.version for job in jobs],
        [job.envelope.body for job in jobs],
        [rules_text(job.rules) for job in jobs],
        [job.priority for job in jobs],
        _column([job.delay_us for job in jobs], 0),
        _column([job.run_at for job in jobs]),
        _column([job.ttl_us for job in jobs]),
        _column([job.key for job in jobs]),
        _column([job.rules.key_us for job in jobs]),
        _column([job.group for job in jobs]),
        _column([TAGS_BETWEEN.join(job.tags) if job.tags else None for job in jobs]),
        _column([job.origin for job in jobs]),
        [job.rules.max_attempts for job in jobs],
        [job.rules.keep_us for job in jobs],
    )


async def enqueue_using(
    connection: Any, options: Options, now: Micros | None, jobs: Sequence[NewJob]
) -> list[Enqueued]:
    """On a connection of the caller's. The hint has no sender: when the transaction commits, this
    process must be told as well.
    """
    told = hint("", {(job.tenant, job.queue) for job in jobs}) if options.notify else None
    values = (using.document(jobs), now, options.events, options.channel, told)
    return answers(jobs, await using.ask(connection, options.schema, values))


def answers(jobs: Sequence[NewJob], found: Sequence[Columns]) -> list[Enqueued]:
    """All were made but those that the rows name."""
    made = [Enqueued(job.id, True) for job in jobs]
    for ord, *answer in found:
        made[ord - 1] = _not_made(jobs[ord - 1], answer)
    return made


def _not_made(job: NewJob, answer: Columns) -> Enqueued:
    """What a row of `holdfast.answer` says."""
    word, id, queue, type, has, most = answer
    error: HoldfastError | None = None
    if word == "conflict":
        error = IdConflict(field="id", id=job.id, type=type, queue=queue)
    elif word == "many":
        error = TenantFull(tenant=job.tenant, what=queue, max=most)
    elif word == "full":
        what, retry = queue, RETRY_AFTER_S
        error = QueueFull(tenant=job.tenant, what=what, queued=has, max=most, retry_after_s=retry)
    return Enqueued(id, False, error)


# -- claim -----------------------------------------------------------------------------------------


async def claim(
    step: Step, claim: Claim, probe: bool, channel: str | None
) -> tuple[list[Lease], list[Transition], bool]:
    """The leases, what becomes of jobs that cannot be read, and whether sleepers must look."""
    rows = await step.rows(
        sql.CLAIM,
        claim.worker,
        claim.nonce,
        claim.limit,
        claim.lease_us,
        claim.tenants,
        claim.queues,
        claim.exclude_groups,
        step.given,
        probe,
        step.events_on,
        channel,
        REPAIR_MAX,
        REPAIR_PASSES_MAX,
        LINES_PER_CLAIM,
        micros(CLAIM_REPEAT_S),
    )
    taken = [row for row in rows if row[_SEQ] is not None]
    taken.sort(key=lambda row: (row[0], -row[_PRIORITY], row[_SEQ]))
    # All of a piece stands at one place of the order.
    return *read_leases(taken, claim), len(taken) < len(rows)


# -- extend ----------------------------------------------------------------------------------------


async def extend(step: Step, extensions: Sequence[Extension]) -> list[Extended]:
    answers: dict[int, Extended] = {}
    left = dict(enumerate(extensions))
    while left:
        # One after the other where a call names a job twice.
        seen: set[tuple[str, str]] = set()
        now: dict[int, Extension] = {}
        for place, each in left.items():
            if (each.tenant, each.id) not in seen:
                seen.add((each.tenant, each.id))
                now[place] = each
        answers |= await _extend(step, now)
        left = {place: each for place, each in left.items() if place not in now}
    return [answers[place] for place in range(len(extensions))]


async def _extend(step: Step, extensions: dict[int, Extension]) -> dict[int, Extended]:
    places, wanted = list(extensions), list(extensions.values())
    renewed = await step.rows(
        sql.EXTEND,
        [seq_of(each.token) for each in wanted],
        [asked(each.token) for each in wanted],
        [asked(each.tenant) for each in wanted],
        [asked(each.id) for each in wanted],
        [each.lease_us for each in wanted],
        [plain(each.progress) for each in wanted],
        step.given,
        step.events_on,
    )
    answers = {
        places[ord - 1]: Extended(extensions[places[ord - 1]].id, until) for ord, until in renewed
    }
    refused = {place: each for place, each in extensions.items() if place not in answers}
    if refused:
        await step.begin()
        rows = await step.look((each.tenant, each.id) for each in refused.values())
        for place, each in refused.items():
            row = rows.get((each.tenant, each.id))
            error = JobNotFound if row is None else refusal(row, each.token, step.now)
            answers[place] = Extended(each.id, error=(error or JobNotFound)(id=each.id))
    return answers


# -- ack -------------------------------------------------------------------------------------------


def is_plain(change: Transition) -> bool:
    return (
        change.to is State.COMPLETED
        and not (change.lapsed or change.give_back or change.miss)
        and change.reason is None
        and change.error is None
    )


def plain_ones(transitions: Sequence[Transition]) -> list[int]:
    """The places of plain completions whose jobs the call names once: their order is no matter."""
    if len({(change.tenant, change.id) for change in transitions}) == len(transitions):
        return [place for place, change in enumerate(transitions) if is_plain(change)]
    times = Counter((change.tenant, change.id) for change in transitions)
    return [
        place
        for place, change in enumerate(transitions)
        if is_plain(change) and times[change.tenant, change.id] == 1
    ]


async def complete(
    step: Step, changes: Sequence[Transition], channel: str | None, sender: str
) -> set[int]:
    """The places of those that are completed by this; the rules must look at the others."""
    found = await step.row(
        sql.COMPLETE,
        [seq_of(change.token) for change in changes],
        [asked(change.token or "") for change in changes],
        [asked(change.tenant) for change in changes],
        [asked(change.id) for change in changes],
        _column([change.result for change in changes]),
        step.given,
        step.events_on,
        channel,
        sender,
    )
    assert found is not None
    places, tenants, queues, _ = found
    done = set(range(len(changes))) if places is None else {place - 1 for place in places}
    step.ended += [Ref(changes[place].tenant, changes[place].id) for place in done]
    if tenants is not None:
        step.lines |= set(zip(tenants, queues, strict=True))
    return done


async def settle(step: Step, transitions: Sequence[Transition]) -> list[Acked]:
    """Applies transitions as the rules say, one after the other."""
    await step.begin()
    # By their tokens, which is cheaper than to look for them in vain and then by name.
    await step.run(sql.OPEN_HELD, [seq_of(change.token) for change in transitions])
    rows = await step.look((change.tenant, change.id) for change in transitions)
    changed: dict[int, Row] = {}
    acked = [_settle(step, rows, change, changed) for change in transitions]
    await step.write(list(changed.values()))
    await step.flush()
    return acked


def _settle(
    step: Step,
    rows: dict[tuple[str, str], Row],
    change: Transition,
    changed: dict[int, Row],
) -> Acked:
    now, row = step.now, rows.get((change.tenant, change.id))
    refused = None if row is None else refusal(row, change.token, now, change.lapsed)
    if row is None or refused is not None:
        return Acked(change.id, error=(refused or JobNotFound)(id=change.id))
    settled = apply(row, change, now)
    changed[row.seq] = row
    if row.state in TERMINAL:
        row.finished_at = now
        if row.keep_until() <= now:
            del rows[change.tenant, change.id]  # Gone: whoever comes next does not find it.
    until = settled.run_at if settled.run_at is not None and settled.run_at > now else None
    step.note(settled.kind, row, until, why(row))
    return Acked(change.id, row.state)
