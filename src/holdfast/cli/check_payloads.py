"""`holdfast check-payloads`: find stored payloads that the code of an app cannot read."""

from __future__ import annotations

from typing import Any

import click

from holdfast import payload_check
from holdfast.app import App
from holdfast.cli.common import (
    EXIT_ERROR,
    Settings,
    chosen_app,
    common_options,
    existing,
    json_option,
    tell,
    work,
)
from holdfast.cli.show import Plain, clean, print_json, print_table, progress
from holdfast.core.bounds import CHECK_SAMPLES_MAX, TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import ConfigError
from holdfast.core.plural import many
from holdfast.payload_check import Group, Options, Report

MIGRATES = ("sqlite:", "postgres:", "postgresql:", "redis", "fdb:")


@click.command("check-payloads")
@click.argument("app_name", required=False, metavar="[MODULE:ATTR]")
@click.option("--tenant", help="Only payloads of this tenant. Default: all tenants.")
@click.option(
    "--samples",
    type=click.IntRange(0, CHECK_SAMPLES_MAX),
    default=3,
    show_default=True,
    help="Ids to show of each group that cannot be read.",
)
@click.option(
    "--limit",
    "jobs_max",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Maximum jobs to read.",
)
@click.option("--payloads", is_flag=True, help="Show payloads and whole errors of the samples.")
@json_option
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Find stored payloads that the code of an app cannot read.

    Decodes the payloads of all jobs that may still run, of dead letters, schedules and flows, as a
    worker of MODULE:ATTR would. Reads only. Run it with new code before you deploy it.

    The exit code is 1 if a payload cannot be read.
    """
    settings: Settings = ctx.obj
    settings.app = given.pop("app_name") or settings.app
    as_json = given.pop("as_json")
    options = Options(**given)
    if options.tenant is not None:
        check_name("tenant", options.tenant, TENANT_MAX)
    report = work(_check(_app(settings), options, settings))
    if as_json:
        print_json(_data(report))
    else:
        _print(report)
        for note in report.notes:
            tell(settings, f"note: {note}")
    if not report.complete:
        tell(
            settings,
            f"there are more than {many(options.jobs_max, 'job')}: raise --limit to read all",
        )
    if report.broken:
        ctx.exit(EXIT_ERROR)


def _app(settings: Settings) -> App:
    """The app on the store that is named. A wrong name is a wrong call, not a finding."""
    try:
        app = chosen_app(settings)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if app.url is not None and app.url.startswith(MIGRATES):
        app.use_store(_unchanged(existing(app.url)))
    return app


def _unchanged(url: str) -> str:
    """The URL with the option that leaves an older schema as it is."""
    return f"{url}{'&' if '?' in url else '?'}migrate=never"


async def _check(app: App, options: Options, settings: Settings) -> Report:
    # The store alone: opening the app would publish its job types.
    await app.store.open()
    try:
        with progress("payloads", None, quiet=settings.quiet) as told:
            return await payload_check.check_payloads(app, options, told)
    finally:
        await app.store.close()


# -- output ----------------------------------------------------------------------------------------


def _data(report: Report) -> Plain:
    return {
        "checked": report.checked,
        "unreadable": report.broken,
        "complete": report.complete,
        "groups": [_group_data(group) for group in report.groups],
        "notes": list(report.notes),
    }


def _group_data(group: Group) -> Plain:
    samples = [
        {"tenant": one.tenant, "id": one.id, **({} if one.text is None else {"text": one.text})}
        for one in group.samples
    ]
    return {
        "source": group.source.value,
        "type": group.type,
        "version": group.version,
        "codec": group.codec,
        "problem": None if group.problem is None else group.problem.value,
        "why": group.why,
        "count": group.count,
        "states": dict(group.states),
        "samples": samples,
    }


def _print(report: Report) -> None:
    if report.groups:
        heads = ("source", "type", "#version", "#count", "result", "why", "states")
        print_table(heads, [_row(group) for group in report.groups], keep=("type",))
    for group in report.groups:
        for one in group.samples:
            told = "" if one.text is None else f": {one.text}"
            problem = "" if group.problem is None else group.problem.value
            click.echo(clean(f"{problem}  {group.type}  {one.tenant}/{one.id}{told}"))
    found = f"{report.broken} of {many(report.checked, 'payload')} cannot be read"
    click.echo(found if report.broken else f"all {many(report.checked, 'payload')} can be read")


def _row(group: Group) -> tuple[object, ...]:
    result = "ok" if group.problem is None else group.problem.value.replace("_", " ")
    states = ", ".join(f"{number} {state}" for state, number in sorted(group.states.items()))
    return group.source.value, group.type, group.version, group.count, result, group.why, states
