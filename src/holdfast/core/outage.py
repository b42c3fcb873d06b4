"""Which errors are of a store as a whole."""

from __future__ import annotations

from holdfast.core.errors import StoreError


def away(error: BaseException) -> bool:
    """Whether the store as a whole failed. Otherwise one item of the call may be the cause, and the
    others can be sent again without it.
    """
    if isinstance(error, StoreError):
        return type(error) is not StoreError
    return isinstance(error, OSError) or not isinstance(error, Exception)
