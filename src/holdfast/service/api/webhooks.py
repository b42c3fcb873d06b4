"""Webhooks: list, read, set, pause, resume, rotate, test, delete.

A webhook takes the events of the whole tenant to the outside, so a token for some queues or types
has none. Secrets are told once, by the call that makes them.
"""

from __future__ import annotations

from msgspec import UNSET

from holdfast.core.clock import moment
from holdfast.fields import given
from holdfast.service.api.webhook_rules import over_all
from holdfast.service.call import Call
from holdfast.service.endpoint import Status
from holdfast.service.schedule_wire import EditOut, PausedOut
from holdfast.service.scope_wire import PauseIn
from holdfast.service.webhook_wire import (
    FailingOut,
    ResumeIn,
    RotateIn,
    WebhookIn,
    WebhookOut,
    WebhooksOut,
)
from holdfast.service.wire import DeletedOut, EnqueuedOut
from holdfast.webhooks import stored
from holdfast.webhooks.handle import KEEP_S, WebhookHandle
from holdfast.webhooks.stored import WebhookState


async def every(call: Call) -> WebhooksOut:
    """The webhooks of the tenant, by name, without their secrets."""
    over_all(call)
    return WebhooksOut(webhooks=[*map(_out, await call.view.webhooks())])


async def get(call: Call) -> WebhookOut:
    """A webhook with its position, its failures, its deliveries and its newest changes."""
    status = await _handle(call).status()
    found = _out(status.state)
    if status.position is not None:
        found.cursor, found.gaps = status.position.cursor, status.position.gaps
        if status.position.gap_at is not None:
            found.gap_at = moment(status.position.gap_at)
    if (health := status.health) is not None:
        found.failing = FailingOut(
            since=moment(health.since),
            failures=health.failures,
            at=moment(health.at),
            error=health.error,
        )
    found.deliveries = {state.value: number for state, number in status.deliveries.items()}
    if status.state.definition is not None:
        found.made_by = status.state.definition.made_by
        found.edits = [
            EditOut(at=moment(one.at), author=one.author, what=one.what, reason=one.reason)
            for one in status.state.definition.edits
        ]
    return found


async def put(call: Call) -> Status:
    """Makes or changes a webhook; what is not named stays. 201 and its secret if it is new. With
    `expect`, fails unless that is the current version.
    """
    body: WebhookIn = call.body
    expect = None if body.expect is UNSET else body.expect
    changes = given(body, "expect")
    handle = _handle(call)
    new = await stored.state(call.service.store, call.tenant, handle.name) is None
    state = await handle.set(expect=expect, by=call.by, **changes)
    return Status(201 if new else 200, _out(state))


async def delete(call: Call) -> DeletedOut:
    """Deletes a webhook, its secret and the deliveries that wait."""
    await _handle(call).delete(by=call.by)
    return DeletedOut(deleted=True)


async def pause(call: Call) -> WebhookOut:
    """Stops its deliveries. Events wait in the log until it is resumed."""
    body: PauseIn = call.body
    return _out(await _handle(call).pause(body.reason, call.by.author))


async def resume(call: Call) -> WebhookOut:
    """Ends a pause, and delivers what happened meanwhile unless that is skipped."""
    body: ResumeIn = call.body or ResumeIn()
    handle = _handle(call)
    return _out(await handle.resume(call.by.author, call.by.reason, skip=body.skip))


async def rotate(call: Call) -> WebhookOut:
    """Replaces the secret. The answer has the new one; the one before signs for a while too."""
    body: RotateIn = call.body or RotateIn()
    keep = KEEP_S if body.keep is UNSET else body.keep
    secret = None if body.secret is UNSET else body.secret
    return _out(await _handle(call).rotate(keep=keep, secret=secret, by=call.by))


async def test(call: Call) -> Status:
    """Sends an event of the kind `ping`. The answer names the job of its delivery."""
    answer = await _handle(call).test(by=call.by)
    return Status(201, EnqueuedOut(id=answer.id, created=answer.created, type_known=True))


def _handle(call: Call) -> WebhookHandle:
    over_all(call)
    return call.view.webhook(call.part("name"))


def _out(state: WebhookState) -> WebhookOut:
    one = state.definition
    if one is None:
        return WebhookOut(name=state.name, version=state.version, fault=state.fault)
    paused = one.paused
    return WebhookOut(
        name=state.name,
        version=state.version,
        url=one.url,
        kinds=one.kinds,
        types=one.types,
        queues=one.queues,
        include=one.include,
        headers=one.headers,
        attempts=one.attempts,
        pause_after=one.pause_after_us / 1e6,
        made_at=moment(one.made_at),
        rotated_at=None if one.rotated_at is None else moment(one.rotated_at),
        paused=None
        if paused is None
        else PausedOut(reason=paused.reason, author=paused.author, at=moment(paused.at)),
        secret=state.secret,
    )
