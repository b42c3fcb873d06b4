"""References to blobs: what a job carries in place of data that is kept in a bucket. Pure.

    id                  what it is                              who keeps it
    blob-HEX            put by a caller                         jobs and schedules that name it
    body-HEX.HOLDER     a payload, result or step, offloaded    the job HOLDER, and its replays

An id says nothing about its tenant: code makes the path of a blob from the tenant that asks
(`payload/layout.py`), so no reference leads to a blob of another tenant.

A body that was offloaded leaves a reference in its place: OFFLOADED and a BlobRef in JSON. The
codec of a payload then has a prefix, as in `blob+json`; see `core/mapped.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from holdfast.core.bounds import JSON_DEPTH_MAX
from holdfast.core.check import check_name, check_whole
from holdfast.core.edge_bounds import BLOB_MAX, BLOB_SEGMENT_MAX, BLOBS_NAMED_MAX, MEDIA_TYPE_MAX
from holdfast.core.errors import BlobNotFound, DecodeError, InvalidInput
from holdfast.core.mapped import MARK

OFFLOADED = MARK + b"b"
"""What the text begins with that is stored in place of a body."""

_ID = re.compile(
    rf"(?:blob-[0-9a-f]{{32}}|body-[0-9a-f]{{32}}\.[a-z0-9_~-]{{1,{BLOB_SEGMENT_MAX}}})"
)
_NAMED = re.compile(_ID.pattern.encode())
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BlobRef(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A reference to a blob of the job's tenant: its id, its size in bytes and its SHA-256."""

    id: str
    size: int
    sha256: str
    media_type: str | None = None

    def checked(self) -> BlobRef:
        """Returns itself. Raises BlobNotFound for an id that no blob has, and InvalidInput, which
        names the field, for another wrong value: a reference may come from outside.
        """
        if not isinstance(self.id, str) or _ID.fullmatch(self.id) is None:
            raise BlobNotFound(id=f"{self.id!s:.200}")
        check_whole("size", self.size, 0, BLOB_MAX)
        if not isinstance(self.sha256, str) or _SHA256.fullmatch(self.sha256) is None:
            raise InvalidInput(field="sha256", why="must be 64 hexadecimal digits")
        check_media(self.media_type)
        return self


def check_media(media_type: str | None) -> str | None:
    """The media type, if it can be sent in a header."""
    if media_type is not None:
        check_name("media_type", media_type, MEDIA_TYPE_MAX)
        if not media_type.isascii():
            raise InvalidInput(field="media_type", why="must be ASCII")
    return media_type


# -- what stands for an offloaded body -------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(BlobRef)


def offloaded(ref: BlobRef) -> bytes:
    """What is stored in place of a body."""
    return OFFLOADED + _encoder.encode(ref)


def is_offloaded(body: Any) -> bool:
    """Whether this stands for a body that was offloaded."""
    return isinstance(body, bytes) and body.startswith(OFFLOADED)


def read_reference(body: bytes) -> BlobRef:
    """The reference to the body. Raises DecodeError if it is forged or damaged."""
    try:
        return _decoder.decode(body[len(OFFLOADED) :]).checked()
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidInput, BlobNotFound) as error:
        why = f"it is not a reference to a blob: {error}"
        raise DecodeError(codec="blob", type="blob", why=why) from error


def offloaded_bytes(body: Any) -> int:
    """How many bytes loading a body brings; 0 if it is there."""
    if not is_offloaded(body):
        return 0
    try:
        return read_reference(body).size
    except DecodeError:
        return 0


# -- names -----------------------------------------------------------------------------------------

_UNSAFE = re.compile(rb"[^a-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_SEGMENT = re.compile(r"(?:[a-z0-9-]|_[0-9a-f]{2})+")


def segment(name: str) -> str:
    """A tenant or an id as one part of a path, in characters that every bucket takes and that no
    file system folds. Different names have different segments. A long one is a hash.
    """
    escaped = _UNSAFE.sub(lambda found: b"_%02x" % found[0][0], name.encode()).decode()
    if len(escaped) <= BLOB_SEGMENT_MAX:
        return escaped
    return "~" + hashlib.sha256(name.encode()).hexdigest()


def name_of(part: str) -> str | None:
    """The name of a segment; None for a hash, and for what is no segment."""
    if _SEGMENT.fullmatch(part) is None:
        return None
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), part)
    try:
        return plain.encode("latin-1").decode()
    except UnicodeDecodeError:
        return None


def put_id(token: str) -> str:
    """The id of a blob that a caller puts. The token is 32 random hexadecimal digits."""
    return f"blob-{token}"


def body_id(token: str, job: str) -> str:
    """The id of a body of a job, with the same kind of token. It is never used again."""
    return f"body-{token}.{segment(job)}"


def holder_of(id: str) -> str | None:
    """The segment of the job whose body this is; None for a blob that a caller put."""
    _, dot, holder = id.partition(".")
    return holder if dot else None


# -- what a value names ----------------------------------------------------------------------------


def named_in(body: Any) -> tuple[str, ...]:
    """The ids of the blobs that a body names. InvalidInput if these are more than
    BLOBS_NAMED_MAX. Encoded bodies are searched as text, so the codec does not matter.
    """
    if isinstance(body, bytes):
        if b"blob-" not in body and b"body-" not in body:
            return ()
        found = dict.fromkeys(each[0].decode() for each in _NAMED.finditer(body))
    else:
        found = dict.fromkeys(
            ref.id for ref in _refs(body, JSON_DEPTH_MAX) if _ID.fullmatch(ref.id)
        )
    if len(found) > BLOBS_NAMED_MAX:
        why = f"names {len(found)} blobs, at most {BLOBS_NAMED_MAX}"
        raise InvalidInput(field="payload", why=why)
    return tuple(found)


def _refs(value: Any, depth: int) -> Iterator[BlobRef]:
    """The references in an object that was not encoded."""
    if isinstance(value, BlobRef):
        yield value
        return
    if depth == 0 or value is None or isinstance(value, str | bytes | int | float):
        return
    inside: Any = ()
    if isinstance(value, msgspec.Struct):
        inside = (getattr(value, name) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    elif is_dataclass(value):
        inside = (getattr(value, one.name) for one in fields(value))
    elif hasattr(value, "model_dump"):
        inside = vars(value).values()
    for each in inside:
        yield from _refs(each, depth - 1)
