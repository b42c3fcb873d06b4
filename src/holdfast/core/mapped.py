"""How a mapped value is told from a plain one. Pure.

A mapper (`payload/values.py`) stands between the dispatcher and a store, and changes the bytes that
jobs carry: it encrypts them, or replaces large ones by a reference. What it stores begins with MARK
and a letter of its own, its codec with a prefix, and its texts with TEXT_MARK. So every process can
tell a mapped value from a plain one, also a process that has no mapper.

    codec         encrypted+json               the codec of the payload follows the prefix
    bytes         f5 48 46, then a letter      no JSON and no UTF-8 begins so
    text          sealed:1:BASE64              the bytes of the mapped value
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from holdfast.core.bounds import MAPPED_MORE
from holdfast.core.errors import DecodeError, HoldfastError, KeyUnavailable

MARK = b"\xf5HF"
ENCRYPTED = "encrypted+"
BLOB = "blob+"
PREFIXES = (ENCRYPTED, BLOB)
TEXT_MARK = "sealed:1:"
UNREADABLE = "unreadable"
"""The codec of a payload that a mapper could not read. The body says why."""
_WHY = MARK + b"!"


def is_mapped(value: object) -> bool:
    """Whether these bytes are what a mapper stores, or says in their place."""
    return isinstance(value, bytes) and value.startswith(MARK)


def is_mapped_codec(codec: str) -> bool:
    return codec.startswith(PREFIXES)


def plain_codec(codec: str) -> str:
    """The codec of the payload itself, without the prefixes of mappers."""
    while codec.startswith(PREFIXES):
        codec = codec.partition("+")[2]
    return codec


def most_of(value: object, most: int) -> int:
    """How large a value may be whose plain form may have `most` bytes."""
    return most + MAPPED_MORE if is_mapped(value) else most


# -- texts -----------------------------------------------------------------------------------------


def text_of(value: bytes) -> str:
    """A mapped value where only text can be stored."""
    return TEXT_MARK + base64.b64encode(value).decode()


def bytes_of(text: str) -> bytes | None:
    """The mapped value in such a text; None if it is plain, or was damaged so far."""
    if not text.startswith(TEXT_MARK):
        return None
    try:
        return base64.b64decode(text[len(TEXT_MARK) :], validate=True)
    except (binascii.Error, ValueError):
        return None


def text_most_of(text: str, most: int) -> int:
    """How many characters a text may have whose plain form may have `most`: of up to four bytes
    each, in base64.
    """
    return (4 * most + MAPPED_MORE) * 4 // 3 + 4 if text.startswith(TEXT_MARK) else most


def told(text: str) -> str:
    """A text for people. A mapped one, at its end too, is only named."""
    head, mark, _ = text.partition(TEXT_MARK)
    return f"{head}(encrypted)" if mark else text


# -- what could not be read ------------------------------------------------------------------------


class Unreadable(msgspec.Struct, frozen=True):
    """Why a value could not be read."""

    why: str
    again: bool = False
    """Whether it may be readable later, when the keys or the blobs can be reached again."""

    def error(self, type: str) -> HoldfastError:
        """What reading it raises."""
        if self.again:
            return KeyUnavailable(store="keys", why=self.why)
        return DecodeError(codec=UNREADABLE, type=type, why=self.why)


_reason = msgspec.json.Decoder(Unreadable)


def unreadable(error: HoldfastError) -> bytes:
    """What stands in the place of a value that could not be read."""
    why = error.facts.get("why") if isinstance(error, DecodeError | KeyUnavailable) else None
    told = Unreadable(str(why or error), again=isinstance(error, KeyUnavailable))
    return _WHY + msgspec.json.encode(told)


def reason_of(value: object) -> Unreadable | None:
    """Why the value that this stands for could not be read; None if it is another value."""
    if not isinstance(value, bytes) or not value.startswith(_WHY):
        return None
    try:
        return _reason.decode(value[len(_WHY) :])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Unreadable("the stored value says that it cannot be read")
