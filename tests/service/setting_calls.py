"""Schedules and webhooks in calls, for the tests that call every route."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.clock import SECOND
from holdfast.core.cron import Timing
from holdfast.core.schedule import Definition
from holdfast.core.schedule import encode as encode_schedule
from holdfast.core.schedule import name_of as schedule_name
from holdfast.core.spec import JobSpec
from holdfast.store import Put
from holdfast.webhooks.definition import (
    PREFIXES,
    Health,
    Key,
    Position,
    Secrets,
    Webhook,
    encode,
    name_of,
    under,
)


def webhook(p: Any) -> dict[str, Any]:
    more = p.maybe(types=["mail"], queues=[p.queue()], headers={"x-mark": "x"}, expect=1)
    return {"url": "https://receiver.example/hook", **more}


def put_webhook(p: Any) -> Put:
    hook = Webhook(id=p.mark, url="https://r.example/", types=(p.mark,), made_by="x", made_at=1)
    values = {
        PREFIXES[0]: hook,
        PREFIXES[1]: Secrets((Key(f"whsec_{'x' * 20}"),)),
        PREFIXES[2]: Position(0),
        PREFIXES[3]: Health(1, 1, 1, p.mark),
    }
    prefix = p.of(PREFIXES)
    name = name_of(p.tenant(), p.of([p.queue(), p.group()]), prefix)
    return Put(name, p.of([encode(values[prefix]), None]), p.of([0, 0, 1, 2]))


def under_webhooks(p: Any) -> str:
    prefix = p.of(PREFIXES)
    return str(p.of([under(p.tenant(), prefix), prefix]))


def put_schedule(p: Any) -> Put:
    body = msgspec.json.encode(p.mark)
    job = JobSpec(type="mail", codec="json", version=1, body=body, queue=p.queue())
    value = Definition(revision=1, timing=Timing(every_us=36_000 * SECOND), job=job)
    name = schedule_name(p.tenant(), p.of([p.queue(), p.group()]))
    return Put(name, p.of([encode_schedule(value), None]), p.of([0, 0, 1, 2]))


def put_setting(p: Any) -> Put:
    """A schedule, or a part of a webhook."""
    return put_webhook(p) if p.of([0, 1]) else put_schedule(p)


WEBHOOK_BODIES: dict[str, Any] = {
    "set_webhook": webhook,
    "pause_webhook": lambda p: {"reason": p.mark},
    "resume_webhook": lambda p: p.maybe(skip=True),
    "rotate_webhook": lambda p: p.maybe(keep=0),
}
