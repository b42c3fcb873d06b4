"""`holdfast cancel ID...`: jobs that shall not run, or not go on."""

from __future__ import annotations

import click

from holdfast.cli.common import (
    EXIT_ERROR,
    EXIT_NOT_FOUND,
    Settings,
    common_options,
    opened,
    told,
    work,
)
from holdfast.errors import JobAlreadyTerminal, JobNotFound
from holdfast.job import check_name
from holdfast.limits import BATCH_MAX, TENANT_MAX, within
from holdfast.store import Canceled, Ref


@click.command("cancel")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--tenant", required=True, help="The tenant the jobs belong to.")
@common_options
@click.pass_context
def command(ctx: click.Context, ids: tuple[str, ...], tenant: str) -> None:
    """Cancel jobs. A running handler is told; nothing changes the job afterwards."""
    check_name("tenant", tenant, TENANT_MAX)
    within("ids", len(ids), BATCH_MAX)
    settings: Settings = ctx.obj
    answers = work(_cancel(settings, [Ref(tenant, id) for id in ids]))
    worst = max(_told(settings, answer) for answer in answers)
    if worst:
        ctx.exit(worst)


async def _cancel(settings: Settings, refs: list[Ref]) -> list[Canceled]:
    async with opened(settings) as store:
        return await store.cancel(refs)


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
