"""How the answer to `holdfast job ID --explain` looks."""

from __future__ import annotations

import click

from holdfast.cli.scoping import scope_data
from holdfast.cli.show import Plain, ago, clean, instant_text, span
from holdfast.explain import Explained
from holdfast.plural import many
from holdfast.scope import Gate


def explained_data(found: Explained) -> Plain:
    return {
        "tenant": found.tenant,
        "id": found.id,
        "state": found.state.value,
        "gates": [_gate_data(gate) for gate in found.gates],
        "ahead": found.ahead,
        "tenants": found.tenants,
        "not_before": instant_text(found.not_before),
        "estimate_s": found.estimate_s,
    }


def _gate_data(gate: Gate) -> Plain:
    return {
        "kind": gate.kind.value,
        "words": gate.words,
        "scope": None if gate.scope is None else scope_data(gate.scope),
        "until": instant_text(gate.until),
        "holders": list(gate.holders),
    }


def print_explained(found: Explained) -> None:
    """A line for each gate, then the place in line and the estimate."""
    click.echo(f"{clean(found.id)} is {found.state.value}")
    if found.free:
        click.echo("nothing holds it: it can be claimed at once")
    for gate in found.gates:
        until = "" if gate.until is None else f" (until {instant_text(gate.until)})"
        click.echo(f"  {gate.kind.value:<10} {clean(gate.words)}{until}")
        if gate.holders:
            click.echo(f"  {'':<10} held by {clean(', '.join(gate.holders))}")
    if found.ahead is not None:
        turns = f", {many(found.tenants, 'tenant')} in turn" if found.tenants else ""
        click.echo(f"ahead of it in its line: {many(found.ahead, 'ready job')}{turns}")
    if found.not_before is not None:
        click.echo(f"not before   {instant_text(found.not_before)} ({ago(found.not_before)})")
    if found.estimate_s is not None:
        click.echo(f"estimate     about {span(found.estimate_s)}, if its line goes on as lately")
