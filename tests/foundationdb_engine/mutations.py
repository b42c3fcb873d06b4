"""What a transaction does to a key: the atomic operations, and versionstamps put in their place."""

from __future__ import annotations

from collections.abc import Callable

from tests.foundationdb_engine.errors import INVALID_OPERATION, FDBError
from tests.foundationdb_engine.keys import STAMP_BYTES, VALUE_MAX

Mutation = tuple[str, bytes, bytes]
"""The operation's name, the key, and its parameter (the end of the range for `clear_range`)."""

Operation = tuple[str, bytes]
"""An atomic operation on a key that is known: its name and parameter."""


def _fit(old: bytes | None, length: int) -> bytes:
    """The old value cut or filled with zeros to the parameter's length."""
    return (old or b"")[:length].ljust(length, b"\0")


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _add(old: bytes | None, param: bytes) -> bytes:
    length = len(param)
    total = _number(_fit(old, length)) + _number(param)
    return (total % (1 << 8 * length)).to_bytes(length, "little")


def _max(old: bytes | None, param: bytes) -> bytes:
    fitted = _fit(old, len(param))
    return fitted if _number(fitted) > _number(param) else param


def _min(old: bytes | None, param: bytes) -> bytes:
    if old is None:
        return param
    fitted = _fit(old, len(param))
    return fitted if _number(fitted) < _number(param) else param


def _byte_max(old: bytes | None, param: bytes) -> bytes:
    return param if old is None else max(old, param)


def _byte_min(old: bytes | None, param: bytes) -> bytes:
    return param if old is None else min(old, param)


def _and(old: bytes | None, param: bytes) -> bytes:
    if old is None:
        return param
    return bytes(a & b for a, b in zip(_fit(old, len(param)), param, strict=True))


def _or(old: bytes | None, param: bytes) -> bytes:
    return bytes(a | b for a, b in zip(_fit(old, len(param)), param, strict=True))


def _xor(old: bytes | None, param: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(_fit(old, len(param)), param, strict=True))


def _compare_and_clear(old: bytes | None, param: bytes) -> bytes | None:
    return None if old == param else old


def _append_if_fits(old: bytes | None, param: bytes) -> bytes:
    old = old or b""
    return old + param if len(old) + len(param) <= VALUE_MAX else old


ATOMICS: dict[str, Callable[[bytes | None, bytes], bytes | None]] = {
    "add": _add,
    "append_if_fits": _append_if_fits,
    "bit_and": _and,
    "bit_or": _or,
    "bit_xor": _xor,
    "byte_max": _byte_max,
    "byte_min": _byte_min,
    "compare_and_clear": _compare_and_clear,
    "max": _max,
    "min": _min,
}


def atomic(name: str, old: bytes | None, param: bytes) -> bytes | None:
    """The value after an atomic operation; None is no value."""
    return ATOMICS[name](old, param)


def stamp_place(template: bytes) -> int:
    """Where the stamp goes, by the template's last four bytes; refused if it does not fit."""
    place = int.from_bytes(template[-4:], "little")
    if len(template) < 4 or place + STAMP_BYTES > len(template) - 4:
        raise FDBError(INVALID_OPERATION)
    return place


def stamped(template: bytes, stamp: bytes) -> bytes:
    """The template with the stamp in its place, without the four bytes that say where."""
    place = stamp_place(template)
    return template[:place] + stamp + template[place + STAMP_BYTES : -4]


def stamp(version: int, order: int) -> bytes:
    """The ten bytes of a transaction: commit version, then its order in the batch."""
    return version.to_bytes(8, "big") + order.to_bytes(2, "big")
