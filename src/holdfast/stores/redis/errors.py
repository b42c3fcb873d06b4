"""Errors of redis-py as errors of Holdfast. No other module lets those of redis-py out."""

from __future__ import annotations

from redis import exceptions as redis

from holdfast.core.errors import (
    ConfigError,
    HoldfastError,
    SchemaTooNew,
    SchemaTooOld,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.stores.redis.layout import FORMAT

WRONG_FORMAT = "WRONGFORMAT "
"""What a script says of a shard of another format (lib_base.lua)."""

_PASSING = ("LOADING", "BUSY ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "UNBLOCKED")
"""Answers that a later try may not get. READONLY is one: after a failover the old master answers so
until the new one is known."""

_PASSING_KINDS = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.TryAgainError,
    redis.ClusterDownError,
    redis.ClusterError,
    redis.RedisClusterException,
    redis.MovedError,
    redis.AskError,
    redis.MasterDownError,
    redis.ReadOnlyError,
    OSError,
)

_FINAL_KINDS = (redis.AuthenticationError, redis.AuthorizationError)
"""Subclasses of ConnectionError for which another try is useless."""


def passing(error: BaseException) -> bool:
    """Whether trying again may help."""
    if isinstance(error, _FINAL_KINDS):
        return False
    return isinstance(error, _PASSING_KINDS) or str(error).startswith(_PASSING)


def ours(error: BaseException, store: str) -> BaseException:
    """The error as one of our tree. Our own errors, and bugs, are returned unchanged."""
    if isinstance(error, HoldfastError) or not isinstance(error, (redis.RedisError, OSError)):
        return error
    found = _ours(error, store)
    found.__cause__ = error
    return found


def _ours(error: BaseException, store: str) -> HoldfastError:
    text = str(error) or type(error).__name__
    if text.startswith(WRONG_FORMAT):
        found = int(text.removeprefix(WRONG_FORMAT).split()[0])
        kind = SchemaTooNew if found > FORMAT else SchemaTooOld
        return kind(store=store, found=found, known=FORMAT)
    if isinstance(error, _FINAL_KINDS) or text.startswith(("WRONGPASS", "NOAUTH")):
        why = f"the user name or the password is wrong ({text})"
        return StoreUnavailable(store=store, why=why)
    if isinstance(error, redis.NoPermissionError) or text.startswith("NOPERM"):
        why = f"this user may not do all that is needed: give it +@all on the prefix ({text})"
        return StoreReadOnly(store=store, why=why)
    if isinstance(error, redis.OutOfMemoryError) or "OOM command not allowed" in text:
        why = f"its maxmemory is reached: raise it, or let workers catch up ({text})"
        return StoreFull(store=store, why=why)
    if isinstance(error, redis.ReadOnlyError) or text.startswith("READONLY"):
        why = f"it is a read-only replica: name the master, or use redis+cluster:// ({text})"
        return StoreReadOnly(store=store, why=why)
    if text.startswith("MISCONF"):
        return StoreUnavailable(store=store, why=f"it cannot write to its disk ({text})")
    if text.startswith("CLUSTERDOWN") or isinstance(error, redis.ClusterDownError):
        return StoreUnavailable(store=store, why=f"a part of the cluster is down ({text})")
    if "cluster support disabled" in text:
        why = f"{store} is not a cluster: write redis:// instead of redis+cluster://"
        return ConfigError(field="store", why=why)
    if "WRONGTYPE" in text:
        why = f"its keys are another application's: choose another prefix= ({text})"
        return StoreCorrupt(store=store, why=why)
    if passing(error):
        return StoreUnavailable(store=store, why=f"it cannot be reached or is not ready ({text})")
    return StoreError(store=store, why=f"redis ({text})")
