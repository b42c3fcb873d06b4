"""Enqueues of any number of jobs: how they are cut into batches, and how their answers add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.core.bounds import CALL_BYTES_MAX
from holdfast.core.job import NewJob
from holdfast.store import Enqueued

CHUNK_MAX = 256
"""Jobs in one batch of `enqueue_many`. Small, so that other calls can run between batches."""


class EnqueuedMany(msgspec.Struct, frozen=True):
    """The result of `enqueue_many`."""

    created: int
    existing: int


class ManyTally:
    """Counts the results of the batches. Raises the error of the first refused job."""

    def __init__(self, on_batch: Callable[[list[Enqueued]], None] | None) -> None:
        self.created = self.existing = 0
        self._on_batch = on_batch

    def add(self, results: list[Enqueued]) -> None:
        for result in results:
            self.created += result.created
            self.existing += not result.created and result.error is None
        if self._on_batch is not None:
            self._on_batch(results)
        for result in results:
            if result.error is not None:
                raise result.error


def chunks(jobs: Iterator[NewJob]) -> Iterator[list[NewJob]]:
    """Splits jobs into batches bounded by number and by payload bytes."""
    chunk: list[NewJob] = []
    size = 0
    for job in jobs:
        body = job.envelope.body
        size += len(body) if isinstance(body, bytes) else 0
        chunk.append(job)
        if len(chunk) == CHUNK_MAX or size >= CALL_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
