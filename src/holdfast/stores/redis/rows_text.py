"""Texts and bytes in the form in which scripts take them, and rows hold them."""

from __future__ import annotations

import struct
from functools import lru_cache

import msgspec

TEXT_CACHE_MAX = 1024
"""Names of tenants, queues and types come again and again."""

LENGTH = struct.Struct(">H")


def raw(value: bytes | None) -> msgspec.Raw | None:
    """Bytes as msgpack text: the scripts' reader knows no other kind."""
    if value is None:
        return None
    size = len(value)
    if size < 32:
        return msgspec.Raw(bytes((0xA0 | size,)) + value)
    if size < 65536:
        return msgspec.Raw(b"\xda" + LENGTH.pack(size) + value)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4) + value)


@lru_cache(TEXT_CACHE_MAX)
def sized(text: str) -> bytes:
    """A text after its length, as rows hold it."""
    encoded = text.encode()
    return LENGTH.pack(len(encoded)) + encoded


def text_at(row: bytes, at: int) -> tuple[str, int]:
    """The text that begins there with its length, and where it ends."""
    end = at + 2 + (row[at] << 8 | row[at + 1])
    return row[at + 2 : end].decode(), end
