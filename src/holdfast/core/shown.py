"""User data prepared for display: bounded in depth, size and time before it is written."""

from __future__ import annotations

import codecs
import json

TEXT_MAX = 64 * 1024
"""The maximum of characters shown of a payload, a result or an error."""
BYTES_MAX = 1024 * 1024
"""A larger payload or result is not decoded for display."""

_encoder = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)


def pretty(value: object, most: int = TEXT_MAX) -> str:
    """Plain data as indented JSON, and text unchanged. Writes at most `most` characters: the
    indentation of deeply nested data could be a thousand times its size.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value[: 4 * most + 4]), len(value), most)
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return cut(value, most)  # What `job_bodies.payload_of` returns for an unreadable payload.
    parts: list[str] = []
    size = 0
    try:
        for part in _encoder.iterencode(value):
            parts.append(part)
            size += len(part)
            if size > most:
                return f"{''.join(parts)[:most]}\n… and more characters"
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__name__} that cannot be shown>"
    return "".join(parts)


def cut(text: str, most: int = TEXT_MAX) -> str:
    """The text, cut to `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… {len(text) - most} more characters"


def _bytes(data: bytes, whole: int, most: int) -> str:
    """The first bytes of a value of `whole` bytes, as text or as hexadecimal."""
    text = codecs.getincrementaldecoder("utf-8")()
    try:
        # The cut may have split the last character; ignore the rest of it.
        found = text.decode(data, final=len(data) == whole)
    except UnicodeDecodeError:
        return f"{whole} bytes\n{cut(data[:most].hex(' ', 4), most)}"
    return found if len(found) <= most else f"{found[:most]}\n… of {whole} bytes"
