"""Work: claim, ack and extend, for workers in any language."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from holdfast.core.bounds import ID_MAX, WORKER_MAX
from holdfast.core.check import check_name, check_seconds, check_token
from holdfast.core.clock import micros, moment
from holdfast.core.codec import BYTES, JSON, OBJECT, Codecs, json_fault
from holdfast.core.errors import InvalidInput, JobNotFound, PayloadTooLarge
from holdfast.core.job import (
    Completed,
    Envelope,
    Failed,
    JobRecord,
    Lease,
    Outcome,
    Reason,
    Released,
    Rules,
    Snoozed,
    State,
)
from holdfast.core.journal import Entry
from holdfast.core.lifecycle import Transition, completion, decide
from holdfast.core.mapped import plain_codec
from holdfast.core.schedule import TYPE as TICK
from holdfast.service.api.entries import error_of, parked, written_by
from holdfast.service.api.hiding import hidden
from holdfast.service.aside import aside, size_of
from holdfast.service.call import Call
from holdfast.service.problems import problem
from holdfast.service.render import lease_out, unbase64
from holdfast.service.rights import Unauthenticated
from holdfast.service.unread import readable
from holdfast.service.wire import (
    AckIn,
    AckOut,
    AcksOut,
    ClaimIn,
    ExtendIn,
    ExtendOut,
    ExtendsOut,
    LeasesOut,
    OutcomeName,
)
from holdfast.store import Acked, Claim, Extension, Find, Ref, Selection
from holdfast.webhooks.definition import TYPE as WEBHOOK

WRONG_TYPE_US = 5_000_000
"""How long a job is delayed that was claimed by a token for other types."""

_codecs = Codecs()


async def claim(call: Call) -> LeasesOut:
    """Leases jobs. With `wait` it waits for the first one."""
    asked: ClaimIn = call.body or ClaimIn()
    service = call.service
    wanted = Claim(
        worker=check_name("worker", asked.worker, WORKER_MAX),
        nonce=secrets.token_hex(16),
        limit=asked.limit,
        lease_us=micros(asked.lease),
        tenants=(call.tenant,),
        queues=call.caller.queues_of(asked.queues),
        exclude_groups=asked.exclude_groups,
    )
    if asked.wait <= 0:
        leases = await service.store.claim(wanted)
    else:
        gone, standing = call.gone(), call.standing()
        try:
            wait_s = min(asked.wait, service.limits.wait_s)
            leases = await service.pollers.claim(wanted, wait_s, gone)
        finally:
            gone.cancel()
        try:
            await standing.check()
        except Unauthenticated:
            await _give_back(call, leases, 0)
            raise
    mine = await readable(service.store, await _allowed(call, leases))
    size = size_of(one.job for one in mine)
    size += sum(len(entry.value) for one in mine for entry in one.journal)
    return LeasesOut(leases=await aside(size, lambda: [lease_out(one) for one in mine]))


async def _allowed(call: Call, leases: list[Lease]) -> list[Lease]:
    """The leases of the caller's types. A claim cannot select types, so the others are released.
    So are ticks and deliveries of webhooks, which workers in other languages do not know.
    """

    def may(lease: Lease) -> bool:
        return call.caller.may_type(lease.job.type) and lease.job.type not in (TICK, WEBHOOK)

    others = [one for one in leases if not may(one)]
    if not others:
        return leases
    await _give_back(call, others, WRONG_TYPE_US)
    return [one for one in leases if may(one)]


async def _give_back(call: Call, leases: Sequence[Lease], delay_us: int) -> None:
    back = Released(delay_us)
    if leases:
        await call.service.store.ack([decide(back, one.job, one.token, 0.0) for one in leases])


async def ack(call: Call) -> AcksOut:
    """Settles leases. Each has its own answer."""
    asked: Sequence[AckIn] = call.body.acks
    known = await _known(call, asked)
    written = await written_by(asked, "acks")
    now = await call.service.store_clock.look() if known else 0
    changes: list[Transition] = []
    answers: list[Acked | None] = []
    for number, one in enumerate(asked):
        check_name("id", one.id, ID_MAX)
        check_token(f"acks[{number}].token", one.token)
        answers.append(None)
        entries = written[number]
        if not _needs_job(one) and one.outcome is OutcomeName.COMPLETE:  # The common case.
            changes.append(_with(completion(call.tenant, one.id, one.token), entries))
            continue
        job = known.get(one.id, None if _needs_job(one) else _bare(call.tenant, one.id))
        if job is None:
            answers[number] = Acked(one.id, error=JobNotFound(id=one.id))
        else:
            outcome = _outcome(call, one, job, f"acks[{number}].")
            if isinstance(outcome, Failed):
                entries = (*entries, error_of(one, job, outcome.error, now))
            changes.append(_with(decide(outcome, job, one.token, random.random()), entries))
    acked = iter(await _acked(call, changes))
    return AcksOut(acks=[_told(one if one is not None else next(acked)) for one in answers])


def _with(change: Transition, entries: tuple[Entry, ...]) -> Transition:
    return msgspec.structs.replace(change, entries=entries) if entries else change


async def _acked(call: Call, changes: list[Transition]) -> list[Acked]:
    if len(changes) == 1:  # A single one shares a batch with other callers.
        answers = [await call.service.acks.submit(await call.service.ready_ack(changes[0]))]
    else:
        answers = await call.service.store.ack(changes) if changes else []
    if call.caller.queues is None:
        return answers
    return await hidden(call, [Ref(one.tenant, one.id) for one in changes], answers)


def _told(one: Acked) -> AckOut:
    return AckOut(
        id=one.id, state=one.state, error=None if one.error is None else problem(one.error)
    )


async def _known(call: Call, asked: Sequence[AckIn]) -> dict[str, JobRecord]:
    """The jobs that must be read, to apply their rules or to encode the result."""
    ids = tuple({check_name("id", one.id, ID_MAX) for one in asked if _needs_job(one)})
    if not ids:
        return {}
    page = await call.service.store.find(
        Find(
            select=Selection(tenant=call.tenant, ids=ids, queues=call.caller.queues or ()),
            limit=len(ids),
        )
    )
    return {job.id: job for job in page.jobs}


def _needs_job(one: AckIn) -> bool:
    has_result = one.result is not UNSET or one.result_base64 is not UNSET
    return one.outcome is OutcomeName.FAIL or has_result


def _outcome(call: Call, one: AckIn, job: JobRecord, where: str) -> Outcome:
    after = None if one.after is UNSET else micros(check_seconds(f"{where}after", one.after))
    match one.outcome:
        case OutcomeName.COMPLETE:
            return Completed(_result(call, one, job, where))
        case OutcomeName.FAIL:
            final = one.retry is False
            return Failed(
                error="the worker gave no error text" if one.error is UNSET else one.error,
                reason=Reason.PERMANENT if final else None,
                retryable=not final,
                after_us=after,
            )
        case OutcomeName.RELEASE:
            return Released(after or 0)
        case OutcomeName.SNOOZE:
            if after is None:
                raise InvalidInput(field=f"{where}after", why="is required for a snooze")
            return Snoozed(after)
        case OutcomeName.PARK:
            return parked(one, after, where)


def _result(call: Call, one: AckIn, job: JobRecord, where: str) -> object:
    """The result in the codec of the payload, so that every reader of the job can decode it."""
    if one.result_base64 is not UNSET:
        body = unbase64(f"{where}result_base64", one.result_base64)
        if plain_codec(job.envelope.codec) != BYTES:
            why = "is only for jobs with a payload in base64; give the result as JSON"
            raise InvalidInput(field=f"{where}result_base64", why=why)
    elif one.result is UNSET:
        return None
    else:
        body = bytes(one.result)
    most = call.service.result_most
    if len(body) > most:
        raise PayloadTooLarge(field=f"{where}result", size=len(body), max=most)
    if one.result is not UNSET and (fault := json_fault(body)) is not None:
        raise InvalidInput(field=f"{where}result", why=fault)
    codec = plain_codec(job.envelope.codec)
    if codec in (JSON, BYTES):
        return body
    try:
        value = _codecs.get(JSON).decode(body, object)
        return value if codec == OBJECT else _codecs.get(codec).encode(value)
    except (
        msgspec.MsgspecError,
        OverflowError,
    ) as error:  # A number that is too large for the format.
        raise InvalidInput(field=f"{where}result", why=str(error)) from None


async def extend(call: Call) -> ExtendsOut:
    """Renews leases and stores progress."""
    asked: Sequence[ExtendIn] = call.body.leases
    written = await written_by(asked, "leases")
    extensions = [
        Extension(
            tenant=call.tenant,
            id=check_name("id", one.id, ID_MAX),
            token=check_token(f"leases[{number}].token", one.token),
            lease_us=micros(one.lease),
            progress=one.progress,
            entries=written[number],
        )
        for number, one in enumerate(asked)
    ]
    if len(extensions) == 1:
        found = [await call.service.extends.submit(extensions[0])]
    else:
        found = await call.service.store.extend(extensions)
    found = await hidden(call, [Ref(one.tenant, one.id) for one in extensions], found)
    return ExtendsOut(
        leases=[
            ExtendOut(id=one.id, until=moment(one.until))
            if one.error is None
            else ExtendOut(id=one.id, error=problem(one.error))
            for one in found
        ]
    )


def _bare(tenant: str, id: str) -> JobRecord:
    """The fields of a job that the rules use when it is completed or released."""
    rules, envelope = Rules(), Envelope("", JSON, 1, None)
    return JobRecord(
        tenant, id, "", envelope, rules, 0, None, None, (), None, 0, State.PROCESSING,
        0, 0, 0, 0, 0, 0, 0,
    )  # fmt: skip
