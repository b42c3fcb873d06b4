"""Refuses, item by item, what the scripts cannot store, before anything is sent.

Numbers of the scripts are doubles, texts are UTF-8 with a length of two bytes. An item that cannot
be stored must not fail a call that carries items of others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from holdfast.core.bounds import EDGES_MAX, PARENTS_MAX
from holdfast.core.errors import HoldfastError, InvalidInput, JobNotFound
from holdfast.core.job import NewJob, Rules
from holdfast.core.journal import Entry, EntryKind, Signal
from holdfast.core.lifecycle import Transition
from holdfast.store import Extension, Ref
from holdfast.stores.redis.rows import RULES_CACHE_MAX, inexact

ATTEMPTS_MAX = 2**32 - 1
TEXTS_MAX = 32 * 1024
"""Letters of all names of a job; each is far shorter by `core/bounds.py`."""

T = TypeVar("T")
R = TypeVar("R")


async def each(
    items: Sequence[T],
    misfit: Callable[[T], HoldfastError | None],
    act: Callable[[Sequence[T]], Awaitable[list[R]]],
    refuse: Callable[[T, HoldfastError], R],
) -> list[R]:
    """The answers of `act` for items that fit, and the refusals of the others, in their order."""
    refused = {place: why for place, one in enumerate(items) if (why := misfit(one)) is not None}
    if not refused:
        return await act(items)
    fit = [one for place, one in enumerate(items) if place not in refused]
    answers = iter(await act(fit) if fit else ())
    return [
        refuse(one, refused[place]) if place in refused else next(answers)
        for place, one in enumerate(items)
    ]


def of_job(job: NewJob) -> HoldfastError | None:
    """Why a new job cannot be stored; None when it can."""
    envelope = job.envelope
    why = _of_rules(job.rules) or _of_numbers(
        ("run_at", job.run_at),
        ("delay_us", job.delay_us),
        ("ttl_us", job.ttl_us),
        ("priority", job.priority),
        ("version", envelope.version),
    )
    if why is None and (job.edges or job.parents):
        why = _of_edges(job)
    texts = [job.tenant, job.id, job.queue, envelope.type, envelope.codec, *job.tags]
    texts += [each for each in (job.group, job.key, job.origin) if each is not None]
    return why or (None if _fits("".join(texts)) else InvalidInput(field="job", why=_NAMES))


_NAMES = f"has names that are no text, or are longer than {TEXTS_MAX} letters in all"


@lru_cache(RULES_CACHE_MAX)
def _of_rules(rules: Rules) -> HoldfastError | None:
    if not 1 <= rules.max_attempts <= ATTEMPTS_MAX:
        why = f"is {rules.max_attempts}, must be 1 to {ATTEMPTS_MAX}"
        return InvalidInput(field="max_attempts", why=why)
    return _of_numbers(
        ("keep_us", rules.keep_us),
        ("keep_failed_us", rules.keep_failed_us),
        ("key_us", rules.key_us),
        ("timeout_us", rules.timeout_us),
    )


def _of_edges(job: NewJob) -> HoldfastError | None:
    if not 0 <= job.parents <= PARENTS_MAX:
        return InvalidInput(field="parents", why=f"is {job.parents}, must be 0 to {PARENTS_MAX}")
    if len(job.edges) > EDGES_MAX:
        return InvalidInput(field="edges", why=f"has {len(job.edges)}, at most {EDGES_MAX}")
    fit = all(_fits(edge.target + edge.join) for edge in job.edges)
    return None if fit else InvalidInput(field="edges", why=_NAMES)


def of_transition(change: Transition) -> HoldfastError | None:
    why = of_ref(change) or _of_numbers(("run_at", change.run_at), ("delay_us", change.delay_us))
    if why is None and change.awaits is not None and not _fits(change.awaits):
        why = InvalidInput(field="awaits", why=_NAMES)
    return why or _of_entries(change.entries)


def of_extension(one: Extension) -> HoldfastError | None:
    return of_ref(one) or _of_numbers(("lease_us", one.lease_us)) or _of_entries(one.entries)


def of_signal(one: Signal) -> HoldfastError | None:
    return of_ref(one) or _of_entries((Entry(EntryKind.SIGNAL, one.name, one.value),))


def _of_entries(entries: tuple[Entry, ...]) -> HoldfastError | None:
    for entry in entries:
        try:
            entry.checked()
        except HoldfastError as refused:
            return refused
    return None


def of_ref(one: Ref | Extension | Transition | Signal) -> HoldfastError | None:
    """No job has such a name."""
    return None if _fits(one.tenant) and _fits(one.id) else JobNotFound(id=one.id)


def _of_numbers(*numbers: tuple[str, int | None]) -> HoldfastError | None:
    for field, number in numbers:
        if number and (refusal := inexact(field, number)) is not None:
            return refusal
    return None


def _fits(text: str) -> bool:
    if len(text) > TEXTS_MAX:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
