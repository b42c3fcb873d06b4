"""The form of an encrypted value. AES-256-GCM, with a random nonce of 96 bits for each value.

    f5 48 46 'E'    this is an encrypted value
    1               the version of the form
    n, key id       which of the tenant's keys; n bytes
    nn, home        the id of the job that it was encrypted for; nn bytes
    nonce           12 bytes
    ciphertext      with its tag of 16 bytes

What is in front of the nonce, and tenant, kind, name, job type and codec of the value are
authenticated. So a value opens only as what it was, for the tenant and the job that it was made
for, and for replays of that job, into which a store copies it.
"""

from __future__ import annotations

import os
from typing import Protocol

import msgspec

from holdfast.core.edge_bounds import KEY_ID_MAX, REPLAYS_MAX
from holdfast.core.errors import DecodeError
from holdfast.core.job import replay_id
from holdfast.core.mapped import ENCRYPTED, MARK
from holdfast.payload.values import Value

SEALED = MARK + b"E"
VERSION = 1
KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
_DOMAIN = b"holdfast value 1"
_AT = len(SEALED) + 1


class Aead(Protocol):
    """What `cryptography` offers."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Cipher:
    """A data key of a tenant, ready for use. Its `repr` shows no secret."""

    __slots__ = ("aead", "id")

    def __init__(self, id: str, secret: bytes) -> None:
        self.id = id
        self.aead = aead_of(secret)

    def __repr__(self) -> str:
        return f"Cipher({self.id!r})"


def aead_of(secret: bytes) -> Aead:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(secret)


class Header(msgspec.Struct, frozen=True):
    """What the front of a value says, before anything of it is authenticated."""

    key_id: str
    home: str
    end: int
    """Where the nonce begins."""


def is_sealed(body: object) -> bool:
    return isinstance(body, bytes) and body.startswith(SEALED)


def seal(cipher: Cipher, value: Value) -> bytes:
    """The value in its encrypted form."""
    key_id, home = cipher.id.encode(), value.id.encode()
    front = b"".join(
        (
            *(SEALED, bytes((VERSION, len(key_id))), key_id),
            *(len(home).to_bytes(2, "big"), home),
        )
    )
    nonce = os.urandom(NONCE_BYTES)
    sealed = cipher.aead.encrypt(nonce, value.body, _bound(front, value, value.codec))
    return front + nonce + sealed


def header_of(value: Value) -> Header:
    """The front of an encrypted value. Raises DecodeError, also for one of a later version."""
    body: bytes = value.body
    version = body[_AT - 1 : _AT]
    if version != bytes((VERSION,)):
        why = f"is encrypted in a form that this version does not know: {version.hex() or 'none'}"
        raise unreadable(value, why)
    try:
        key_id, at = _part(body, _AT, 1, KEY_ID_MAX)
        home, at = _part(body, at, 2, len(body))
    except ValueError as error:
        raise unreadable(value, f"is no encrypted value: {error}") from None
    if len(body) < at + NONCE_BYTES + TAG_BYTES:
        raise unreadable(value, "is cut off")
    return Header(key_id, home, at)


def _part(body: bytes, at: int, width: int, most: int) -> tuple[str, int]:
    """A text with its length in front, and where it ends."""
    start = at + width
    end = start + int.from_bytes(body[at:start], "big")
    if end > len(body) or not 0 < end - start <= most:
        raise ValueError("the length of a part is wrong")
    return body[start:end].decode(), end


def opened(cipher: Cipher, header: Header, value: Value) -> bytes:
    """The plain bytes. Raises DecodeError for a value that was changed, or is of something else."""
    from cryptography.exceptions import InvalidTag

    body: bytes = value.body
    front, end = body[: header.end], header.end + NONCE_BYTES
    bound = _bound(front, value, value.codec.removeprefix(ENCRYPTED))
    try:
        plain = cipher.aead.decrypt(body[header.end : end], body[end:], bound)
    except InvalidTag:
        why = "was changed after it was encrypted, or was encrypted for something else"
        raise unreadable(value, why) from None
    if header.home != value.id and not _is_replay(value.tenant, header.home, value.id):
        raise unreadable(value, f"was encrypted for another job, {header.home!r}")
    return plain


def _bound(front: bytes, value: Value, codec: str) -> bytes:
    """What is authenticated with a value. Lengths in front keep the parts distinct."""
    parts = (value.tenant, value.kind.value, value.name, value.type, codec)
    encoded = (_DOMAIN, front, *(part.encode() for part in parts))
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def _is_replay(tenant: str, home: str, id: str) -> bool:
    """Whether the job is a replay of the one at home, or a replay of a replay of it."""
    for _ in range(REPLAYS_MAX):
        home = replay_id(tenant, home)
        if home == id:
            return True
    return False


def unreadable(value: Value, why: str) -> DecodeError:
    """The error that names the value."""
    what = f"{value.kind.value} {value.name!r}" if value.name else value.kind.value
    return DecodeError(codec="encrypted", type=value.type, why=f"the {what} {why}")
