"""`holdfast workers`: list the workers that are present, and the upkeep leader."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast import operate
from holdfast.cli.common import Settings, common_options, json_option, opened, work
from holdfast.cli.show import instant_text, print_json, print_table
from holdfast.store import Hold

_FIELDS = ("pid", "tenants", "queues", "types", "concurrency", "running", "held")
_ADAPTS = ("concurrency_min", "concurrency_max", "why")


@click.command("workers")
@json_option
@common_options
@click.pass_obj
def command(settings: Settings, as_json: bool) -> None:
    """Show the workers that are present, and the state of the upkeep."""
    holds, leader = work(_present(settings))
    workers = [_worker(hold) for hold in holds]
    upkeep = None if leader is None else _upkeep(leader)
    if as_json:
        print_json({"workers": workers, "upkeep": upkeep})
        return
    if workers:
        heads = ("name", "#pid", "tenants", "queues", "#running", "#held", "adapts")
        print_table(heads, [_row(one) for one in workers], keep=("name",))
    else:
        click.echo("no worker is present")
    click.echo(_words(upkeep))


async def _present(settings: Settings) -> tuple[list[Hold], Hold | None]:
    async with opened(settings) as store:
        return await operate.workers(store), await operate.upkeep_leader(store)


def _worker(hold: Hold) -> dict[str, Any]:
    note = _note(hold)
    facts = {name: note.get(name) for name in (*_FIELDS, *_ADAPTS)}
    return {"name": hold.owner, **facts, "present_until": instant_text(hold.until)}


def _upkeep(hold: Hold) -> dict[str, Any]:
    note = _note(hold)
    facts = {name: note.get(name) for name in ("rescue_lag_s", "rescued", "pruned", "corrected")}
    return {"leader": hold.owner, **facts, "leads_until": instant_text(hold.until)}


def _note(hold: Hold) -> dict[str, Any]:
    """The holder's note; empty if another version wrote it in an unknown format."""
    try:
        note = json.loads(hold.note)
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _row(worker: dict[str, Any]) -> tuple[object, ...]:
    running = f"{worker['running']}/{worker['concurrency']}"
    tenants, queues = _names(worker["tenants"]), _names(worker["queues"])
    least, most = worker["concurrency_min"], worker["concurrency_max"]
    adapts = "" if least in (None, most) else f"{least} to {most}: {worker['why']}"
    return worker["name"], worker["pid"], tenants, queues, running, worker["held"], adapts


def _names(names: list[str] | None) -> str:
    return ", ".join(names) if names else "*"


def _words(upkeep: dict[str, Any] | None) -> str:
    if upkeep is None:
        return "upkeep: no leader"
    lag = upkeep["rescue_lag_s"] or 0.0
    done = f"{upkeep['rescued'] or 0} rescued, {upkeep['pruned'] or 0} pruned"
    return f"upkeep: led by {upkeep['leader']}, lag {lag:.1f} s, {done}"
