"""The demo's store and worker processes. Both are removed when the demo ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast import operate
from holdfast.cli.common import STORE_VARIABLE, Settings, opened, work
from holdfast.core.errors import ConfigError
from holdfast.store import Selection
from holdfast.stores import open_store

APP = "holdfast.cli.demo_jobs:app"
LEASE_S = 3.0
"""Short, so that the jobs of the killed process soon run again."""
DRAIN_S = 5.0
STOP_S = 3.0
LAST_LINES_MAX = 20


@dataclass(frozen=True)
class Stage:
    """The store, tenants and log of one demo run."""

    url: str
    tenants: tuple[str, str]
    crew: str
    """Prefix of the demo's worker names, so that the demo kills no other worker."""
    folder: str

    @property
    def settings(self) -> Settings:
        return Settings(store=self.url, app=APP)

    @property
    def log(self) -> str:
        return os.path.join(self.folder, "workers.log")

    def last_words(self) -> list[str]:
        """The end of the workers' log, printed when something went wrong."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return list(deque(log, LAST_LINES_MAX))


@contextlib.contextmanager
def staged(settings: Settings, keep: bool) -> Iterator[Stage]:
    """A new SQLite file in a temporary folder, or new tenants in the given store."""
    # The store of the environment may be in production use: take only one given for this call.
    url = settings.store if settings.store_typed else None
    if url is not None:
        _check(url)
    mark = secrets.token_hex(3)
    folder = tempfile.mkdtemp(prefix="holdfast-demo-")
    try:
        if url is None:
            path = os.path.join(folder, "demo.db")
            yield Stage(f"sqlite:///{path}", ("acme", "globex"), f"demo-{mark}", folder)
        else:
            tenants = (f"demo-acme-{mark}", f"demo-globex-{mark}")
            stage = Stage(url, tenants, f"demo-{mark}", folder)
            try:
                yield stage
            finally:
                if not keep:
                    work(_forget(stage))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _check(url: str) -> None:
    capabilities = open_store(url).capabilities
    if not capabilities.shared:
        raise ConfigError(field="store", why=f"several processes cannot share {url}")
    if not capabilities.event_log:
        raise ConfigError(field="store", why="the demo needs a store with an event log")


async def _forget(stage: Stage) -> None:
    """Deletes the demo's jobs from a store that others use as well."""
    async with opened(stage.settings, create=True) as store:
        for tenant in stage.tenants:
            async for _ in operate.purge(store, Selection(tenant=tenant)):
                pass


@contextlib.contextmanager
def workers(stage: Stage) -> Iterator[None]:
    """`holdfast worker --processes 2`, tied to this process by a pipe."""
    from holdfast.worker.supervise import start_tied, this_command

    arguments = [
        *("worker", f"--app={APP}", "--processes=2", f"--name={stage.crew}"),
        f"--tenants={','.join(stage.tenants)}",
        *(f"--lease={LEASE_S}", f"--drain={DRAIN_S}"),
    ]
    reader, writer = os.pipe()
    with open(stage.log, "wb") as log:
        env = {STORE_VARIABLE: stage.url}
        crew = start_tied(this_command(arguments), reader, env, stderr=log.fileno())
    gently = False
    try:
        yield
        gently = True
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # The clean-up takes little time.
        _end(crew, gently)
        os.close(reader)
        os.close(writer)
        signal.signal(signal.SIGINT, before)


def _end(crew: subprocess.Popen[bytes], gently: bool) -> None:
    """Sends one signal to drain and a second to stop at once, then kills what still runs."""
    for patience_s in (DRAIN_S * 2 if gently else 0.2, STOP_S):
        crew.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            crew.wait(patience_s)
            return
    crew.kill()
    crew.wait()
