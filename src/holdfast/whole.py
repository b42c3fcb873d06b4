"""Creates jobs all together or not at all. Concurrent requests of one tenant share a call.

If one of several requests of a call cannot be done, none is; then its halves are sent again, until
each request has its own answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from holdfast.coalesce import Coalescer
from holdfast.core.bounds import BATCH_MAX, WHOLE_BYTES_MAX
from holdfast.core.errors import HoldfastError
from holdfast.core.job import NewJob, again, edge_bytes
from holdfast.core.outage import away
from holdfast.held import check_not_held
from holdfast.payload.app_blobs import AppBlobs
from holdfast.store import Enqueued, Store

REQUESTS_MAX = 256
"""Requests that are sent together."""
PENDING_MAX = 1_000
"""Requests of one event loop that wait to be sent."""

Jobs = Sequence[NewJob]
Answer = list[Enqueued] | BaseException


class WholeCalls:
    """`await create(jobs)` creates all of these jobs, which are of one tenant, or none of them."""

    def __init__(self, store: Store, blobs: AppBlobs | None = None) -> None:
        self._store = store
        self._blobs = blobs
        self._coalescer: Coalescer[Jobs, Answer]
        self._coalescer = Coalescer(self._send, batch_max=REQUESTS_MAX, pending_max=PENDING_MAX)

    async def create(self, jobs: Jobs) -> list[Enqueued]:
        """The answer for each job, as `Store.enqueue` gives it for a whole call."""
        check_not_held(self._store)
        if self._blobs is not None:  # Others of the call do not wait for these uploads.
            jobs = await self._blobs.ready_all(jobs)
        answer = await self._coalescer.submit(jobs)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def _send(self, requests: list[Jobs]) -> list[Answer]:
        if len(requests) == 1:
            return await self._create(requests)
        parts = list(_parts(requests))
        answers: list[Answer] = [[]] * len(requests)
        for part, found in zip(
            parts,
            await asyncio.gather(*(self._create([requests[at] for at in part]) for part in parts)),
            strict=True,
        ):
            for at, answer in zip(part, found, strict=True):
                answers[at] = answer
        return answers

    async def _create(self, requests: list[Jobs]) -> list[Answer]:
        """Creates the jobs of these requests by one call, or by more if that is refused."""
        places = _in_turn(requests)
        one = [requests[at][number] for number, at in places]
        try:
            answers = await self._store.enqueue(one, whole=True)
        except HoldfastError as error:
            if len(requests) == 1 or away(error):
                return [error] * len(requests)
        else:
            if len(requests) == 1 or all(answer.created for answer in answers):
                found: list[list[Enqueued]] = [[] for _ in requests]
                for (_, at), answer in zip(places, answers, strict=True):
                    found[at].append(answer)
                return list[Answer](found)
        requests = [[again(job) for job in jobs] for jobs in requests]
        middle = len(requests) // 2
        return await self._create(requests[:middle]) + await self._create(requests[middle:])


def _in_turn(requests: list[Jobs]) -> list[tuple[int, int]]:
    """The jobs of these requests, as (number, request): the first of each, then the second of each.

    Jobs of one kind of flow that run at the same time are next to each other then: SQLite wrote a
    fifth fewer pages.
    """
    if len(requests) == 1:
        return [(number, 0) for number in range(len(requests[0]))]
    return sorted((number, at) for at, jobs in enumerate(requests) for number in range(len(jobs)))


def _parts(requests: list[Jobs]) -> Iterator[list[int]]:
    """The places of requests that share a call: of one tenant, bounded in jobs and in bytes."""
    parts: dict[str, tuple[list[int], int, int]] = {}
    for at, jobs in enumerate(requests):
        tenant, size = jobs[0].tenant, sum(map(job_bytes, jobs))
        part, number, used = parts.get(tenant, ([], 0, 0))
        if part and (number + len(jobs) > BATCH_MAX or used + size > WHOLE_BYTES_MAX):
            yield part
            part, number, used = [], 0, 0
        part.append(at)
        parts[tenant] = (part, number + len(jobs), used + size)
    yield from (part for part, _, _ in parts.values())


def job_bytes(job: NewJob) -> int:
    """The bytes of a job's payload and edges."""
    body = job.envelope.body
    return edge_bytes(job) + (len(body) if isinstance(body, bytes) else 0)
