"""Encryption of what jobs carry, by keys of their tenants. See docs/guides/encryption.md."""

from __future__ import annotations

from holdfast.encryption.keys import Keys, encrypted, from_environment, stored_ring
from holdfast.encryption.masters import Wrapper
from holdfast.encryption.stored import KeyState, StoredRing

__all__ = [
    "KeyState",
    "Keys",
    "StoredRing",
    "Wrapper",
    "encrypted",
    "from_environment",
    "stored_ring",
]
