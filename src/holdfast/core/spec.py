"""A job that is made later: what a schedule and a flow store of it. Pure."""

from __future__ import annotations

import msgspec

from holdfast.core.bounds import (
    DELAY_S_MAX,
    GROUP_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_MAX,
    TAG_MAX,
    TAGS_MAX,
    TYPE_MAX,
    VERSION_MAX,
)
from holdfast.core.check import check_free, check_name, check_whole
from holdfast.core.clock import SECOND, Micros
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Envelope, NewJob, Rules, check_rules


class JobSpec(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A job, as bytes: a worker without its code can make it. Stored, so fields are only added."""

    type: str
    codec: str
    version: int
    body: bytes
    queue: str
    priority: int = 0
    rules: Rules = Rules()
    group: str | None = None
    tags: tuple[str, ...] = ()
    ttl_us: Micros | None = None

    def job(self, tenant: str, id: str) -> NewJob:
        return NewJob(
            tenant=tenant,
            id=id,
            queue=self.queue,
            envelope=Envelope(self.type, self.codec, self.version, self.body),
            rules=self.rules,
            priority=self.priority,
            group=self.group,
            tags=self.tags,
            ttl_us=self.ttl_us,
        )

    def checked(self) -> JobSpec:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        check_free("type", check_name("type", self.type, TYPE_MAX))
        check_free("queue", check_name("queue", self.queue, QUEUE_MAX))
        check_name("codec", self.codec, TAG_MAX)
        check_whole("version", self.version, 0, VERSION_MAX)
        check_whole("priority", self.priority, PRIORITY_MIN, PRIORITY_MAX)
        check_rules(self.rules)
        if self.group is not None:
            check_name("group", self.group, GROUP_MAX)
        if len(self.tags) > TAGS_MAX:
            raise InvalidInput(field="tags", why=f"has {len(self.tags)}, at most {TAGS_MAX}")
        for tag in self.tags:
            check_name("tags", tag, TAG_MAX)
        if self.ttl_us is not None:
            check_whole("ttl_us", self.ttl_us, 1, int(DELAY_S_MAX) * SECOND)
        return self


def spec_of(job: NewJob) -> JobSpec:
    """What is stored of a job: all but what is set when it is made."""
    sealed = job.envelope
    return JobSpec(
        type=sealed.type,
        codec=sealed.codec,
        version=sealed.version,
        body=sealed.body,
        queue=job.queue,
        priority=job.priority,
        rules=job.rules,
        group=job.group,
        tags=job.tags,
        ttl_us=job.ttl_us,
    )
