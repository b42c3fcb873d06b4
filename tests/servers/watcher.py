"""Ends the servers of a test run that is gone, however it went, and removes their folders.

Run as a script it is the watcher: a child of the test run that reads from a pipe which servers
exist, and acts when the pipe closes or its parent changes. The kernel's parent-death signal would
not do: it follows the thread that started the server, does not reach PostgreSQL's backends, and
removes no folder. As a module it holds the same acts for the test run itself. Standard library
only, so that it starts fast.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

GONE_S = 10.0
"""A process killed with SIGKILL is gone by then."""
LOOK_S = 0.5
"""How often the watcher looks whether its parent is still there."""
IPC_RMID = 0


class Stat(NamedTuple):
    """What /proc says about a process."""

    state: str
    parent: int
    started: int

    @property
    def alive(self) -> bool:
        """A zombie is not: only its parent's interest in it is left."""
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    """Of this process, or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return Stat(fields[0], int(fields[1]), int(fields[19]))


def alive(pid: int) -> bool:
    found = stat(pid)
    return found is not None and found.alive


def tree(root: int) -> list[int]:
    """The process and all its descendants, parents first.

    By parent, not by process group: each PostgreSQL backend is the leader of a group of its own.
    """
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        found = stat(int(name)) if name.isdigit() else None
        if found is not None and found.alive:
            children.setdefault(found.parent, []).append(int(name))
    pids = [root] if alive(root) else []
    for pid in pids:
        pids += children.get(pid, [])
    return pids


def send(pids: Iterable[int], number: int) -> None:
    """The signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def freeze(root: int) -> list[int]:
    """Stops the process and its descendants; gives them. Parents first, so that none is born."""
    frozen: list[int] = []
    while more := [pid for pid in tree(root) if pid not in frozen]:
        for pid in more:
            send([pid], signal.SIGSTOP)
            until(partial(_stopped, pid), GONE_S)
        frozen += more
    return frozen


def _stopped(pid: int) -> bool:
    found = stat(pid)
    return found is None or not found.alive or found.state in "Tt"


def end(root: int) -> None:
    """SIGKILL for the process and all its descendants; returns when they are gone."""
    pids = freeze(root)
    send(pids, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)), GONE_S)


def until(done: Callable[[], bool], bound_s: float) -> bool:
    """Whether it came true in time."""
    limit = time.monotonic() + bound_s
    while not done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)  # nothing else can be waited for: these are not our children
    return True


def remove(folder: Path) -> None:
    """The folder, and the shared memory of a PostgreSQL that was killed in it."""
    for lock in folder.glob("*/postmaster.pid"):
        _remove_memory(lock)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_memory(lock: Path) -> None:
    """A killed postmaster leaves a small System V segment; line 7 of its lock file names it."""
    lines = lock.read_text().splitlines()
    words = lines[6].split() if len(lines) > 6 else []
    if len(words) != 2:
        return
    key, id = map(int, words)
    libc = ctypes.CDLL(None)
    if libc.shmget(key, 0, 0) == id:
        libc.shmctl(id, IPC_RMID, None)


def main() -> None:
    """Reads `[folder, pid, started]` (pid 0: no process) and `[folder]` (forget it), then acts."""
    parent = int(sys.argv[1])
    kept: dict[str, tuple[int, int]] = {}
    rest = b""
    while True:
        orphaned = os.getppid() != parent
        ready = select.select([0], [], [], 0 if orphaned else LOOK_S)[0]
        read = os.read(0, 65536) if ready else b""
        if not read and (ready or orphaned):
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            folder, *process = json.loads(line)
            kept.pop(folder, None)
            if process:
                kept[folder] = (process[0], process[1])
    for folder, (pid, started) in kept.items():
        found = stat(pid)
        if found is not None and found.started == started:  # else the number is another's by now
            end(pid)
        remove(Path(folder))


if __name__ == "__main__":
    main()
