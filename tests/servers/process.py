"""One private server process: a folder, a port on the loopback, and its faults."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.servers import watcher
from tests.servers.binaries import Install

START_S = 60.0
"""A start takes no longer, also after a crash and on a busy machine."""
STOP_S = 15.0
PORTS = range(10_000, 22_000)
"""Below the ports that outgoing connections take; also with BUS added, for a cluster's bus."""
BUS = 10_000
PORT_TRIES = 5
TAIL_LINES = 30

_chance = random.SystemRandom()  # tests seed the usual one: two runs would choose the same ports


class ServerFailed(Exception):
    """A server did not do what it was asked; says the tail of its log."""


def free_port(*offsets: int) -> int:
    """A port that nobody listens on now, nor on those at the offsets."""
    for _ in range(1000):
        port = _chance.choice(PORTS)
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port
    raise ServerFailed(f"no free port from {PORTS.start} to {PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def account() -> dict[str, Any]:
    """Whom a server runs as: root gives its rights away, PostgreSQL would refuse them."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def reachable(folder: Path) -> bool:
    """Whether the one whom a server runs as may enter it."""
    real = folder.resolve()
    return account() == {} or all(each.stat().st_mode & 0o001 for each in (real, *real.parents))


def give(path: Path) -> None:
    """To whom the server runs as."""
    if (who := account()) != {}:
        os.chown(path, who["user"], who["group"], follow_symlinks=False)


class Server(ABC):
    """A server of one process and its children. `start` makes it, `remove` leaves nothing."""

    kind: ClassVar[str]
    offsets: ClassVar[tuple[int, ...]] = ()
    """More ports that must be free, relative to the first."""
    gently: ClassVar[signal.Signals] = signal.SIGTERM
    """Asks it to end and keep its data."""

    def __init__(self, install: Install) -> None:
        self.install = install
        self.port = 0
        self.programs = install.folder
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def folder(self) -> Path:
        """Its data and its log."""
        if self._folder is None:
            raise ServerFailed(f"{self.kind}: never started")
        return self._folder

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        """Of its first process."""
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"{self.kind}: not running")
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """All its processes, the first one first."""
        return watcher.tree(self.pid) if self.running else []

    @property
    def running(self) -> bool:
        """Frozen counts as running."""
        return self._process is not None and self._process.poll() is None

    # -- what each kind says -----------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> None:
        """Once, in the new folder."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Starts it in the foreground."""

    @abstractmethod
    def _ready(self) -> bool:
        """Whether this very process serves. Must not raise for one that does not yet."""

    @abstractmethod
    def cut(self) -> None:
        """Ends all connections of clients; returns when they are gone."""

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Runs and serves on return; again after `kill` or `stop`, on the same port and data."""
        if self.running:
            return
        _living.add(self)
        fresh = self._folder is None
        if fresh:
            self._make_folder()
        for last in (*[False] * (PORT_TRIES - 1), True):
            if fresh:
                self.port = free_port(*self.offsets)
            try:
                self._launch()
                return
            except ServerFailed as failure:
                self._end()
                if not fresh:
                    raise
                if last or "already in use" not in str(failure):
                    self.remove()
                    raise

    def ensure(self) -> None:
        """Serves on return, whatever an earlier test did to it."""
        if self._frozen:
            self.thaw()
        self.start()

    def kill(self) -> None:
        """kill -9 of all its processes; none is left on return."""
        self._end()

    def freeze(self) -> None:
        """Stops all its processes in their tracks: connections stay, answers do not come."""
        watcher.freeze(self.pid)
        self._frozen = True

    def thaw(self) -> None:
        """Lets them go on, children first."""
        watcher.send(reversed(self.pids), signal.SIGCONT)
        self._frozen = False

    def stop(self) -> None:
        """Ends it in order and keeps its data; `start` brings it back."""
        if not self.running:
            return
        if self._frozen:
            self.thaw()
        assert self._process is not None
        self._process.send_signal(self.gently)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self._end()

    def remove(self) -> None:
        """Ends it at once and leaves nothing: no process, no folder, no shared memory."""
        self._end()
        if self._folder is not None:
            watcher.remove(self._folder)
            _watch.tell(str(self._folder))
            self._folder = None
        _living.discard(self)

    def tail(self) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    # -- inside ------------------------------------------------------------------------------

    def _make_folder(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"holdfast-{self.kind}-"))
        _watch.tell(str(self._folder), 0, 0)
        give(self._folder)
        try:
            if not reachable(self.install.folder):
                self._copy_programs()
            self._prepare()
        except BaseException:
            self.remove()
            raise

    def _copy_programs(self) -> None:
        """Into our folder; so root may keep this project in a home that is closed to others."""
        copy = self.folder / "programs"
        for part in self.install.parts:
            target = copy / part.relative_to(self.install.base)
            target.parent.mkdir(parents=True, exist_ok=True)
            if part.is_dir():
                shutil.copytree(part, target, symlinks=True)
            else:
                shutil.copy2(part, target)
        for path in (copy, *copy.rglob("*")):
            give(path)
        self.programs = copy / self.install.folder.relative_to(self.install.base)

    def _popen(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        """In a session of its own, so that Ctrl-C in the terminal is the tests' affair."""
        env = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)}
        if "LD_LIBRARY_PATH" in os.environ:
            env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        with log.open("ab") as file:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    cwd=self.folder,
                    env=env,
                    umask=0o077,
                    start_new_session=True,
                    **account(),
                )
            except PermissionError as error:
                raise ServerFailed(f"{self.kind}: {command[0]} may not be run") from error
        found = watcher.stat(process.pid)
        _watch.tell(str(self.folder), process.pid, found.started if found else 0)
        return process

    def _run(self, command: list[str]) -> None:
        """A command that ends by itself, such as initdb."""
        process = self._popen(command, self.log)
        try:
            code = process.wait(START_S)
        except subprocess.TimeoutExpired:
            watcher.end(process.pid)
            process.wait()
            code = -1
        if code != 0:
            raise ServerFailed(f"{self.kind}: {command[0]} gave {code}\n{self.tail()}")

    def _launch(self) -> None:
        self.log.unlink(missing_ok=True)  # so that its tail tells of this start only
        self._process = self._popen(self._command(), self.log)
        done = watcher.until(lambda: not self.running or self._ready(), START_S)
        if not self.running:
            raise ServerFailed(f"{self.kind}: ended while starting\n{self.tail()}")
        if not done:
            raise ServerFailed(f"{self.kind}: not ready after {START_S:.0f} s\n{self.tail()}")

    def _end(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                watcher.end(self._process.pid)
            self._process.wait()
            _watch.tell(str(self.folder), 0, 0)
        self._process = None
        self._frozen = False


class _Watch:
    """The way to this process's watcher, which is started for the first server."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, *fact: str | int) -> None:
        if self._process is None:
            command = [sys.executable, "-I", "-S", watcher.__file__, str(os.getpid())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, start_new_session=True, cwd="/"
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fact).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


_living: set[Server] = set()
_watch = _Watch()
_owner = os.getpid()


@atexit.register
def _remove_all() -> None:
    """At the end of the interpreter; a forked child leaves its parent's servers alone."""
    if os.getpid() == _owner:
        for server in list(_living):
            server.remove()
        _watch.close()


def wait_for(done: Callable[[], bool], what: str, bound_s: float = START_S) -> None:
    """Until it is so; a ServerFailed names what never came."""
    if not watcher.until(done, bound_s):
        raise ServerFailed(f"after {bound_s:.0f} s still not: {what}")
