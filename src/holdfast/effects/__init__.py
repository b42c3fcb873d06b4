"""Effects of handlers that must not happen twice: [guide](../../../docs/guides/effects.md)."""

from holdfast.core.errors import StaleFence
from holdfast.effects.exactly_once import exactly_once
from holdfast.effects.guard import guard, guard_sync
from holdfast.effects.once import object_name, put_once, put_once_sync

__all__ = [
    "exactly_once",
    "guard",
    "guard_sync",
    "object_name",
    "put_once",
    "put_once_sync",
    "StaleFence",
]
