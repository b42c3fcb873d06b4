"""Extend: renews leases, and reports the progress of their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import JobNotFound, JournalFull
from holdfast.core.lifecycle import refusal
from holdfast.store import Extended, Extension
from holdfast.stores.postgres import statements as sql
from holdfast.stores.postgres.journal import Journals
from holdfast.stores.postgres.rows import asked, plain, seq_of
from holdfast.stores.postgres.step import Step


async def extend_leases(step: Step, extensions: Sequence[Extension]) -> list[Extended]:
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
    if not any(each.entries for each in extensions.values()):
        return await _renew(step, extensions)
    full = await _write(step, extensions)
    rest = {place: each for place, each in extensions.items() if place not in full}
    return full | (await _renew(step, rest) if rest else {})


async def _write(step: Step, extensions: dict[int, Extension]) -> dict[int, Extended]:
    """Writes the entries of those that hold their jobs; the answers for those with too many. The
    jobs stay locked, so that it is the same step that renews their leases.
    """
    await step.begin()
    with_entries = {place: each for place, each in extensions.items() if each.entries}
    rows = await step.lock_jobs((each.tenant, each.id) for each in with_entries.values())
    found = {place: rows.get((each.tenant, each.id)) for place, each in with_entries.items()}
    held = {
        place: row
        for place, row in found.items()
        if row is not None and refusal(row, extensions[place].token, step.now) is None
    }
    journals = Journals(step)
    await journals.read((row, extensions[place].entries, None) for place, row in held.items())
    full: dict[int, Extended] = {}
    for place, row in held.items():
        if (why := journals.write(row, extensions[place].entries)) is not None:
            id = extensions[place].id
            full[place] = Extended(id, error=JournalFull(id=id, why=why))
    await journals.flush()
    await step.flush()
    return full


async def _renew(step: Step, extensions: dict[int, Extension]) -> dict[int, Extended]:
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
        rows = await step.lock_jobs((each.tenant, each.id) for each in refused.values())
        for place, each in refused.items():
            row = rows.get((each.tenant, each.id))
            error = JobNotFound if row is None else refusal(row, each.token, step.now)
            answers[place] = Extended(each.id, error=(error or JobNotFound)(id=each.id))
    return answers
