"""`holdfast cancel`: jobs that shall not run, or not go on; by id, or a whole group."""

from __future__ import annotations

import click

from holdfast import operate
from holdfast.check import check_name
from holdfast.cli.common import (
    EXIT_ERROR,
    EXIT_NOT_FOUND,
    Settings,
    common_options,
    json_option,
    opened,
    told,
    work,
)
from holdfast.cli.show import print_json, progress
from holdfast.cli.signing import signed
from holdfast.errors import JobAlreadyTerminal, JobNotFound
from holdfast.job import By
from holdfast.limits import BATCH_MAX, TENANT_MAX, within
from holdfast.plural import many
from holdfast.store import Canceled, Ref


@click.command("cancel")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--tenant", required=True, help="The tenant the jobs belong to.")
@click.option("--group", help="All jobs of this group, in steps, instead of IDs.")
@signed
@json_option
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    ids: tuple[str, ...],
    tenant: str,
    group: str | None,
    by: By,
    as_json: bool,
) -> None:
    """Cancel jobs. A running handler is told; nothing changes the job afterwards."""
    check_name("tenant", tenant, TENANT_MAX)
    within("ids", len(ids), BATCH_MAX)
    settings: Settings = ctx.obj
    if (group is None) == (not ids):
        raise click.UsageError("which jobs? Give IDs, or --group")
    if group is not None:
        done = work(_cancel_group(settings, tenant, group, by))
        if as_json:
            print_json({"canceled": done})
        else:
            click.echo(f"{many(done, 'job')} canceled")
        return
    if as_json:
        raise click.UsageError("--json goes with --group")
    answers = work(_cancel(settings, [Ref(tenant, id) for id in ids], by))
    worst = max(_told(settings, answer) for answer in answers)
    if worst:
        ctx.exit(worst)


async def _cancel(settings: Settings, refs: list[Ref], by: By) -> list[Canceled]:
    async with opened(settings) as store:
        return await store.cancel(refs, by=by)


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
    """Says what became of one job; the exit code it asks for."""
    if answer.canceled:
        if not settings.quiet:
            click.echo(f"canceled {answer.id}")
        return 0
    if answer.error is not None:
        click.echo(told(answer.error), err=True)
        return EXIT_NOT_FOUND if isinstance(answer.error, JobNotFound) else EXIT_ERROR
    click.echo(told(JobAlreadyTerminal(id=answer.id)), err=True)
    return EXIT_ERROR
