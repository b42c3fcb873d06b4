"""Ack: transitions as ack.lua takes them, and what its answers mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.core.clock import Micros
from holdfast.core.errors import REFUSALS, JournalFull
from holdfast.core.job import Reason, State
from holdfast.core.lifecycle import Transition
from holdfast.store import Acked
from holdfast.stores.redis import item_check
from holdfast.stores.redis.journal import entry_texts, full
from holdfast.stores.redis.limits_platform import tell_home
from holdfast.stores.redis.rows import EXACT_MAX, REASON_CODES, STATE_CODES, STATES, plain
from holdfast.stores.redis.rows_text import raw
from holdfast.stores.redis.shards import Shards

TOKEN_MAX = 1024
"""Characters that are sent of a text that is not one of our tokens."""
_SEQUENCE = re.compile("[1-9][0-9]{0,15}")


async def ack_transitions(
    shards: Shards, transitions: Sequence[Transition], now: Micros | None
) -> list[Acked]:
    return await item_check.each(
        transitions,
        item_check.of_transition,
        lambda some: _ack(shards, some, now),
        lambda change, why: Acked(change.id, error=why),
    )


async def _ack(
    shards: Shards, transitions: Sequence[Transition], now: Micros | None
) -> list[Acked]:
    def args(positions: list[int]) -> list[Any]:
        return [value for position in positions for value in _item(transitions[position])]

    tenants = (change.tenant for change in transitions)
    reports: list[tuple[int, Any]] = []
    answers = await shards.scatter(
        "ack", transitions, tenants, args, now, wait=True, patient=True, more=reports
    )
    await tell_home(shards, reports, now)
    return [_acked(*each) for each in zip(transitions, answers, strict=True)]


def _item(change: Transition) -> tuple[Any, ...]:
    """A transition as ack.lua takes it: one value for each field, false where there is none."""
    seq, nonce = token_parts(change.token)
    result = raw(change.result) or False
    if _only_completes(change):
        return change.tenant, change.id, seq, nonce, result, False
    details = (
        STATE_CODES[change.to],
        change.delay_us,
        change.run_at,
        change.give_back,
        change.miss,
        change.lapsed,
        0 if change.reason is None else REASON_CODES[Reason(change.reason)],
        plain(change.error),
        change.awaits,
        entry_texts(change.entries),
    )
    return change.tenant, change.id, seq, nonce, result, details


def _only_completes(change: Transition) -> bool:
    return (
        change.to is State.COMPLETED
        and change.reason is None
        and change.error is None
        and not (change.lapsed or change.give_back or change.miss)
        and not (change.entries or change.awaits)
    )


def token_parts(token: str | None) -> tuple[str | bool, str | bool]:
    """The sequence of the job and the nonce of the claim. No sequence if it is not our token."""
    text = plain(token) or ""
    nonce, _, digits = text.rpartition(".")
    if _SEQUENCE.fullmatch(digits) and int(digits) < EXACT_MAX:
        return digits.zfill(16), nonce
    return False, False if token is None else text[:TOKEN_MAX]


def _acked(change: Transition, answer: Any) -> Acked:
    if isinstance(answer, int):
        return Acked(change.id, STATES[answer - 1])
    if isinstance(answer, list):
        return Acked(change.id, error=JournalFull(id=change.id, why=full(answer)))
    return Acked(change.id, error=REFUSALS[answer.decode()](id=change.id))
