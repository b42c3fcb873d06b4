"""The answers to a call that creates all of its jobs, or none of them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import BatchRefused
from holdfast.core.job import NewJob
from holdfast.store import Enqueued


def stands(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> bool:
    """Whether the call may stand: it has created every job, or is a repeat, of which an earlier
    call has.
    """
    created = sum(answer.created for answer in answers)
    if created in (0, len(answers)):
        return bool(created) or all(
            answer.error is None and answer.id == job.id
            for job, answer in zip(jobs, answers, strict=True)
        )
    return False


def undone(answers: Sequence[Enqueued]) -> list[Enqueued]:
    """The answers when what was created is taken back."""
    return [
        Enqueued(answer.id, False, BatchRefused(id=answer.id)) if answer.created else answer
        for answer in answers
    ]
