"""`holdfast worker`: run jobs until stopped, in one or several processes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import click

from holdfast.app import App
from holdfast.cli.common import (
    BLOBS_VARIABLE,
    STORE_VARIABLE,
    Settings,
    chosen_app,
    common_options,
    log_to_stderr,
    work,
)
from holdfast.cli.values import length, names
from holdfast.core.bounds import CONCURRENCY_MAX, PROCESSES_MAX
from holdfast.core.errors import ConfigError
from holdfast.core.job import Failed
from holdfast.events import Confirmed

logger = logging.getLogger("holdfast")


@dataclass(frozen=True)
class _Wish:
    """The options as given; None means the app's own setting."""

    tenants: tuple[str, ...] | None
    queues: tuple[str, ...] | None
    concurrency: int | None
    concurrency_min: int | None
    memory_max_mb: int | None
    processes: int
    lease: float | None
    drain: float | None
    name: str | None
    no_upkeep: bool

    def settings(self) -> dict[str, Any]:
        """The settings that override the app's configuration."""
        given = {
            "concurrency": self.concurrency,
            "concurrency_min": self.concurrency_min,
            "memory_max_mb": self.memory_max_mb,
            "lease_s": self.lease,
            "drain_s": self.drain,
        }
        found = {name: value for name, value in given.items() if value is not None}
        return {**found, "upkeep": False} if self.no_upkeep else found

    def arguments(self) -> list[str]:
        """The options as command-line arguments for a child process."""
        said = {
            "--tenants": None if self.tenants is None else ",".join(self.tenants) or "*",
            "--queues": None if self.queues is None else ",".join(self.queues) or "*",
            "--concurrency": self.concurrency,
            "--concurrency-min": self.concurrency_min,
            "--memory-max-mb": self.memory_max_mb,
            "--lease": self.lease,
            "--drain": self.drain,
            "--name": self.name,
        }
        found = [f"{name}={value}" for name, value in said.items() if value is not None]
        return [*found, "--no-upkeep"] if self.no_upkeep else found


@click.command("worker")
@click.option(
    "--tenants",
    type=names,
    metavar="A,B",
    help="Run jobs of these tenants only. Default: '*', all.",
)
@click.option(
    "--queues",
    type=names,
    metavar="A,B",
    help="Run jobs of these queues; '*' is all. Default: the queues of the job types.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, CONCURRENCY_MAX),
    help="Maximum running jobs per process.",
)
@click.option(
    "--concurrency-min",
    type=click.IntRange(1),
    metavar="N",
    help="Adapt the concurrency between this and --concurrency.",
)
@click.option(
    "--memory-max-mb",
    type=click.IntRange(1),
    metavar="MB",
    help="Reduce the concurrency above this memory use.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Number of worker processes. A process that dies is restarted.",
)
@click.option(
    "--lease",
    type=length,
    metavar="LENGTH",
    help="Lease time: jobs of a dead worker can run again after it.",
)
@click.option(
    "--drain",
    type=length,
    metavar="LENGTH",
    help="Time that running jobs have to finish after a stop signal.",
)
@click.option("--name", help="Name of the worker. Default: a generated, unique name.")
@click.option(
    "--no-upkeep", is_flag=True, help="Do not rescue and prune jobs; other workers do it."
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run the jobs of an App until SIGTERM or SIGINT.

    The first signal drains: running jobs may finish. A second signal stops at once.
    """
    from holdfast.worker import supervise

    wish = _Wish(**given)
    settings: Settings = ctx.obj
    app = chosen_app(settings)
    log_to_stderr(settings, child=supervise.CHILD in os.environ)
    supervise.follow_parent()
    if wish.processes == 1:
        work(_work(app, wish))
    else:
        ctx.exit(_supervise(settings, app, wish))


# -- one process -----------------------------------------------------------------------------------


async def _work(app: App, wish: _Wish) -> None:
    from holdfast.worker.signals import draining

    worker = _worker(app, wish)
    app.subscribe(_log)
    with draining(worker.stop):
        await worker.run()


def _worker(app: App, wish: _Wish) -> Any:
    from holdfast.worker.supervise import CHILD
    from holdfast.worker.worker import Worker

    name = wish.name
    if name is not None and CHILD in os.environ:
        name = f"{name}-{os.environ[CHILD]}"
    # Names given as none ('*') stand for all of them.
    tenants = wish.tenants or None
    queues = ("*",) if wish.queues == () else wish.queues
    worker = Worker(app, tenants=tenants, queues=queues, name=name, **wish.settings())
    if wish.queues is None and not app.registry.queues():
        raise ConfigError(field="app", why="the app has no job types, so there is nothing to run")
    return worker


def _log(fact: Confirmed) -> None:
    """Logs successful outcomes with --verbose. The library itself logs failures."""
    job = fact.job
    if not isinstance(fact.outcome, Failed):
        words = "job %s (%s, tenant %s): %s"
        logger.debug(words, job.id, job.type, job.tenant, fact.state.value)


# -- several processes -----------------------------------------------------------------------------


def _supervise(settings: Settings, app: App, wish: _Wish) -> int:
    """Checks the options, then starts the children and restarts those that die."""
    from holdfast.worker.supervise import Supervisor, this_command

    if not app.store.capabilities.shared:
        raise ConfigError(field="processes", why="several processes cannot share this store")
    worker = _worker(app, wish)
    loudness = {-1: ["-q"], 0: []}.get(settings.loudness, ["-v"])
    arguments = [*loudness, "worker", f"--app={settings.app}", *wish.arguments()]
    if settings.store is not None:
        # By the environment, not as an argument: a URL may hold a password, and `ps` shows those.
        os.environ[STORE_VARIABLE] = settings.store
    if settings.blobs is not None:
        os.environ[BLOBS_VARIABLE] = settings.blobs

    def started(number: int, pid: int) -> None:
        logger.info("worker process %d started (pid %d)", number, pid)

    supervisor = Supervisor(
        this_command(arguments), wish.processes, worker.config.drain_s, on_start=started
    )
    return supervisor.run()
