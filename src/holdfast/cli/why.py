"""Output of `holdfast job ID --explain`."""

from __future__ import annotations

import click

from holdfast.cli.scoping import scope_data
from holdfast.cli.show import Plain, ago, clean, instant_text, span
from holdfast.core.plural import many
from holdfast.core.scope import Blocker
from holdfast.explain import Explained


def explained_data(found: Explained) -> Plain:
    return {
        "tenant": found.tenant,
        "id": found.id,
        "state": found.state.value,
        "gates": [_blocker_data(blocker) for blocker in found.gates],
        "ahead": found.ahead,
        "tenants": found.tenants,
        "not_before": instant_text(found.not_before),
        "estimate_s": found.estimate_s,
    }


def _blocker_data(blocker: Blocker) -> Plain:
    return {
        "kind": blocker.kind.value,
        "words": blocker.words,
        "scope": None if blocker.scope is None else scope_data(blocker.scope),
        "until": instant_text(blocker.until),
        "holders": list(blocker.holders),
    }


def print_explained(found: Explained) -> None:
    """One line for each blocker, then the position in the queue and the estimate."""
    click.echo(f"{clean(found.id)} is {found.state.value}")
    if found.free:
        click.echo("nothing blocks it: it can be claimed now")
    for blocker in found.gates:
        until = "" if blocker.until is None else f" (until {instant_text(blocker.until)})"
        click.echo(f"  {blocker.kind.value:<10} {clean(blocker.words)}{until}")
        if blocker.holders:
            click.echo(f"  {'':<10} held by {clean(', '.join(blocker.holders))}")
    if found.ahead is not None:
        turns = f", {many(found.tenants, 'tenant')} in turn" if found.tenants else ""
        click.echo(f"ahead of it in its queue: {many(found.ahead, 'ready job')}{turns}")
    if found.not_before is not None:
        click.echo(f"not before   {instant_text(found.not_before)} ({ago(found.not_before)})")
    if found.estimate_s is not None:
        click.echo(f"estimate     about {span(found.estimate_s)}, at the recent rate of its queue")
