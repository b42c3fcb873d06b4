"""The keys of tenants, as the mapper asks for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from holdfast.core.errors import HoldfastError
from holdfast.encryption.sealed import Cipher

Found = Cipher | HoldfastError
Named = tuple[str, str]
"""A tenant and the id of one of its keys."""


class Ring(Protocol):
    """Finds keys. What cannot be had is answered by an error for that key alone: KeyErased,
    DecodeError, or KeyUnavailable where it may be had later. It does not wait for what it knows.
    """

    async def newest(self, tenants: Collection[str]) -> dict[str, Found]:
        """The key that new values of each tenant are encrypted with."""

    async def named(self, wanted: Collection[Named]) -> dict[Named, Found]:
        """The keys with these ids."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...
