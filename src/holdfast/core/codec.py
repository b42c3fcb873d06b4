"""Encoding of payloads, readable in any process and after any upgrade of the job type.

A stored payload names its codec and the schema version of its type (`job.Envelope`). A reader
decodes the current version straight into the type; an older one as plain data that passes through
the type's upgrade functions, one version at a time. Pickle runs code on reading, so it must be
switched on by name.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from holdfast.core.bounds import JSON_DEPTH_MAX
from holdfast.core.errors import (
    CodecNotFound,
    ConfigError,
    DecodeError,
    HoldfastError,
    InvalidInput,
    InvalidPayload,
)
from holdfast.core.job import Envelope
from holdfast.core.mapped import PREFIXES, UNREADABLE, Unreadable, reason_of

OBJECT = "object"
"""Not a codec: the object itself, for stores that do not encode."""
JSON = "json"
REFS = "refs"
"""JSON with placeholders for results of other jobs (`core/flow.py`). A worker puts the results in
before it decodes the job; one that does not know the codec releases the job.
"""
BYTES = "bytes"

Upgrade = Callable[[Any], Any]
"""From the plain data of one schema version to the plain data of the next."""


class Codec(Protocol):
    """A format for values.

    `id` is stored with every payload: never reuse one for another format.
    """

    id: str

    def encode(self, value: Any) -> bytes: ...

    def decode(self, body: bytes, type: Any) -> Any:
        """The value as `type`, checked. `typing.Any` returns plain data."""


def to_plain(value: Any) -> Any:
    """Encoding hook of msgspec for types that it does not know: supports models with `model_dump`
    (pydantic).
    """
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"cannot encode {type(value).__name__}")


def from_plain(kind: Any, value: Any) -> Any:
    """Decoding hook of msgspec: the inverse of `to_plain`."""
    if isinstance(value, kind):
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"cannot decode {kind.__name__}")


# -- JSON that is passed on without parsing --------------------------------------------------------

_raw = msgspec.json.Decoder(msgspec.Raw)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_RUNS = re.compile(rb"\[+|\]+")
_OPEN = ord("[")
_SHALLOW = 8
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def json_fault(body: bytes) -> str | None:
    """Why the bytes may not be inserted into a JSON answer unchanged; None if they may.

    Checks grammar, encoding and depth without building objects: 0.2 ms for 256 KiB.
    """
    try:
        _raw.decode(body)
        body.decode()
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return f"is not JSON: {error}"
    return _TOO_DEEP if _is_deep(body) else None


_TOO_DEEP = f"is nested more than {JSON_DEPTH_MAX} levels deep"


def _is_deep(body: bytes) -> bool:
    """Whether valid JSON is nested too deep. Most JSON has too few brackets for that."""
    if len(body) <= JSON_DEPTH_MAX or body.count(b"[") + body.count(b"{") <= JSON_DEPTH_MAX:
        return False
    # Without escaped quotes, every second part between quotes is outside of strings.
    outside = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(_SHALLOW):  # Each round removes the innermost level.
        brackets = brackets.replace(b"[]", b"")
    level = _SHALLOW  # For the rest, which has few changes between opening and closing brackets.
    for run in _RUNS.finditer(brackets):
        length = run.end() - run.start()
        level += length if brackets[run.start()] == _OPEN else -length
        if level > JSON_DEPTH_MAX:
            return True
    return False


class JsonCodec:
    id = JSON

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder(enc_hook=to_plain)
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    def encode(self, value: Any) -> bytes:
        body = self._encoder.encode(value)
        if _is_deep(body):
            raise ValueError(_TOO_DEEP)
        return body

    def decode(self, body: bytes, type: Any) -> Any:
        decoder = self._decoders.get(type)
        if decoder is None:
            decoder = self._decoders[type] = msgspec.json.Decoder(type, dec_hook=from_plain)
        return decoder.decode(body)


class RefsCodec(JsonCodec):
    """Of results of jobs with placeholders: their payloads are not decoded by it."""

    id = REFS


class MsgpackCodec:
    id = "msgpack"

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=to_plain)
        self._decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}

    def encode(self, value: Any) -> bytes:
        return self._encoder.encode(value)

    def decode(self, body: bytes, type: Any) -> Any:
        decoder = self._decoders.get(type)
        if decoder is None:
            decoder = self._decoders[type] = msgspec.msgpack.Decoder(type, dec_hook=from_plain)
        return decoder.decode(body)


class BytesCodec:
    """Raw bytes, for callers in other languages. A job with one argument, `body`, can read them."""

    id = BYTES

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return bytes(_fields(value)["body"])

    def decode(self, body: bytes, type: Any) -> Any:
        if type in (Any, object, bytes):
            return body
        return msgspec.convert({"body": body}, type)


class PickleCodec:
    """Pickle, for values that the other codecs cannot encode.

    Decoding runs code, so only use it if you trust everyone who can write to the store.
    """

    id = "pickle"

    def encode(self, value: Any) -> bytes:
        return pickle.dumps(_fields(value), protocol=5)

    def decode(self, body: bytes, type: Any) -> Any:
        return msgspec.convert(pickle.loads(body), type, dec_hook=from_plain)


def _fields(value: Any) -> Any:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value


class Codecs:
    """The codecs of an app, by id."""

    def __init__(self, *, pickle: bool = False) -> None:
        self._known: dict[str, Codec] = {}
        for codec in (JsonCodec(), RefsCodec(), MsgpackCodec(), BytesCodec()):
            self.register(codec)
        if pickle:
            self.register(PickleCodec())

    def register(self, codec: Codec, *, replace: bool = False) -> None:
        """Adds a codec. Refuses an id that is taken, unless `replace` is set."""
        if codec.id in (OBJECT, UNREADABLE) or codec.id.startswith(PREFIXES):
            raise ConfigError(field="codec", why=f"id {codec.id!r} is reserved for the library")
        if codec.id in self._known and not replace:
            raise ConfigError(field="codec", why=f"id {codec.id!r} is taken; use replace=True")
        self._known[codec.id] = codec

    def get(self, id: str) -> Codec:
        try:
            return self._known[id]
        except KeyError:
            raise CodecNotFound(codec=id, known=", ".join(sorted(self._known))) from None

    def seal(self, type: str, version: int, codec: str, value: Any) -> Envelope:
        """The envelope of a value. The codec `object` keeps the value itself."""
        if codec == OBJECT:
            return Envelope(type, codec, version, value)
        try:
            body = self.get(codec).encode(value)
        except CodecNotFound:
            raise
        except Exception as error:
            raise InvalidPayload(field="payload", type=type, why=str(error)) from error
        return Envelope(type, codec, version, body)

    def unseal(
        self, envelope: Envelope, kind: Any, version: int, upgrades: Mapping[int, Upgrade]
    ) -> Any:
        """The value as `kind`, upgraded to `version`. Raises DecodeError if it cannot be read.

        CodecNotFound is not a DecodeError: another process may know the codec. KeyUnavailable says
        that it may be readable later.
        """
        if envelope.codec == UNREADABLE:
            raise unread(envelope.type, envelope.body)
        try:
            if envelope.codec == OBJECT:
                return _handed(envelope, kind)
            codec = self.get(envelope.codec)
            if envelope.version == version:
                return codec.decode(envelope.body, kind)
            plain = codec.decode(envelope.body, Any)
            for step in range(envelope.version, version):
                plain = _upgrade(upgrades, step)(plain)
            return msgspec.convert(plain, kind, dec_hook=from_plain)
        except CodecNotFound:
            raise
        except Exception as error:
            why = f"version {envelope.version}: {error or type(error).__name__}"
            raise DecodeError(codec=envelope.codec, type=envelope.type, why=why) from error

    def unseal_result(self, codec: str, body: Any, kind: Any = Any) -> Any:
        """A result as the type in the handler's annotation, or as plain data if it does not fit."""
        if body is None or codec == OBJECT:
            return body
        if codec == UNREADABLE:
            raise unread("result", body)
        try:
            reader = self.get(codec)
            if kind is not Any:
                with suppress(
                    Exception
                ):  # A handler may return something else than its annotation says.
                    return reader.decode(body, kind)
            return reader.decode(body, Any)
        except CodecNotFound:
            raise
        except Exception as error:
            raise DecodeError(codec=codec, type="result", why=str(error)) from error

    def unseal_result_as(self, codec: str, body: Any, kind: Any) -> Any:
        """A result as this type. Raises DecodeError if it does not fit."""
        if codec == UNREADABLE and body is not None:
            raise unread("result", body)
        try:
            if body is None or codec == OBJECT:
                return _fitted(body, kind)
            return self.get(codec).decode(body, kind)
        except CodecNotFound:
            raise
        except Exception as error:
            wanted = getattr(kind, "__name__", kind)
            why = f"it does not fit {wanted}: {error}"
            raise DecodeError(codec=codec, type="result", why=why) from error


def unread(type: str, body: Any) -> HoldfastError:
    """Why what has the codec UNREADABLE could not be read."""
    reason = reason_of(body) or Unreadable("what stands for it does not say why")
    return reason.error(type)


def check_type(field: str, kind: Any) -> None:
    """Raises InvalidInput if no value could be decoded as this."""
    try:
        msgspec.json.Decoder(kind, dec_hook=from_plain)
    except Exception as error:
        why = f"must be a type that a result can be decoded as: {error}"
        raise InvalidInput(field=field, why=why) from error


def _fitted(value: Any, kind: Any) -> Any:
    """An object that was not encoded, as it would be after encoding and decoding."""
    if type(value) is kind:
        return value
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=to_plain)
    return msgspec.convert(plain, kind, str_keys=True, dec_hook=from_plain)


def _upgrade(upgrades: Mapping[int, Upgrade], step: int) -> Upgrade:
    if step not in upgrades:
        raise LookupError(f"there is no upgrade from version {step}")
    return upgrades[step]


def _handed(envelope: Envelope, kind: Any) -> Any:
    if not isinstance(envelope.body, kind):
        raise TypeError(f"not a {kind.__name__}")
    return envelope.body
