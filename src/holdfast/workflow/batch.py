"""Batch: independent jobs with one callback, the simple case of a flow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from holdfast.core.errors import InvalidInput
from holdfast.core.journal import OnFailure
from holdfast.core.placeholder import How, Placeholder
from holdfast.typed import AnyJob, Pending, Planned
from holdfast.workflow.flow import Flow, JobNode


class Batch:
    """Independent jobs, and a job that runs once when they have all ended, also if there are none.

    `await acme.start(batch)` starts it. `key` as for `Flow`.
    """

    def __init__(self, name: str, *, key: str | None = None) -> None:
        self._flow = Flow(name, key=key)
        self.name = self._flow.name
        self._then: tuple[Any, OnFailure | str] | None = None
        self._jobs: list[JobNode[Any]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: AnyJob[Any]) -> None:
        """Adds a job."""
        self._jobs.append(self._flow.add(job))

    def add_many(self, jobs: Iterable[AnyJob[Any]]) -> None:
        """Adds jobs."""
        for job in jobs:
            self.add(job)

    def then(self, job: AnyJob[Any], *, on_failure: OnFailure | str = "run") -> None:
        """Sets the callback. It runs however the jobs have ended, unless `on_failure` is "fail" or
        "skip".
        """
        if self._then is not None:
            raise InvalidInput(field="then", why=f"{self.name!r} has a callback already")
        self._then = (job, on_failure)

    def results(self) -> list[Any]:
        """Stands for the results of the completed jobs, as an argument of the callback."""
        return cast(list[Any], Placeholder(How.NODES, (self,)))

    def built(self) -> Flow:
        """The flow of these jobs and the callback. Raises InvalidInput if it would be empty."""
        if self._then is not None:
            job, how = self._then
            self._flow.add(self._filled(job), after=self._jobs, on_failure=how)
            self._then = None
        return self._flow.built()

    def _filled(self, job: Any) -> Any:
        """The callback, with the jobs of this batch in the place of the batch."""
        if isinstance(job, Planned):
            return Planned(self._filled(job.job), job.options)
        if not isinstance(job, Pending):
            return job
        places = {
            name: Placeholder(How.NODES, self._jobs) if place.nodes == (self,) else place
            for name, place in job.places.items()
        }
        return Pending(job.kind, job.known, places)
