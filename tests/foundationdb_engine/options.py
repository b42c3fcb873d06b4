"""The options of a transaction and of a connection; those without a meaning here are ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.foundationdb_engine.errors import INVALID_OPERATION, OPTION_INVALID, FDBError
from tests.foundationdb_engine.keys import TRANSACTION_MAX

if TYPE_CHECKING:
    from tests.foundationdb_engine.transaction import Transaction
    from tests.foundationdb_engine.watches import Watching

IGNORED = frozenset(
    {
        "set_auto_throttle_tag",
        "set_automatic_idempotency",
        "set_causal_read_risky",
        "set_causal_write_risky",
        "set_debug_retry_logging",
        "set_debug_transaction_identifier",
        "set_location_cache_size",
        "set_lock_aware",
        "set_log_transaction",
        "set_priority_batch",
        "set_priority_system_immediate",
        "set_read_lock_aware",
        "set_read_priority_high",
        "set_read_priority_low",
        "set_read_priority_normal",
        "set_read_server_side_cache_disable",
        "set_read_server_side_cache_enable",
        "set_report_conflicting_keys",
        "set_server_request_tracing",
        "set_tag",
        "set_transaction_causal_read_risky",
        "set_transaction_max_retry_delay",
        "set_use_grv_cache",
        "set_used_during_commit_protection_disable",
    }
)
"""They change speed, priority or what is logged, and nothing that this engine does."""


def checked(value: int, least: int, most: int = 2**31 - 1) -> int:
    if not least <= value <= most:
        raise FDBError(OPTION_INVALID)
    return value


@dataclass(slots=True)
class Lasting:
    """What outlives a retry."""

    timeout_ms: int = 0
    retry_limit: int = -1
    size_limit: int = TRANSACTION_MAX


@dataclass(slots=True)
class Passing:
    """What a retry sets back."""

    own_reads: bool = True
    snapshot_own_reads: bool = True
    next_write_silent: bool = False


class _Ignoring:
    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in IGNORED:
            raise AttributeError(name)
        return _ignore


def _ignore(*_: Any) -> None:
    return None


class TransactionOptions(_Ignoring):
    """`tr.options`."""

    def __init__(self, tr: Transaction) -> None:
        self._tr = tr

    def set_timeout(self, milliseconds: int) -> None:
        self._tr._lasting.timeout_ms = checked(milliseconds, 0)

    def set_retry_limit(self, retries: int) -> None:
        self._tr._lasting.retry_limit = checked(retries, -1)

    def set_max_retry_delay(self, milliseconds: int) -> None:
        """Taken and not needed: `on_error` waits for nothing here."""
        checked(milliseconds, 0)

    def set_size_limit(self, size: int) -> None:
        self._tr._lasting.size_limit = checked(size, 32, TRANSACTION_MAX)

    def set_read_your_writes_disable(self) -> None:
        if self._tr._is_used():
            raise FDBError(INVALID_OPERATION)
        self._tr._passing.own_reads = False

    def set_snapshot_ryw_enable(self) -> None:
        self._tr._passing.snapshot_own_reads = True

    def set_snapshot_ryw_disable(self) -> None:
        self._tr._passing.snapshot_own_reads = False

    def set_next_write_no_write_conflict_range(self) -> None:
        self._tr._passing.next_write_silent = True


class DatabaseOptions(_Ignoring):
    """`db.options`: the defaults of its transactions, and the limit of watches."""

    def __init__(self, lasting: Lasting, watching: Watching) -> None:
        self._lasting = lasting
        self._watching = watching

    def set_max_watches(self, count: int) -> None:
        self._watching.watches_max = checked(count, 0, 1_000_000)

    def set_transaction_timeout(self, milliseconds: int) -> None:
        self._lasting.timeout_ms = checked(milliseconds, 0)

    def set_transaction_retry_limit(self, retries: int) -> None:
        self._lasting.retry_limit = checked(retries, -1)

    def set_transaction_size_limit(self, size: int) -> None:
        self._lasting.size_limit = checked(size, 32, TRANSACTION_MAX)
