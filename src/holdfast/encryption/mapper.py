"""Encrypts what jobs carry, by the keys of their tenants."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.bounds import MAPPED_MORE
from holdfast.core.errors import HoldfastError, InvalidInput, KeyErased
from holdfast.core.mapped import ENCRYPTED, UNREADABLE
from holdfast.encryption.ring import Found, Named, Ring
from holdfast.encryption.sealed import (
    Header,
    header_of,
    is_sealed,
    opened,
    seal,
    unreadable,
)
from holdfast.payload.values import FOR_PEOPLE, Mapped, Use, Value
from holdfast.store import Capabilities

CODEC_MAX = 64
"""Characters that the name of a codec may have in a store."""


class Encrypting:
    """The mapper. With `require` it refuses plain values, but for texts: stores write some too."""

    def __init__(self, ring: Ring, *, require: bool = False) -> None:
        self.ring = ring
        self.require = require

    def capabilities(self, inner: Capabilities) -> Capabilities:
        most = inner.payload_max
        less = None if most is None else max(1, most - MAPPED_MORE)
        return msgspec.structs.replace(inner, encodes=True, payload_max=less)

    async def prepare(self, tenant: str) -> None:
        await self.ring.newest([tenant])

    async def close(self) -> None: ...

    async def outgoing(self, values: Sequence[Value]) -> list[Mapped]:
        keys = await self.ring.newest({value.tenant for value in values})
        return [_sealed(value, keys[value.tenant]) for value in values]

    async def incoming(self, values: Sequence[Value], use: Use) -> list[Mapped]:
        headers = [_header(value) for value in values]
        wanted: set[Named] = {
            (value.tenant, header.key_id)
            for value, header in zip(values, headers, strict=True)
            if isinstance(header, Header)
        }
        keys = await self.ring.named(wanted) if wanted else {}
        return [
            self._opened(value, header, keys) for value, header in zip(values, headers, strict=True)
        ]

    def _opened(
        self, value: Value, header: Header | HoldfastError | None, keys: dict[Named, Found]
    ) -> Mapped:
        if isinstance(header, HoldfastError):
            return header
        if header is None:
            return self._plain(value)
        key = keys[value.tenant, header.key_id]
        if isinstance(key, KeyErased):
            why = f"cannot be read: the keys of tenant {value.tenant!r} were erased"
            return unreadable(value, why)
        if isinstance(key, HoldfastError):
            return key
        try:
            body = opened(key, header, value)
        except HoldfastError as error:
            return error
        return msgspec.structs.replace(value, codec=value.codec.removeprefix(ENCRYPTED), body=body)

    def _plain(self, value: Value) -> Mapped:
        """A value that is not encrypted: of before, or of somebody who may write to the store."""
        if value.codec.startswith(ENCRYPTED):
            return unreadable(value, "is plain, and its codec says that it is encrypted")
        if self.require and value.kind not in FOR_PEOPLE:
            return unreadable(value, "is not encrypted, which is required here")
        return value


def _header(value: Value) -> Header | HoldfastError | None:
    if not is_sealed(value.body):
        return None
    try:
        return header_of(value)
    except HoldfastError as error:
        return error


def _sealed(value: Value, key: Found) -> Mapped:
    if isinstance(key, HoldfastError):
        return key
    if value.codec == UNREADABLE:
        return InvalidInput(field="payload", why="stands for one that could not be read")
    if not isinstance(value.body, bytes):
        why = f"must be bytes to be encrypted, not {type(value.body).__name__}"
        return InvalidInput(field=value.kind.value, why=why)
    codec = f"{ENCRYPTED}{value.codec}" if value.codec else ""
    if len(codec) > CODEC_MAX:
        most = CODEC_MAX - len(ENCRYPTED)
        why = f"has {len(value.codec)} characters, at most {most} where it is encrypted"
        return InvalidInput(field="codec", why=why)
    return msgspec.structs.replace(value, codec=codec, body=seal(key, value))
