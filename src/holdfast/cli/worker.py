"""`holdfast worker`: works until told to stop, alone or as several processes."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import click

from holdfast.app import App
from holdfast.cli.common import (
    STORE_VARIABLE,
    Settings,
    chosen_app,
    common_options,
    log_to_stderr,
    work,
)
from holdfast.cli.values import length, names
from holdfast.errors import ConfigError
from holdfast.events import Confirmed
from holdfast.job import Failed
from holdfast.limits import CONCURRENCY_MAX, PROCESSES_MAX

logger = logging.getLogger("holdfast")


@dataclass(frozen=True)
class _Wish:
    """The options as given; None is the app's own setting."""

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
        """What overrides the app's configuration."""
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
        """The options again, as a child is to get them."""
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
@click.option("--tenants", type=names, metavar="A,B", help="Work for these only; '*' is all.")
@click.option(
    "--queues", type=names, metavar="A,B", help="Instead of the job types' own queues; '*' is all."
)
@click.option("--concurrency", type=click.IntRange(1, CONCURRENCY_MAX), help="Jobs at a time.")
@click.option(
    "--concurrency-min", type=click.IntRange(1), metavar="N", help="Adapt between this and that."
)
@click.option("--memory-max-mb", type=click.IntRange(1), metavar="MB", help="Do less above this.")
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Worker processes; one that dies is started again.",
)
@click.option("--lease", type=length, metavar="LENGTH", help="How long a dead worker keeps a job.")
@click.option("--drain", type=length, metavar="LENGTH", help="How long jobs may finish at the end.")
@click.option("--name", help="Of this worker; a fresh one without it.")
@click.option("--no-upkeep", is_flag=True, help="Leave rescue and pruning to other workers.")
@common_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run jobs of an App until SIGTERM or SIGINT, which drain; a second one stops at once."""
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
    if wish.queues is None and not worker.watch.queues:
        raise ConfigError(field="app", why="it has no job types: nothing to work on")
    return worker


def _log(fact: Confirmed) -> None:
    """What went well, for those who asked for more. The library itself tells of failures."""
    job = fact.job
    if not isinstance(fact.outcome, Failed):
        words = "job %s (%s, tenant %s): %s"
        logger.debug(words, job.id, job.type, job.tenant, fact.state.value)


# -- several processes -----------------------------------------------------------------------------


def _supervise(settings: Settings, app: App, wish: _Wish) -> int:
    """Checks what can be checked here, then keeps the children alive."""
    from holdfast.worker.supervise import Supervisor, this_command

    if not app.store.capabilities.shared:
        raise ConfigError(field="processes", why="this store cannot be shared by processes")
    worker = _worker(app, wish)
    loudness = {-1: ["-q"], 0: []}.get(settings.loudness, ["-v"])
    arguments = [*loudness, "worker", f"--app={settings.app}", *wish.arguments()]
    if settings.store is not None:
        # By the environment, not as an argument: a URL may hold a password, and `ps` shows those.
        os.environ[STORE_VARIABLE] = settings.store

    def started(number: int, pid: int) -> None:
        logger.info("worker process %d started (pid %d)", number, pid)

    supervisor = Supervisor(
        this_command(arguments), wish.processes, worker.config.drain_s, on_start=started
    )
    return supervisor.run()
