"""Encrypted values: they open only as what they were, for the job that they were made for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import MAPPED_MORE
from holdfast.core.edge_bounds import KEY_ID_MAX
from holdfast.core.errors import DecodeError
from holdfast.core.job import replay_id
from holdfast.core.mapped import ENCRYPTED
from holdfast.encryption.sealed import (
    SEALED,
    VERSION,
    Cipher,
    header_of,
    is_sealed,
    opened,
    seal,
)
from holdfast.payload.values import Kind, Value

CIPHER = Cipher("k1", b"s" * 32)
PLAIN = Value("acme", "j1", Kind.PAYLOAD, "", "json", b'{"secret":"marker"}', "send")


def sealed(value: Value = PLAIN, cipher: Cipher = CIPHER) -> Value:
    """The value as a store has it."""
    codec = f"{ENCRYPTED}{value.codec}" if value.codec else ""
    return msgspec.structs.replace(value, body=seal(cipher, value), codec=codec)


def read(value: Value, cipher: Cipher = CIPHER) -> bytes:
    return opened(cipher, header_of(value), value)


def with_body(body: bytes) -> Value:
    return msgspec.structs.replace(sealed(), body=body)


def test_a_value_comes_back() -> None:
    """Also an empty one."""
    assert read(sealed()) == PLAIN.body
    empty = msgspec.structs.replace(PLAIN, body=b"")
    assert read(sealed(empty)) == b""


def test_equal_values_are_stored_differently() -> None:
    """So nobody can tell that two jobs carry the same."""
    assert sealed().body != sealed().body
    assert b"marker" not in sealed().body


@pytest.mark.parametrize("field", ["tenant", "id", "kind", "name", "type", "codec"])
def test_a_value_of_something_else_does_not_open(field: str) -> None:
    """A value that is copied to another tenant, job, step or kind is refused."""
    other: Any = Kind.RESULT if field == "kind" else "other"
    moved = msgspec.structs.replace(sealed(), **{field: other})
    with pytest.raises(DecodeError):
        read(moved)


def test_no_bit_can_be_changed() -> None:
    """Of the front, the nonce, the ciphertext and the tag."""
    body = sealed().body
    for at in range(8 * len(body)):
        changed = bytearray(body)
        changed[at // 8] ^= 1 << (at % 8)
        value = with_body(bytes(changed))
        if is_sealed(value.body):
            with pytest.raises(DecodeError):
                read(value)


def test_no_part_can_be_cut_off() -> None:
    """Each length is refused with an error of our own."""
    body = sealed().body
    for length in range(len(SEALED), len(body)):
        with pytest.raises(DecodeError):
            read(with_body(body[:length]))
    with pytest.raises(DecodeError):
        read(with_body(body + b"\0"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (SEALED, "form that this version does not know"),
        (SEALED + bytes((VERSION + 1,)) + b"x" * 99, "form that this version does not know: 02"),
        (SEALED + bytes((VERSION, 255)) + b"x" * 400, "the length of a part is wrong"),
        (SEALED + bytes((VERSION, 0)) + b"x" * 400, "the length of a part is wrong"),
        (SEALED + bytes((VERSION, KEY_ID_MAX + 1)) + b"x" * 400, "the length of a part is wrong"),
        (SEALED + bytes((VERSION, 1)) + b"k\xff\xff" + b"x" * 400, "the length of a part is wrong"),
        (SEALED + bytes((VERSION, 1)) + b"\xff\x00\x01j" + b"x" * 400, "codec can't decode"),
        (SEALED + bytes((VERSION, 1)) + b"k\x00\x01j" + b"x" * 27, "is cut off"),
    ],
)
def test_a_forged_front_is_refused(body: bytes, words: str) -> None:
    """Whatever it says about lengths, keys and versions."""
    with pytest.raises(DecodeError, match=words):
        read(with_body(body))


def test_another_key_does_not_open_it() -> None:
    """The error says that it was changed, or is of something else, and nothing more."""
    with pytest.raises(DecodeError, match="was changed after it was encrypted"):
        read(sealed(), Cipher("k1", b"t" * 32))


def test_a_replay_opens_what_the_store_copied() -> None:
    """Also a replay of a replay; but no other job that says that it is one."""
    first = replay_id("acme", "j1")
    second = replay_id("acme", first)
    for id in (first, second):
        assert read(msgspec.structs.replace(sealed(), id=id)) == PLAIN.body
    for id in (replay_id("acme", "j2"), replay_id("other", "j1"), "replay-0"):
        with pytest.raises(DecodeError, match="for another job, 'j1'"):
            read(msgspec.structs.replace(sealed(), id=id))


def test_the_origin_does_not_open_what_its_replay_wrote() -> None:
    """Values go from an origin to its replay, never back."""
    later = sealed(msgspec.structs.replace(PLAIN, id=replay_id("acme", "j1")))
    with pytest.raises(DecodeError):
        read(msgspec.structs.replace(later, id="j1"))


def test_a_value_grows_by_less_than_its_bound() -> None:
    """Also with the longest id, of characters of four bytes, and the longest id of a key."""
    value = msgspec.structs.replace(PLAIN, id="\N{GRINNING FACE}" * 128)
    cipher = Cipher("k" * KEY_ID_MAX, b"s" * 32)
    assert len(seal(cipher, value)) <= len(value.body) + MAPPED_MORE


def test_a_cipher_shows_no_secret() -> None:
    """In logs and tracebacks."""
    assert repr(CIPHER) == "Cipher('k1')"
