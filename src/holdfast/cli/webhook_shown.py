"""What the commands of webhooks share: a webhook as plain data, and what a change prints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from holdfast.cli.common import Settings, chosen_tenant, opened, tenant_option
from holdfast.cli.show import Plain, instant_text, print_json
from holdfast.webhooks.handle import WebhookHandle
from holdfast.webhooks.stored import WebhookState

T = TypeVar("T")
of_tenant = tenant_option("The tenant of the webhook.")


def data_of(state: WebhookState) -> Plain:
    """A webhook as plain data for JSON. A secret is in it only after the call that made it."""
    one, paused = state.definition, state.paused
    head: Plain = {
        "tenant": state.tenant,
        "name": state.name,
        "version": state.version,
        "fault": state.fault,
        "paused": None if paused is None else f"by {paused.author}: {paused.reason}",
    }
    if state.secret is not None:
        head["secret"] = state.secret
    if one is None:
        return head
    return {
        **head,
        "url": one.url,
        "kinds": [kind.value for kind in one.kinds],
        "types": list(one.types),
        "queues": list(one.queues),
        "include": [part.value for part in one.include],
        "headers": list(one.headers),
        "attempts": one.attempts,
        "pause_after": one.pause_after_us / 1e6,
        "made_by": one.made_by,
        "made_at": instant_text(one.made_at),
        "rotated_at": None if one.rotated_at is None else instant_text(one.rotated_at),
        "changes": [
            {"at": instant_text(e.at), "author": e.author, "what": e.what, "reason": e.reason}
            for e in one.edits
        ],
    }


async def acting(
    settings: Settings,
    name: str,
    tenant: str | None,
    act: Callable[[WebhookHandle], Awaitable[T]],
) -> T:
    async with opened(settings) as store:
        return await act(WebhookHandle(store, chosen_tenant(settings, tenant), name))


def tell(state: WebhookState, done: str, as_json: bool) -> None:
    if as_json:
        print_json(data_of(state))
        return
    click.echo(f"{done} webhook {state.name!r} of {state.tenant!r}")
    if state.secret is not None:
        click.echo(f"secret: {state.secret}")
        click.echo("It is not shown again.", err=True)
