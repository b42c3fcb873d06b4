"""Notify: wakes the sleepers of other processes by a datagram to each that sleeps on the same file.

    jobs.db-wake/            beside the database; under the temporary directory if its path is
      4711-9f3c2a.sock       too long for a socket. One socket per store that has sleepers.

Only the owner may enter the folder; a folder of another user, or one that others may enter, is not
used. After a commit the writer sends one small datagram to each socket. These are hints: a full
buffer or a dead process loses them, and sending never blocks. A socket without a process is
unlinked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import socket
import stat
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from holdfast.store import Ref
from holdfast.stores.notifier import Line, Notifier

SOCKET_PATH_MAX = 100
"""In bytes; the least that the systems we run on allow, with some room."""
HINTS_MAX = 64
"""Lines or jobs in one datagram; with more it says only that there are many."""
DATAGRAM_MAX = 64 * 1024
SETTLED_NS = 50_000_000
"""A directory changed more recently than this may change again without a new time stamp."""
CLOSE_S = 2.0
"""How long the thread of a socket may take to end."""
BIND_TRIES_MAX = 5

Received = Callable[[bytes], None]


class Hint(msgspec.Struct, array_like=True):
    """What a datagram says. None stands for too many to name."""

    lines: list[Line] | None
    ended: list[tuple[str, str]] | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Hint).decode


class ProcessNotifier:
    """The socket of one store, bound once it has sleepers, and the way to those of the others."""

    def __init__(self, path: str, notifier: Notifier) -> None:
        self.folder = _folder(path)
        self._notifier = notifier
        self._lock = threading.Lock()
        self._receiver: _Receiver | None = None
        self._tried = False
        self._others: list[str] = []
        self._seen_ns = -1
        self._sender: socket.socket | None = None
        self._watched: Counter[Ref] = Counter()

    def listen(self) -> bool:
        """Binds this store's socket, once; False when there can be none."""
        with self._lock:
            if not self._tried:
                self._tried = True
                self._receiver = _bind(self.folder, self._received)
            return self._receiver is not None

    @property
    def listening(self) -> bool:
        """Whether other processes can wake sleepers of this one."""
        return self._receiver is not None

    @contextmanager
    def watching(self, job: Ref | None) -> Iterator[None]:
        """Remembers which job is waited for, for hints that name no jobs."""
        if job is None:
            yield
            return
        with self._lock:
            self._watched[job] += 1
        try:
            yield
        finally:
            with self._lock:
                self._watched[job] -= 1
                if not self._watched[job]:
                    del self._watched[job]

    def notify(self, lines: set[Line] | None, ended: list[Ref]) -> None:
        """Wakes sleepers here and in other processes; None: all of them. Never blocks, never
        raises.
        """
        if lines is not None and not lines and not ended:
            return
        try:
            if lines is None:
                self._notifier.notify_all()
            else:
                self._notifier.notify(lines, ended)
            with self._lock:
                others = self._other_sockets()
                if others:
                    self._send(others, lines, ended)
        except (OSError, RuntimeError):  # A socket, or the loop of a sleeper, was closed just now.
            return  # A hint may be lost; the committed call must not fail because of it.

    def close(self) -> None:
        with self._lock:
            receiver, self._receiver, self._tried = self._receiver, None, True
            sender, self._sender = self._sender, None
        if receiver is not None:
            receiver.close()
        if sender is not None:
            sender.close()

    def _other_sockets(self) -> list[str]:
        """The sockets of the other processes; the directory is read only after it changed."""
        if not os.access(self.folder, os.F_OK):  # The usual case; faster than an exception.
            return []
        try:
            found = os.lstat(self.folder)
        except FileNotFoundError:
            return []
        if not _ours(found):  # Others must not learn whose jobs these are.
            return []
        changed_ns = found.st_mtime_ns
        if changed_ns != self._seen_ns:
            settled = time.time_ns() - changed_ns > SETTLED_NS
            self._seen_ns = changed_ns if settled else -1
            own = self._receiver.path if self._receiver is not None else None
            paths = [os.path.join(self.folder, name) for name in os.listdir(self.folder)]
            self._others = [path for path in paths if path.endswith(".sock") and path != own]
        return self._others

    def _send(self, others: list[str], lines: set[Line] | None, ended: list[Ref]) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        hint = Hint(
            list(lines) if lines is not None and len(lines) <= HINTS_MAX else None,
            [(ref.tenant, ref.id) for ref in ended] if len(ended) <= HINTS_MAX else None,
        )
        text = _encode(hint)
        for path in others:
            try:
                self._sender.sendto(text, path)
            except OSError as error:
                if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                    _unlink(path)  # Its process was killed.
                    self._seen_ns = -1

    def _received(self, text: bytes) -> None:
        try:
            hint = _decode(text)
        except msgspec.MsgspecError:
            hint = Hint(None, None)
        if hint.lines is None:
            self._notifier.notify_all()
            return
        self._notifier.notify(hint.lines, self._ended(hint))

    def _ended(self, hint: Hint) -> Iterable[Ref]:
        if hint.ended is not None:
            return [Ref(*name) for name in hint.ended]
        with self._lock:
            return list(self._watched)


class _Receiver:
    """The bound socket, and the thread that reads it."""

    def __init__(self, bound: socket.socket, path: str, received: Received) -> None:
        self.path = path
        self._socket = bound
        self._received = received
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-wake", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            text = self._socket.recv(DATAGRAM_MAX)
            if self._closing:
                return
            self._received(text)

    def close(self) -> None:
        self._closing = True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own, suppress(OSError):
            own.setblocking(False)
            own.sendto(b"", self.path)  # A full buffer wakes the thread as well.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)  # Where somebody has removed the path.
        _unlink(self.path)
        self._thread.join(CLOSE_S)
        self._socket.close()
        try:
            os.rmdir(os.path.dirname(self.path))
        except OSError:
            return  # Other processes still sleep there.


def _folder(path: str) -> str:
    folder = f"{path}-wake"
    if len(os.fsencode(folder)) + len("/4194304-ffffffff.sock") <= SOCKET_PATH_MAX:
        return folder
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"holdfast-{name}-wake")


def _bind(folder: str, received: Received) -> _Receiver | None:
    if not hasattr(socket, "AF_UNIX"):
        return None
    path = os.path.join(folder, f"{os.getpid()}-{secrets.token_hex(4)}.sock")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for _ in range(BIND_TRIES_MAX):
        try:
            if not _make(folder):
                break
            bound.bind(path)
            os.chmod(path, 0o600)
            return _Receiver(bound, path, received)
        except FileNotFoundError:
            continue  # The last process to leave removed the directory just then.
        except OSError:
            break
    bound.close()
    return None


def _make(folder: str) -> bool:
    """Creates the folder for its owner alone, whatever the umask is; False if it is not ours."""
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    except FileExistsError:
        pass
    return _ours(os.lstat(folder))


def _ours(found: os.stat_result) -> bool:
    """A folder, not a link to one, that this user owns and nobody else can enter."""
    alone = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return alone and found.st_uid == os.geteuid()


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
