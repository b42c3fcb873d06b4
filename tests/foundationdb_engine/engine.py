"""The engine: versions by a clock, rows with their past, and commits one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tests.foundationdb_engine.conflicts import Commit, Log, Written
from tests.foundationdb_engine.errors import (
    COMMIT_UNKNOWN,
    CONFLICT,
    TIMED_OUT,
    TOO_OLD,
    FDBError,
)
from tests.foundationdb_engine.faults import Fault, Faults, Place
from tests.foundationdb_engine.futures import Future, Outcome, attempt
from tests.foundationdb_engine.mutations import atomic, stamped
from tests.foundationdb_engine.storage import Row, Storage
from tests.foundationdb_engine.versions import (
    LIFE_VERSIONS,
    RECOVERY_VERSIONS,
    Committed,
    Versions,
)
from tests.foundationdb_engine.watches import Watch, Watches

from holdfast.core.clock import Clock, SystemClock

if TYPE_CHECKING:
    from tests.foundationdb_engine.database import Database

PAST_KEPT = 256
"""How many old values and commits are kept even if no open transaction can see them."""

Walk = Callable[[bytes, bytes, int, bool], Iterator[Row]]
"""Goes over the rows from a key to before another, at a version, perhaps in reverse."""

F = TypeVar("F", bound=Future)
T = TypeVar("T")


@dataclass(slots=True)
class Counts:
    """What the engine was asked for so far."""

    version_requests: int = 0
    attempts: int = 0
    """Commits with something to write."""
    commits: int = 0
    """Those that were done, also where the caller heard of an error."""
    read_only: int = 0
    conflicts: int = 0
    too_old: int = 0
    unknown: int = 0
    """Commits whose caller does not know the result: 1021, or 1031."""
    retries: int = 0
    recoveries: int = 0

    @property
    def wasted(self) -> float:
        """The share of attempts that changed nothing."""
        return 1 - self.commits / self.attempts if self.attempts else 0.0


class Engine:
    """One cluster. Its connections (`database`) may be used from any thread."""

    def __init__(self, clock: Clock | None = None, *, faults: Faults | None = None) -> None:
        self.clock = clock or SystemClock()
        self.faults = faults or Faults()
        self.lock = threading.RLock()
        self.watches = Watches()
        self._versions = Versions(self.clock)
        self._storage = Storage()
        self._log = Log()
        self._floor = 0
        """The past before this version is gone."""
        self._readers: dict[int, int] = {}
        """How many open transactions read at each version."""
        self._left: deque[int] = deque()
        """Versions of transactions that ended, to be taken from the readers."""
        self._late: list[Commit] = []
        """Commits that are done after their callers gave up waiting."""
        self._fired: list[Watch] = []
        """Watches to be told once the lock is free."""
        self._held: list[tuple[Future, Callable[[], Any]]] | None = None
        """Calls that wait for the cluster to come back; None while it is there."""
        self.epoch = 0
        """How often the cluster recovered."""
        self._counts = Counts()

    def database(self) -> Database:
        """A connection, as `fdb.open` gives one; each has a limit of watches of its own."""
        from tests.foundationdb_engine.database import Database

        return Database(self)

    @property
    def keys(self) -> int:
        """How many there are now."""
        with self.lock:
            return len(self._storage)

    @property
    def counts(self) -> Counts:
        """The counts of this moment."""
        with self.lock:
            return replace(self._counts)

    def recover(self, versions: int = RECOVERY_VERSIONS) -> int:
        """The cluster recovers: versions jump, commits on their way are lost; gives the version."""
        with self.lock:
            self.epoch += 1
            self._counts.recoveries += 1
            return self._versions.jump(versions)

    def stop(self) -> None:
        """The cluster is down: no call is answered until it starts again. Watches stay."""
        with self.lock:
            self._held = self._held or []

    def start(self) -> None:
        """It is there again, recovered: what waited is done now."""
        with self.lock:
            held, self._held = self._held or [], None
            self.recover()
        for future, work in held:
            if not future.is_ready():
                future.complete(*attempt(work))

    # -- versions --------------------------------------------------------------------------------

    def heard(self, version: int) -> None:
        """Somebody knows of the commit: no further one may share its version."""
        with self.lock:
            self._versions.close(version)

    def read_version(self) -> int:
        """A version to read at; the past it sees is kept until `leave`."""
        with self.lock:
            self._counts.version_requests += 1
            self._strike("version")
            self._do_late()
            version = self._versions.newest()
            self._versions.close(version)
            self.enter(version)
        self._tell()
        return version

    def enter(self, version: int) -> None:
        """Somebody reads at a version of his own choice."""
        with self.lock:
            self._sweep()
            self._readers[version] = self._readers.get(version, 0) + 1

    def leave(self, version: int) -> None:
        """The transaction ended. Takes no lock: a destructor may call it anywhere."""
        self._left.append(version)

    def _sweep(self) -> None:
        readers = self._readers
        while self._left:
            version = self._left.popleft()
            readers[version] -= 1
            if readers[version] == 0:
                del readers[version]

    def _oldest(self, newest: int) -> int:
        """The oldest version that an open transaction reads at."""
        self._sweep()
        return min(self._readers, default=newest)

    def _check(self, version: int, now: int) -> None:
        self._versions.check(version, now)
        if version < self._floor:
            raise FDBError(TOO_OLD)

    # -- reads -----------------------------------------------------------------------------------

    def _strike(self, place: Place) -> None:
        fault = self.faults.draw(place)
        if fault is not None:
            raise FDBError(fault.code)

    def doom(self) -> tuple[int, int] | None:
        """After how many reads of a new transaction which error comes, if one does."""
        with self.lock:
            return self.faults.doom()

    def doomed(self, code: int) -> FDBError:
        """The error that was to come."""
        with self.lock:
            self.faults.told[code] += 1
        return FDBError(code)

    def _reading(self, version: int) -> None:
        self._strike("read")
        self._check(version, self._versions.newest())
        self._versions.close(version)

    def get(self, key: bytes, version: int) -> bytes | None:
        with self.lock:
            self._reading(version)
            return self._storage.get(key, version)

    def read(self, version: int, use: Callable[[Walk], T]) -> T:
        """Lets `use` walk over the rows of the version; nobody writes in the meantime."""
        with self.lock:
            self._reading(version)
            return use(self._storage.walk)

    # -- commits ---------------------------------------------------------------------------------

    def commit(self, commit: Commit, epoch: int) -> Committed:
        """Does all of it or nothing, and tells the watches.

        The epoch is that of the call: a recovery in between loses what was on its way.
        """
        try:
            with self.lock:
                self._counts.attempts += 1
                if self.faults.recovers():
                    self.recover()
                self._do_late()
                fault = Fault(COMMIT_UNKNOWN) if epoch != self.epoch else self.faults.draw("commit")
                committed = self._do_with(commit, fault)
        except FDBError as error:
            self._count(error.code)
            raise
        finally:
            self._tell()
        return committed

    def nothing(self) -> None:
        """A commit with nothing to write does nothing."""
        with self.lock:
            self._counts.read_only += 1

    def retried(self) -> None:
        with self.lock:
            self._counts.retries += 1

    def _do_with(self, commit: Commit, fault: Fault | None) -> Committed:
        if fault is None:
            return self._do(commit)
        if fault.fate == "late":
            self._late.append(commit)
        elif fault.fate == "applied":
            self.heard(self._do(commit).version)
        raise FDBError(fault.code)

    def _do_late(self) -> None:
        late, self._late = self._late, []
        for commit in late:
            # Nobody waits to hear how it went.
            attempt(partial(self._do, commit))

    def _count(self, code: int) -> None:
        with self.lock:
            self._counts.conflicts += code == CONFLICT
            self._counts.too_old += code == TOO_OLD
            self._counts.unknown += code in (COMMIT_UNKNOWN, TIMED_OUT)

    def _do(self, commit: Commit) -> Committed:
        if commit.read_version is not None:
            self._check(commit.read_version, self._versions.next())
            if self._log.conflicts(commit, commit.read_version):
                raise FDBError(CONFLICT)
        committed = self._versions.place()
        named = [self._put(*mutation, committed) for mutation in commit.mutations]
        keys = commit.write_keys.union(key for key in named if key is not None)
        self._log.add(Written(committed.version, keys, commit.write_ranges))
        self._counts.commits += 1
        if len(self.watches):
            self._wake(commit)
        self._forget()
        return committed

    def _put(self, name: str, key: bytes, param: bytes, committed: Committed) -> bytes | None:
        """Writes; gives the key if its name is known only now, by its stamp."""
        version = committed.version
        if name == "set":
            self._storage.put(key, param, version)
        elif name == "clear":
            self._storage.put(key, None, version)
        elif name == "clear_range":
            self._storage.clear_range(key, param, version)
        elif name == "set_versionstamped_key":
            key = stamped(key, committed.stamp)
            self._storage.put(key, param, version)
            return key
        elif name == "set_versionstamped_value":
            self._storage.put(key, stamped(param, committed.stamp), version)
        else:
            self._storage.put(key, atomic(name, self._storage.newest(key), param), version)
        return None

    def _forget(self) -> None:
        """Drops the past that is too old, or that nobody can see."""
        newest = self._versions.newest()
        oldest = newest - LIFE_VERSIONS
        for part in (self._storage, self._log):
            floors = [part.forget(oldest, 0)]
            if part.past > PAST_KEPT:
                floors.append(part.forget(self._oldest(newest), PAST_KEPT))
            self._floor = max(self._floor, *(floor for floor in floors if floor is not None), 0)

    # -- watches ---------------------------------------------------------------------------------

    def arm(self, watches: list[Watch]) -> None:
        """Their transaction committed: each fires at the first other value, perhaps now."""
        with self.lock:
            for watch in watches:
                if self._storage.newest(watch.key) != watch.value:
                    self._fired.append(watch)
                elif not watch.is_ready():
                    self.watches.add(watch)
        self._tell()

    def break_watches(self, code: int) -> int:
        """Every watch ends with this error, as a client may end them; returns how many did."""
        with self.lock:
            broken = self.watches.all()
        return sum(watch.complete(error=FDBError(code)) for watch in broken)

    def _wake(self, commit: Commit) -> None:
        for key in self.watches.touched(commit.mutations):
            self._fired.extend(self.watches.differing(key, self._storage.newest(key)))

    def _tell(self) -> None:
        if self._fired:
            with self.lock:
                fired, self._fired = self._fired, []
            for watch in fired:
                watch.complete()

    # -- answers ---------------------------------------------------------------------------------

    def answer(
        self,
        future: F,
        work: Callable[[], Any],
        *,
        late: bool = False,
        told: Callable[[], None] | None = None,
        patience_s: float | None = None,
    ) -> F:
        """Does the work for the future, which may hear of it some turns later; then calls `told`.

        A cluster that is down does nothing, and the future fails after so many seconds.

        A read sees its transaction as it was at the call, so its work is done then; with `late`
        it may also be done after the delay.
        """
        with self.lock:
            if self._held is not None:
                self._held.append((future, work))
                return future.hold(patience_s)
            turns = self.faults.turns()
            late = late and turns > 0 and not self.faults.early()
        if turns > 0 and not late:
            work = partial(give, attempt(work))
        if told is not None:
            work = partial(deliver, work, told)
        return future.later(turns, work) if turns > 0 else future.run(work)


def give(outcome: Outcome) -> Any:
    """The result, or the error raised."""
    result, error = outcome
    if error is not None:
        raise error
    return result


def deliver(work: Callable[[], Any], told: Callable[[], None]) -> Any:
    try:
        return work()
    finally:
        told()
