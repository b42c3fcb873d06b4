"""Settings and holds as their keys and values; what is done with them is in `names.py`."""

from __future__ import annotations

import msgspec

from holdfast.clock import Micros
from holdfast.store import Hold
from holdfast.stores.foundationdb.layout import Keys, Space, text, texts


class Kept(msgspec.Struct, frozen=True):
    """A setting as stored. A deleted one keeps its version, so that none is used twice."""

    name: str
    value: bytes | None
    version: int


_encode = msgspec.msgpack.Encoder().encode
_setting = msgspec.msgpack.Decoder(tuple[bytes | None, int])
_hold = msgspec.msgpack.Decoder(tuple[str, int, str])


def setting_key(keys: Keys, name: str) -> bytes:
    return keys.all(Space.SETTINGS, text(name))


def setting_value(value: bytes | None, version: int) -> bytes:
    return _encode((value, version))


def setting_of(keys: Keys, key: bytes, value: bytes) -> Kept:
    [name] = texts(key[len(keys.all(Space.SETTINGS)) :], 1)
    return Kept(name, *_setting.decode(value))


def hold_key(keys: Keys, name: str) -> bytes:
    return keys.all(Space.HOLDS, text(name))


def hold_value(owner: str, until: Micros, note: str) -> bytes:
    return _encode((owner, until, note))


def hold_of(keys: Keys, key: bytes, value: bytes) -> Hold:
    [name] = texts(key[len(keys.all(Space.HOLDS)) :], 1)
    return Hold(name, *_hold.decode(value))
