"""`holdfast flows`: start, list, show, cancel and retry flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO

import click
import msgspec

from holdfast import operate
from holdfast.cli.common import (
    EXIT_ERROR,
    Settings,
    chosen_app,
    chosen_tenant,
    common_options,
    json_option,
    opened,
    tell,
    tenant_option,
    work,
)
from holdfast.cli.show import Plain, clean, instant_text, print_json, print_table
from holdfast.cli.signing import signed
from holdfast.core.bounds import FLOWS_PAGE_MAX, NODES_READ
from holdfast.core.errors import InvalidInput
from holdfast.core.job import By
from holdfast.fields import unfit
from holdfast.types import Types, foreign_type
from holdfast.workflow.retry import RetryMode
from holdfast.workflow.run import FlowNode, FlowPage, FlowRun, FlowState, FlowStatus
from holdfast.workflow.written import FlowIn, flow_from

_LINE_MAX = 200
SHOWN_MAX = 5
"""Names in one note."""

FILE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a file with a flow: 10,000 nodes with arguments of 6 KiB each."""

_tenant = tenant_option("The tenant that owns the flows.")


@click.group("flows")
def command() -> None:
    """Start, list, show, cancel and retry flows: jobs that depend on jobs."""


@command.command("start")
@click.argument("file", type=click.File("rb"), metavar="FILE|-")
@_tenant
@click.option("--key", help="The key of the flow, if the file has none: started once.")
@json_option
@common_options
@click.pass_obj
def start(
    settings: Settings, /, *, file: IO[bytes], tenant: str | None, key: str | None, as_json: bool
) -> None:
    """Start the flow that FILE describes as JSON, or stdin (-).

    It has the form of the body of POST /v1/flows. With --app the job types check the arguments.
    Without it, any arguments are accepted, and the queues and rules are those that an app
    published for the types when it opened this store.
    """
    told = _read(file)
    run, unknown = work(_start(settings, chosen_tenant(settings, tenant), told, key))
    if as_json:
        print_json({"id": run.id, "created": run.created, "unknown_types": unknown})
        return
    if unknown:
        named = ", ".join(repr(name) for name in unknown[:SHOWN_MAX])
        tell(settings, f"note: no app has published {named}; these jobs have default rules")
    if not run.created:
        tell(settings, "this flow was started before:")
    click.echo(run.id)


def _read(file: IO[bytes]) -> FlowIn:
    body = file.read(FILE_BYTES_MAX + 1)
    if len(body) > FILE_BYTES_MAX:
        raise InvalidInput(field="file", why=f"is longer than {FILE_BYTES_MAX} bytes")
    try:
        body.decode()
        return msgspec.json.decode(body, type=FlowIn)
    except msgspec.ValidationError as error:
        raise unfit(error, FlowIn) from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(field="file", why=f"is not JSON: {error}") from None


@command.command("list")
@_tenant
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
    tenant: str | None,
    name: str | None,
    states: tuple[str, ...],
    after: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List flows, newest first."""
    page = work(
        _list(settings, chosen_tenant(settings, tenant), name, states, after=after, limit=limit)
    )
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
@_tenant
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
    settings: Settings,
    /,
    *,
    id: str,
    tenant: str | None,
    after: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show a flow and its nodes."""
    flow, nodes = work(_show(settings, chosen_tenant(settings, tenant), id, after, limit))
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
@_tenant
@signed
@json_option
@common_options
@click.pass_context
def cancel(ctx: click.Context, /, *, id: str, tenant: str | None, by: By, as_json: bool) -> None:
    """Cancel every node of a flow that has not ended.

    The completed nodes are undone, and the last jobs of the flow run.
    """
    settings: Settings = ctx.obj
    done = work(_cancel(settings, chosen_tenant(settings, tenant), id, by))
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
@_tenant
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
def retry(settings: Settings, /, *, id: str, tenant: str | None, mode: str, as_json: bool) -> None:
    """Start a new run of a flow that has ended. Completed nodes are taken over."""
    again = work(_retry(settings, chosen_tenant(settings, tenant), id, mode))
    if as_json:
        print_json({"id": id, "retried_as": again.id, "created": again.created})
    else:
        click.echo(f"{id} is retried as {again.id}{'' if again.created else ' already'}")


# -- calls -----------------------------------------------------------------------------------------


async def _start(
    settings: Settings, tenant: str, told: FlowIn, key: str | None
) -> tuple[FlowRun, list[str]]:
    """The run, and the job types that nobody has published."""
    if settings.app is not None:
        app = chosen_app(settings)
        flow = flow_from(told, app.registry.called, key=key, payload_max=app.config.payload_max)
        await app.store.open()
        try:
            return await app.tenant(tenant).start(flow), []
        finally:
            await app.store.close()
    async with opened(settings, create=True) as store:
        names = {job.type for job in told.jobs()}
        known = await Types(store).known(names)
        flow = flow_from(told, lambda name: known.get(name) or foreign_type(name), key=key)
        return await operate.flows(store, tenant).start(flow), sorted(names - known.keys())


async def _list(
    settings: Settings,
    tenant: str,
    name: str | None,
    states: Iterable[str],
    *,
    after: int | None,
    limit: int,
) -> FlowPage:
    async with opened(settings) as store:
        calls = operate.flows(store, tenant)
        return await calls.flows(name=name, states=states, after=after, limit=limit)


async def _show(
    settings: Settings, tenant: str, id: str, after: int | None, limit: int
) -> tuple[FlowStatus, Sequence[FlowNode]]:
    async with opened(settings) as store:
        run = operate.flows(store, tenant).flow(id)
        return await run.status(), await run.nodes(after=after, limit=limit)


async def _cancel(settings: Settings, tenant: str, id: str, by: By) -> bool:
    async with opened(settings) as store:
        return await operate.flows(store, tenant).flow(id).cancel(by=by)


async def _retry(settings: Settings, tenant: str, id: str, mode: str) -> FlowRun:
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
