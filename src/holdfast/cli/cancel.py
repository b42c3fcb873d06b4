"""`holdfast cancel`: cancel jobs by id, or every job of a group."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.cli.common import (
    EXIT_ERROR,
    EXIT_NOT_FOUND,
    Settings,
    chosen_tenant,
    common_options,
    json_option,
    opened,
    tenant_option,
    told,
    work,
)
from holdfast.cli.show import print_json, progress
from holdfast.cli.signing import signed
from holdfast.core.bounds import BATCH_MAX, within
from holdfast.core.errors import JobAlreadyTerminal, JobNotFound
from holdfast.core.flow import is_flow_id
from holdfast.core.job import By
from holdfast.core.plural import many
from holdfast.store import Canceled, Ref, Store


@click.command("cancel")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@tenant_option("The tenant that owns the jobs.")
@click.option("--group", help="Cancel every job of this group.")
@signed
@json_option
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    ids: tuple[str, ...],
    tenant: str | None,
    group: str | None,
    by: By,
    as_json: bool,
) -> None:
    """Cancel jobs by ID, or every job of a group.

    A running handler is told to stop. A canceled job does not change any more.
    """
    within("ids", len(ids), BATCH_MAX)
    settings: Settings = ctx.obj
    tenant = chosen_tenant(settings, tenant)
    if (group is None) == (not ids):
        raise click.UsageError("no jobs named: give IDs or --group")
    if group is not None:
        done = work(_cancel_group(settings, tenant, group, by))
        if as_json:
            print_json({"canceled": done})
        else:
            click.echo(f"{many(done, 'job')} canceled")
        return
    if as_json:
        raise click.UsageError("--json works only with --group")
    answers = work(_cancel(settings, [Ref(tenant, id) for id in ids], by))
    worst = max(_told(settings, answer) for answer in answers)
    if worst:
        ctx.exit(worst)


async def _cancel(settings: Settings, refs: list[Ref], by: By) -> list[Canceled]:
    async with opened(settings) as store:
        flows = [ref for ref in refs if is_flow_id(ref.id)]
        jobs = [ref for ref in refs if not is_flow_id(ref.id)]
        answers = [await _cancel_flow(store, ref, by) for ref in flows]
        return answers + (await store.cancel(jobs, by=by) if jobs else [])


async def _cancel_flow(store: Store, ref: Ref, by: By) -> Canceled:
    try:
        return Canceled(ref.id, await operate.flows(store, ref.tenant).cancel(ref.id, by=by))
    except JobNotFound as error:
        return Canceled(ref.id, False, error)


async def _cancel_group(settings: Settings, tenant: str, group: str, by: By) -> int:
    done = 0
    async with opened(settings) as store:
        handle = operate.group(store, tenant, group)
        await handle.exists()
        total = await handle.count_alive()
        with progress("canceled", total, quiet=settings.quiet) as so_far:
            async for step in handle.cancel(by=by):
                done = step.done
                so_far(done)
    return done


def _told(settings: Settings, answer: Canceled) -> int:
    """Prints the result for one job and returns the exit code for it."""
    if answer.canceled:
        if not settings.quiet:
            click.echo(f"canceled {answer.id}")
        return 0
    if answer.error is not None:
        click.echo(told(answer.error), err=True)
        return EXIT_NOT_FOUND if isinstance(answer.error, JobNotFound) else EXIT_ERROR
    click.echo(told(JobAlreadyTerminal(id=answer.id)), err=True)
    return EXIT_ERROR
