"""`holdfast flows`: list, show, cancel and retry flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from holdfast import operate
from holdfast.cli.common import EXIT_ERROR, Settings, common_options, json_option, opened, work
from holdfast.cli.show import Plain, clean, instant_text, print_json, print_table
from holdfast.cli.signing import signed
from holdfast.core.bounds import FLOWS_PAGE_MAX, NODES_READ, TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.job import By
from holdfast.workflow.retry import RetryMode
from holdfast.workflow.run import FlowNode, FlowPage, FlowRun, FlowState, FlowStatus

_LINE_MAX = 200

tenant_option = click.option("--tenant", required=True, help="The tenant that owns the flows.")


@click.group("flows")
def command() -> None:
    """List, show, cancel and retry flows: jobs that depend on jobs."""


@command.command("list")
@tenant_option
@click.option("--name", help="Only flows of this name.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in FlowState]),
    help="Only flows in this state. May be repeated.",
)
@click.option("--after", type=int, metavar="CURSOR", help="Continue after this cursor.")
@click.option(
    "--limit",
    type=click.IntRange(1, FLOWS_PAGE_MAX),
    default=50,
    show_default=True,
    help="Maximum entries on the page.",
)
@json_option
@common_options
@click.pass_obj
def list_flows(
    settings: Settings,
    /,
    *,
    tenant: str,
    name: str | None,
    states: tuple[str, ...],
    after: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List flows, newest first."""
    page = work(_list(settings, tenant, name, states, after=after, limit=limit))
    if as_json:
        print_json({"flows": [_data(flow) for flow in page.flows], "after": page.cursor})
        return
    if not page.flows:
        click.echo("no flows")
    else:
        heads = ("flow", "name", "state", "#nodes", "#left", "#failed", "created")
        print_table(heads, [_row(flow) for flow in page.flows], keep=("flow",))
    if page.cursor is not None:
        click.echo(f"\nmore: the same command with --after {page.cursor}")


@command.command("show")
@click.argument("id")
@tenant_option
@click.option("--after", type=int, metavar="NUMBER", help="Nodes after this number.")
@click.option(
    "--limit",
    type=click.IntRange(1, NODES_READ),
    default=50,
    show_default=True,
    help="Maximum nodes.",
)
@json_option
@common_options
@click.pass_obj
def show(
    settings: Settings, /, *, id: str, tenant: str, after: int | None, limit: int, as_json: bool
) -> None:
    """Show a flow and its nodes."""
    flow, nodes = work(_show(settings, tenant, id, after, limit))
    more = nodes[-1].number if len(nodes) == limit else None
    if as_json:
        print_json({**_data(flow), "nodes": [_node_data(node) for node in nodes], "after": more})
        return
    click.echo(f"{flow.id} {clean(flow.name)}: {_words(flow)}")
    if flow.origin is not None:
        click.echo(f"retries {flow.origin}, {flow.taken} nodes taken over")
    if flow.error is not None:
        click.echo(clean(flow.error)[:_LINE_MAX])
    rows = [
        (node.number, node.id, node.type or "", _state_of(node), _last_line(node.error))
        for node in nodes
    ]
    print_table(("#", "id", "type", "state", "error"), rows, keep=("id",))
    if more is not None:
        click.echo(f"\nmore: the same command with --after {more}")


@command.command("cancel")
@click.argument("id")
@tenant_option
@signed
@json_option
@common_options
@click.pass_context
def cancel(ctx: click.Context, /, *, id: str, tenant: str, by: By, as_json: bool) -> None:
    """Cancel every node of a flow that has not ended.

    The completed nodes are undone, and the last jobs of the flow run.
    """
    settings: Settings = ctx.obj
    done = work(_cancel(settings, tenant, id, by))
    if as_json:
        print_json({"id": id, "canceled": done})
    elif done:
        click.echo(f"canceled {id}")
    else:
        click.echo(f"all nodes of {id} had ended", err=True)
    if not done:
        ctx.exit(EXIT_ERROR)


@command.command("retry")
@click.argument("id")
@tenant_option
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in RetryMode]),
    default=RetryMode.FAILED_AND_DOWNSTREAM.value,
    show_default=True,
    help="Which nodes to make again.",
)
@json_option
@common_options
@click.pass_obj
def retry(settings: Settings, /, *, id: str, tenant: str, mode: str, as_json: bool) -> None:
    """Start a new run of a flow that has ended. Completed nodes are taken over."""
    again = work(_retry(settings, tenant, id, mode))
    if as_json:
        print_json({"id": id, "retried_as": again.id, "created": again.created})
    else:
        click.echo(f"{id} is retried as {again.id}{'' if again.created else ' already'}")


# -- calls -----------------------------------------------------------------------------------------


async def _list(
    settings: Settings,
    tenant: str,
    name: str | None,
    states: Iterable[str],
    *,
    after: int | None,
    limit: int,
) -> FlowPage:
    check_name("tenant", tenant, TENANT_MAX)
    async with opened(settings) as store:
        calls = operate.flows(store, tenant)
        return await calls.flows(name=name, states=states, after=after, limit=limit)


async def _show(
    settings: Settings, tenant: str, id: str, after: int | None, limit: int
) -> tuple[FlowStatus, Sequence[FlowNode]]:
    check_name("tenant", tenant, TENANT_MAX)
    async with opened(settings) as store:
        run = operate.flows(store, tenant).flow(id)
        return await run.status(), await run.nodes(after=after, limit=limit)


async def _cancel(settings: Settings, tenant: str, id: str, by: By) -> bool:
    check_name("tenant", tenant, TENANT_MAX)
    async with opened(settings) as store:
        return await operate.flows(store, tenant).flow(id).cancel(by=by)


async def _retry(settings: Settings, tenant: str, id: str, mode: str) -> FlowRun:
    check_name("tenant", tenant, TENANT_MAX)
    async with opened(settings) as store:
        return await operate.flows(store, tenant).flow(id).retry(mode)


# -- output ----------------------------------------------------------------------------------------


def _data(flow: FlowStatus) -> Plain:
    return {
        "id": flow.id,
        "name": flow.name,
        "state": flow.state.value,
        "total": flow.total,
        "left": flow.left,
        "failed": flow.failed,
        "taken": flow.taken,
        "created_at": instant_text(flow.created_at),
        "finished_at": instant_text(flow.finished_at),
        "error": flow.error,
        "origin": flow.origin,
    }


def _node_data(node: FlowNode) -> Plain:
    return {
        "number": node.number,
        "id": node.id,
        "type": node.type,
        "state": None if node.state is None else node.state.value,
        "attempt": node.attempt,
        "error": node.error,
        "taken": node.taken,
    }


def _row(flow: FlowStatus) -> tuple[object, ...]:
    return (
        flow.id,
        clean(flow.name),
        flow.state.value,
        flow.total,
        flow.left or ".",
        flow.failed or ".",
        instant_text(flow.created_at) or "",
    )


def _last_line(error: str | None) -> str:
    lines = (error or "").strip().splitlines()
    return clean(lines[-1])[:_LINE_MAX] if lines else ""


def _state_of(node: FlowNode) -> str:
    state = "gone" if node.state is None else node.state.value
    return f"{state} (taken over)" if node.taken else state


def _words(flow: FlowStatus) -> str:
    words = f"{flow.state.value}, {flow.left} of {flow.total} nodes left"
    return f"{words}, {flow.failed} failed" if flow.failed else words
