"""The `holdfast` command: global options, commands, and the mapping of errors to exit codes."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import click

from holdfast.cli import (
    cancel,
    check_payloads,
    completion,
    dead,
    demo,
    doctor,
    encryption,
    enqueue,
    events,
    flows,
    groups,
    job,
    jobs,
    keys,
    limit,
    load,
    migrate,
    pause,
    queues,
    schedules,
    serve,
    signal,
    sources,
    tenants,
    tier,
    webhooks,
    worker,
    workers,
)
from holdfast.cli.common import (
    APP_VARIABLE,
    BLOBS_VARIABLE,
    STORE_VARIABLE,
    Settings,
    Told,
    app_option,
    blobs_option,
    loudness_options,
    store_option,
)
from holdfast.core.errors import HoldfastError, MissingExtra

COMMANDS: tuple[click.Command, ...] = (
    cancel.command,
    check_payloads.command,
    completion.command,
    dead.command,
    demo.command,
    doctor.command,
    encryption.command,
    enqueue.command,
    events.command,
    flows.command,
    groups.command,
    job.command,
    jobs.command,
    keys.command,
    limit.command,
    load.command,
    migrate.command,
    pause.pause,
    pause.resume,
    queues.command,
    schedules.command,
    serve.command,
    signal.command,
    sources.command,
    tenants.command,
    tier.command,
    webhooks.command,
    worker.command,
    workers.command,
)

EPILOG = """\b
Exit codes:
  0  success
  1  Holdfast error: `holdfast: <text> [CODE]` on stderr
  2  invalid command or option
  3  job, schedule, source or webhook not found

\b
The store is --store, else HOLDFAST_STORE, else the app's own (--app, HOLDFAST_APP),
else sqlite:///holdfast.db.
"""


class Guarded(click.Group):
    """Prints a HoldfastError as one line with its code, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise Told(error) from error
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package != "rich":
                raise
            missing = MissingExtra(
                field="cli", what="the command line", package=package, extra="cli"
            )
            raise Told(missing) from error


@click.group(cls=Guarded, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(metadata.version("holdfast"), prog_name="holdfast")
@store_option(envvar=STORE_VARIABLE)
@app_option(envvar=APP_VARIABLE)
@blobs_option(envvar=BLOBS_VARIABLE)
@loudness_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A multi-tenant job queue that never lets go of a job."""
    ctx.ensure_object(Settings)


for one in COMMANDS:
    cli.add_command(one)


def run() -> None:
    """Runs the command line and ends the process with its exit code."""
    cli(prog_name="holdfast")
