"""Cancel: ends jobs that have not ended yet."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound
from holdfast.store import Canceled, Ref
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.rows import asked
from holdfast.stores.postgres.step import Step


async def cancel_jobs(step: Step, refs: Sequence[Ref]) -> list[Canceled]:
    answers: dict[int, Canceled] = {}
    left = list(enumerate(refs))
    while left:
        # One after the other where a call names a job twice: the first may delete it.
        first = {ref: place for place, ref in reversed(left)}
        now = {place: ref for ref, place in first.items()}
        answers |= await _cancel(step, now)
        left = [(place, ref) for place, ref in left if place not in answers]
    step.ended += refs
    return [answers[place] for place in range(len(refs))]


async def _cancel(step: Step, refs: dict[int, Ref]) -> dict[int, Canceled]:
    places = sorted(refs)
    found = await step.rows(
        sql.CANCEL,
        [asked(refs[place].tenant) for place in places],
        [asked(refs[place].id) for place in places],
        step.given,
        step.events_on,
        step.channel,
        step.sender,
        step.by,
    )
    answers: dict[int, Canceled] = {}
    for ord, state, tenant, queue in found:
        if ord is None and state is not None:
            step.awaited.add(tenant)
            continue
        if ord is None:
            step.came_up([(tenant, queue)])
            continue
        id = refs[places[ord - 1]].id
        error = JobNotFound(id=id) if state is None else None
        answers[places[ord - 1]] = Canceled(id, state == "canceled", error)
    return answers
