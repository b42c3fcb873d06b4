"""Which claims were made lately: a repeated claim leases nothing more (P15).

CLAIMED has one key for each claim that gave leases, by its nonce: until when it is remembered, and
the sequences of its jobs, from which its tokens follow. Of two steps of one claim one fails, and
finds the other's leases when it is repeated.
"""

from __future__ import annotations

import msgspec

from holdfast.core.bounds import CLAIM_REPEAT_S
from holdfast.core.clock import Micros, micros
from holdfast.core.job import Lease, State
from holdfast.store import Claim
from holdfast.stores.foundationdb import journal
from holdfast.stores.foundationdb.layout import SEQ, Space, seq_bytes, text, texts
from holdfast.stores.foundationdb.rows import pack
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.repeats import asked_for

_decoder = msgspec.msgpack.Decoder(tuple[int, bytes])


def _key(step: Step, claim: Claim) -> bytes:
    return step.keys.all(Space.CLAIMED, text(claim.nonce))


def until_of(value: bytes) -> Micros:
    """Until when a claim is remembered."""
    return _decoder.decode(value)[0]


def ask(step: Step, claim: Claim) -> None:
    step.ask([_key(step, claim)])


async def repeated(step: Step, claim: Claim) -> list[Lease] | None:
    """The leases of a claim that is repeated, as far as they still hold; None if it is new."""
    value = await step.get(_key(step, claim))
    if value is None:
        return None
    until, stamps = _decoder.decode(value)
    if until <= step.now:
        return None
    seqs = [stamps[place : place + SEQ] for place in range(0, len(stamps), SEQ)]
    found = await step.get_many([step.keys.all(Space.ALL_JOBS, seq) for seq in seqs], snapshot=True)
    named = [texts(each, 2) for each in found if each is not None]
    leases = []
    for row in await step.peek([(tenant, id) for tenant, id in named]):
        if row is None or row.state is not State.PROCESSING or row.lease_until is None:
            continue
        if row.token == f"{claim.nonce}.{row.seq}" and not row.lapsed(step.at):
            record = row.record(step.now, await step.body(row))
            if asked_for(claim, record) and await journal.fault(step, row) is None:
                brought = await journal.remembered(step, row)
                leases.append(Lease(record, row.token, row.lease_until, *brought))
    return leases


def remember(step: Step, claim: Claim, leases: list[Lease]) -> None:
    if leases:
        stamps = b"".join(seq_bytes(lease.job.seq) for lease in leases)
        step.put(_key(step, claim), pack((step.now + micros(CLAIM_REPEAT_S), stamps)))
