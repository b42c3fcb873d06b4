"""A transaction: reads at one version, remembers what it read and wrote, commits all or nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tests.foundationdb_engine.conflicts import Commit
from tests.foundationdb_engine.errors import (
    INVALID_VERSION,
    KEY_TOO_LARGE,
    NO_COMMIT_VERSION,
    RETRYABLE,
    TIMED_OUT,
    TRANSACTION_CANCELLED,
    TRANSACTION_TOO_LARGE,
    USED_DURING_COMMIT,
    VERSION_INVALID,
    VERSION_SET,
    WATCHES_DISABLED,
    FDBError,
)
from tests.foundationdb_engine.futures import Future, Key, Value
from tests.foundationdb_engine.keys import KEY_MAX, KeySelector, key_of
from tests.foundationdb_engine.life import Life
from tests.foundationdb_engine.options import Passing, TransactionOptions
from tests.foundationdb_engine.reads import Snapshot, Span
from tests.foundationdb_engine.watches import Watch
from tests.foundationdb_engine.writes import TransactionWrite

if TYPE_CHECKING:
    from tests.foundationdb_engine.database import Database

F = TypeVar("F", bound=Future)


class Transaction(TransactionWrite):
    """With the names of the binding's. One thread at a time uses it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._engine = db.engine
        self._lasting = db.defaults()
        self._started = self._engine.clock.now()
        self._retries = 0
        self._life = Life(self._engine)

    def __del__(self) -> None:
        life = getattr(self, "_life", None)
        if life is not None:
            life.end(TRANSACTION_CANCELLED)

    @property
    def options(self) -> TransactionOptions:
        return TransactionOptions(self)

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self)

    @property
    def _passing(self) -> Passing:
        return self._life.passing

    def _is_used(self) -> bool:
        return self._life.is_used()

    def _whole(self) -> Transaction:
        return self

    def _check(self) -> None:
        """Whether a call may be made now."""
        if self._life.committing:
            raise FDBError(USED_DURING_COMMIT)
        self._check_time()
        if self._life.failure is not None:
            raise self._life.failure

    def _check_time(self) -> None:
        limit_us = self._lasting.timeout_ms * 1_000
        if limit_us and self._engine.clock.now() - self._started >= limit_us:
            self._life.failure = self._life.failure or FDBError(TIMED_OUT)

    def _ask(self, future: F, work: Callable[[], Any], *, late: bool = False) -> F:
        """An answer to a call that is allowed now, or the reason why it is not."""
        try:
            self._check()
        except FDBError as error:
            return future.run(partial(refuse, error))
        return self._engine.answer(future, work, late=late, patience_s=self._patience_s())

    def _patience_s(self) -> float | None:
        """How long a call waits for a cluster that is down: for ever without a time-out."""
        return self._lasting.timeout_ms / 1_000 or None

    # -- reads -----------------------------------------------------------------------------------

    def _ask_version(self) -> Future:
        return self._ask(Future(weakref.ref(self)), partial(self._version, self._life), late=True)

    def _version(self, life: Life) -> int:
        self._check_alive(life)
        return life.read_version()

    def _check_alive(self, life: Life) -> None:
        """What is done late finds its transaction as it was, or not at all."""
        if life is not self._life:
            raise FDBError(TRANSACTION_CANCELLED)

    def _ask_value(self, key: bytes, snapshot: bool) -> Value:
        return self._ask(Value(weakref.ref(self)), partial(self._life.value, key, snapshot))

    def _ask_key(self, selector: KeySelector, snapshot: bool) -> Key:
        return self._ask(Key(weakref.ref(self)), partial(self._life.key, selector, snapshot))

    def _ask_rows(self, span: Span, snapshot: bool) -> Future:
        return self._ask(Future(weakref.ref(self)), partial(self._life.rows, span, snapshot))

    def set_read_version(self, version: int) -> None:
        def work() -> None:
            if self._life.version is not None:
                raise FDBError(VERSION_SET)
            if version <= 0:
                raise FDBError(VERSION_INVALID)
            self._engine.enter(version)
            self._life.commit.read_version = version

        self._write(work)

    def watch(self, key: Any) -> Future:
        """Ready when the value is another than this transaction sees, once it has committed."""
        key = key_of(key)
        life = self._life
        try:
            self._check()
            if not life.passing.own_reads:
                raise FDBError(WATCHES_DISABLED)
            if len(key) > KEY_MAX:
                raise FDBError(KEY_TOO_LARGE)
            watch = Watch(self._engine, self.db.watching, key, life.value(key, False))
        except FDBError as error:
            return Future().run(partial(refuse, error))
        life.watches.append(watch)
        return watch

    # -- the end ---------------------------------------------------------------------------------

    def commit(self) -> Future:
        future: Future = Future(weakref.ref(self))
        life = self._life
        try:
            self._check()
            if life.size > self._lasting.size_limit:
                raise FDBError(TRANSACTION_TOO_LARGE)
        except FDBError as error:
            return future.run(partial(refuse, error))
        life.committing = True
        writes = replace(life.commit, mutations=life.own.mutations)
        if not (writes.mutations or writes.write_keys or writes.write_ranges):
            return self._engine.answer(future, partial(self._commit_nothing, life))
        return self._engine.answer(
            future,
            partial(self._commit, life, writes, self._engine.epoch),
            late=True,
            told=partial(self._heard, life),
            patience_s=self._patience_s(),
        )

    def _commit_nothing(self, life: Life) -> None:
        self._engine.nothing()
        self._committed(life, FDBError(NO_COMMIT_VERSION))

    def _commit(self, life: Life, writes: Commit, epoch: int) -> None:
        self._check_alive(life)
        try:
            life.committed = self._engine.commit(writes, epoch)
        except FDBError as error:
            if life.stamp is not None:
                life.stamp.complete(error=FDBError(INVALID_VERSION))
            life.end(error.code)
            raise
        self._committed(life, None)

    def _committed(self, life: Life, no_stamp: FDBError | None) -> None:
        watches, life.watches = life.watches, []
        self._engine.arm(watches)
        if life.stamp is not None:
            found = life.committed.stamp if life.committed is not None else None
            life.stamp.complete(found, no_stamp)
        life.end(TRANSACTION_CANCELLED)

    def _heard(self, life: Life) -> None:
        if life.committed is not None:
            self._engine.heard(life.committed.version)

    def get_committed_version(self) -> int:
        """The version of the commit; -1 of one that wrote nothing, or before it."""
        committed = self._life.committed
        return committed.version if committed is not None else -1

    def get_versionstamp(self) -> Key:
        """The stamp of the commit that is to come: asked for before, ready after it."""
        stamp = Key()
        try:
            self._check()
        except FDBError as error:
            return stamp.run(partial(refuse, error))
        if self._life.stamp is None:
            self._life.stamp = stamp
        return self._life.stamp

    def get_approximate_size(self) -> Future:
        return Future(weakref.ref(self)).run(lambda: self._life.size)

    def on_error(self, error: Any) -> Future:
        """Begins anew if the error is worth a retry; else fails with it."""
        code = error if isinstance(error, int) else getattr(error, "code", None)
        if not isinstance(code, int):
            raise error
        return Future(weakref.ref(self)).run(partial(self._retry, code))

    def _retry(self, code: int) -> None:
        self._check_time()
        life = self._life
        if life.failure is not None and life.failure.code in (TRANSACTION_CANCELLED, TIMED_OUT):
            raise life.failure
        limit = self._lasting.retry_limit
        if code not in RETRYABLE or 0 <= limit <= self._retries:
            # A transaction that is given up stays so until it is reset.
            life.failure, life.committing = FDBError(TRANSACTION_CANCELLED), False
            raise FDBError(code)
        self._retries += 1
        self._engine.retried()
        self._renew()

    def _renew(self) -> None:
        life, self._life = self._life, Life(self._engine)
        life.end(TRANSACTION_CANCELLED)

    def reset(self) -> None:
        """As new: options too."""
        self._lasting = self.db.defaults()
        self._started = self._engine.clock.now()
        self._retries = 0
        self._renew()

    def cancel(self) -> None:
        """Every call fails until a reset."""
        self._life.failure = FDBError(TRANSACTION_CANCELLED)
        self._life.committing = False
        self._life.end(TRANSACTION_CANCELLED)


def refuse(error: FDBError) -> None:
    raise error
