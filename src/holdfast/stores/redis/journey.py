"""What goes to the scripts of enqueue, extend, ack and cancel, and what their answers mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast import limits
from holdfast.clock import Micros
from holdfast.errors import REFUSALS, IdConflict, JobNotFound, QueueFull, TenantFull
from holdfast.job import By, NewJob, Reason, State
from holdfast.lifecycle import Transition
from holdfast.store import Acked, Canceled, Enqueued, Extended, Extension, Ref
from holdfast.stores.redis import fit, packs
from holdfast.stores.redis.packs import Parcel
from holdfast.stores.redis.rows import (
    EXACT_MAX,
    REASON_CODES,
    STATE_CODES,
    STATES,
    new_row,
    plain,
    raw,
    words,
)
from holdfast.stores.redis.shards import Shards, together

RETRY_AFTER_S = 1.0
"""When a full tenant may try again."""

CALL_BYTES_MAX = 4 * 1024 * 1024
"""Payloads of one call: a script holds up the server while it copies them."""

TOKEN_MAX = 1024
"""Letters of what is no token of ours that the scripts are told."""
_SEQUENCE = re.compile("[1-9][0-9]{0,15}")

CREATED = 1
KNOWN, CONFLICT, FULL, TOO_MANY = 0, 2, 3, 4


async def enqueue(shards: Shards, jobs: Sequence[NewJob], now: Micros | None) -> list[Enqueued]:
    return await fit.each(
        jobs,
        fit.of_job,
        lambda some: _enqueue(shards, some, now),
        lambda job, why: Enqueued(job.id, False, why),
    )


async def _enqueue(shards: Shards, jobs: Sequence[NewJob], now: Micros | None) -> list[Enqueued]:
    if len(jobs) == 1 < packs.PACK_MIN:
        return [await _enqueue_one(shards, jobs[0], now)]
    spread = shards.spread(jobs, (job.tenant for job in jobs))
    found: list[Any] = [None] * len(jobs)
    # All is put into words before the first is sent: what cannot be stored fails the whole call.
    calls = {
        shard: [_call(jobs, part, alone=len(spread) == 1) for part in _parts(jobs, places)]
        for shard, places in spread.items()
    }

    async def call(shard: int, base: int | None) -> int:
        at = 0
        for one in calls[shard]:
            *answers, at = await shards.call(
                "enqueue", shard, one.args, now, texts=one.texts, base=base, wait=True
            )
            for place, answer in zip(one.places, one.each(answers), strict=True):
                found[place] = answer
        return int(at)

    if spread:
        # The first shard's clock numbers the whole batch, so that its jobs keep their order.
        first, *others = spread
        base = await call(first, None)
        await together(call(shard, base) for shard in others)
    return [_enqueued(*each) for each in zip(jobs, found, strict=True)]


class _Call(msgspec.Struct):
    """What enqueue.lua is asked for some jobs of a batch."""

    places: list[int]
    args: tuple[Any, ...]
    texts: Sequence[Any]
    parcels: list[Parcel] | None

    def each(self, answers: list[Any]) -> list[Any]:
        """The answers for all jobs: of those in a pack there may be one."""
        if self.parcels is None:
            return answers
        found: list[Any] = []
        for parcel, answer in zip(self.parcels, answers, strict=True):
            found += [CREATED] * len(parcel.ids) if answer == CREATED else answer
        return found


def _call(jobs: Sequence[NewJob], places: list[int], *, alone: bool) -> _Call:
    """Alone: all jobs of the batch are in one shard, so their places need not be told."""
    parcels = packs.parcels(jobs, places)
    most = (limits.QUEUES_MAX, limits.GROUPS_MAX)
    if parcels is None:
        rows = (new_row(jobs[place]) for place in places)
        names, fixed, bodies, options = zip(*rows, strict=True)
        args: tuple[Any, ...] = (options, None if alone else places, None)
        return _Call(places, (*args, *most), (*names, *fixed, *bodies), None)
    firsts = None if alone else [parcel.first for parcel in parcels]
    args = ((), firsts, [len(parcel.ids) for parcel in parcels])
    return _Call(
        places, (*args, *most), [text for each in parcels for text in each.texts()], parcels
    )


async def _enqueue_one(shards: Shards, job: NewJob, now: Micros | None) -> Enqueued:
    """The same for the most frequent batch, without what only several need."""
    name, fixed, body, options = new_row(job)
    shard, texts = shards.of(job.tenant), (name, fixed, body)
    args = ((options,), None, None, limits.QUEUES_MAX, limits.GROUPS_MAX)
    answer, _ = await shards.call("enqueue", shard, args, now, texts=texts, wait=True)
    return _enqueued(job, answer)


def _parts(jobs: Sequence[NewJob], places: list[int]) -> Iterator[list[int]]:
    """The places, in parts whose payloads are small enough for one call."""
    part: list[int] = []
    size = 0
    for place in places:
        size += len(jobs[place].envelope.body or b"")
        if part and size > CALL_BYTES_MAX:
            yield part
            part, size = [], len(jobs[place].envelope.body or b"")
        part.append(place)
    yield part


def _enqueued(job: NewJob, answer: Any) -> Enqueued:
    if answer == CREATED:
        return Enqueued(job.id, True)
    code, *facts = answer
    if code == KNOWN:
        return Enqueued(facts[0].decode(), False)
    if code == CONFLICT:
        type, queue = (fact.decode() for fact in facts)
        return Enqueued(job.id, False, IdConflict(field="id", id=job.id, type=type, queue=queue))
    if code == TOO_MANY:
        what = facts[0].decode()
        most = {"queues": limits.QUEUES_MAX, "groups": limits.GROUPS_MAX}[what]
        return Enqueued(job.id, False, TenantFull(tenant=job.tenant, what=what, max=most))
    what, has, most = facts
    full = QueueFull(
        tenant=job.tenant,
        what=what.decode(),
        queued=int(has),
        max=int(most),
        retry_after_s=RETRY_AFTER_S,
    )
    return Enqueued(job.id, False, full)


async def ack(shards: Shards, transitions: Sequence[Transition], now: Micros | None) -> list[Acked]:
    return await fit.each(
        transitions,
        fit.of_transition,
        lambda some: _ack(shards, some, now),
        lambda change, why: Acked(change.id, error=why),
    )


async def _ack(
    shards: Shards, transitions: Sequence[Transition], now: Micros | None
) -> list[Acked]:
    # Completions go first, which only a job that is named twice would notice.
    once = len({change.id for change in transitions}) == len(transitions)
    found: list[Any] = [None] * len(transitions)

    async def call(shard: int, places: list[int]) -> None:
        flat: list[Any] = []
        changes, completed, changed = [], [], []
        runs = packs.Runs(shards.number)
        for place in places:
            change = transitions[place]
            seq, nonce, pieced = _token(change.token)
            if seq is None or nonce is None or not once or not _only_completes(change):
                changes.append(_change(change, seq, nonce))
                changed.append(place)
            elif pieced:
                runs.add(place, change, nonce, int(seq), raw(change.result))
            else:
                flat += (change.tenant, change.id, seq, nonce, raw(change.result) or False)
                completed.append(place)
        args = (flat, changes, runs.told())
        answers = await shards.call("ack", shard, args, now, wait=True)
        single = len(completed) + len(changed)
        for place, answer in zip(completed + changed, answers[:single], strict=True):
            found[place] = answer
        for place, answer in runs.answers(answers[single:]):
            found[place] = answer

    spread = shards.spread(transitions, (change.tenant for change in transitions))
    await together(call(shard, places) for shard, places in spread.items())
    return [_acked(*each) for each in zip(transitions, found, strict=True)]


def _only_completes(change: Transition) -> bool:
    return (
        change.to is State.COMPLETED
        and change.reason is None
        and change.error is None
        and not (change.lapsed or change.give_back or change.miss)
    )


def _change(change: Transition, seq: str | None, nonce: str | None) -> tuple[Any, ...]:
    return (
        change.tenant,
        change.id,
        seq,
        nonce,
        raw(change.result),
        STATE_CODES[change.to],
        change.delay_us,
        change.run_at,
        change.give_back,
        change.miss,
        change.lapsed,
        0 if change.reason is None else REASON_CODES[Reason(change.reason)],
        plain(change.error),
    )


def _token(token: str | None) -> tuple[str | None, str | None, bool]:
    """The job's sequence, the claim's nonce, and whether it was leased in a piece. No sequence,
    where it is none of our tokens.
    """
    text = plain(token) or ""
    nonce, _, digits = text.rpartition(".")
    if _SEQUENCE.fullmatch(digits) and int(digits) < EXACT_MAX:
        return digits.zfill(16), nonce, nonce.endswith(packs.PIECED)
    return None, None if token is None else text[:TOKEN_MAX], False


def _acked(change: Transition, answer: Any) -> Acked:
    if isinstance(answer, int):
        return Acked(change.id, STATES[answer - 1])
    return Acked(change.id, error=REFUSALS[answer.decode()](id=change.id))


async def extend(
    shards: Shards, extensions: Sequence[Extension], now: Micros | None
) -> list[Extended]:
    return await fit.each(
        extensions,
        fit.of_extension,
        lambda some: _extend(shards, some, now),
        lambda one, why: Extended(one.id, error=why),
    )


async def _extend(
    shards: Shards, extensions: Sequence[Extension], now: Micros | None
) -> list[Extended]:
    items = [
        (one.tenant, one.id, *_token(one.token)[:2], one.lease_us, plain(one.progress))
        for one in extensions
    ]
    spread = shards.spread(items, (one.tenant for one in extensions))
    found = await together(
        shards.call("extend", shard, [items[place] for place in places], now)
        for shard, places in spread.items()
    )
    answers = _gathered(spread, found, len(extensions))
    return [_extended(*each) for each in zip(extensions, answers, strict=True)]


def _extended(one: Extension, answer: Any) -> Extended:
    if isinstance(answer, list):
        return Extended(one.id, int(answer[0]))
    return Extended(one.id, error=REFUSALS[answer.decode()](id=one.id))


async def cancel(
    shards: Shards, refs: Sequence[Ref], by: By | None, now: Micros | None
) -> list[Canceled]:
    return await fit.each(
        refs,
        fit.of_ref,
        lambda some: _cancel(shards, some, by, now),
        lambda ref, why: Canceled(ref.id, False, why),
    )


async def _cancel(
    shards: Shards, refs: Sequence[Ref], by: By | None, now: Micros | None
) -> list[Canceled]:
    items = [(ref.tenant, ref.id) for ref in refs]
    spread = shards.spread(items, (ref.tenant for ref in refs))
    found = await together(
        shards.call("cancel", shard, ([items[place] for place in places], words(by)), now)
        for shard, places in spread.items()
    )
    answers = _gathered(spread, found, len(refs))
    return [
        Canceled(ref.id, answer == 1, JobNotFound(id=ref.id) if answer < 0 else None)
        for ref, answer in zip(refs, answers, strict=True)
    ]


def _gathered(spread: dict[int, list[int]], answers: list[Any], number: int) -> list[Any]:
    """One answer per item, from the shards they live in."""
    found: list[Any] = [None] * number
    for places, answer in zip(spread.values(), answers, strict=True):
        for place, one in zip(places, answer, strict=True):
            found[place] = one
    return found
