"""Where blobs are in a bucket.

    blobs/SHARD/TENANT/ID                  the bytes of a blob
    held/SHARD/TENANT/ID/KIND.HOLDER       a note: this job (`job`) or schedule (`schedule`) of the
                                           tenant may need the blob. Its text names both in full
    dying/SHARD/TENANT/ID/SWEEP            a note: this sweep of the upkeep may be deleting the blob
    store                                  a random text: the store whose blobs these are
    usage/TENANT                           how many bytes the tenant had in the last round of sweeps
    clock/SWEEP                            written and read by a sweep, to learn the bucket's time

SHARD is the first two digits of the hexadecimal part of the id, so the upkeep can look at a bucket
in 256 parts. TENANT and HOLDER are segments (`core/blob.py`). The holder of an offloaded body is in
its id; there is a note besides if the segment of its job or its tenant is a hash.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.core.blob import holder_of, name_of, segment
from holdfast.core.errors import BlobNotFound

BLOBS = "blobs"
HELD = "held"
DYING = "dying"
CLOCK = "clock"
OWNER = "store"


class HolderKind(StrEnum):
    """What keeps a blob."""

    JOB = "job"
    SCHEDULE = "schedule"


class Holder(msgspec.Struct, frozen=True, gc=False):
    """A job or a schedule that may need a blob."""

    tenant: str
    kind: HolderKind
    name: str
    """The id of the job, or the name of the schedule."""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A blob as a path names it: its tenant as a segment, and its id."""

    tenant: str
    id: str

    @property
    def path(self) -> str:
        return self._under(BLOBS)

    @property
    def held(self) -> str:
        return self._under(HELD)

    @property
    def dying(self) -> str:
        return self._under(DYING)

    def _under(self, kind: str) -> str:
        return f"{kind}/{shard_of(self.id)}/{self.tenant}/{self.id}"

    def note(self, holder: Holder) -> str:
        """The path of the note that this holder may need the blob."""
        return f"{self.held}/{holder.kind.value}.{segment(holder.name)}"

    @property
    def own_holder(self) -> Holder | None:
        """The job whose body it is, if the path tells: the note does otherwise."""
        tenant, held_by = name_of(self.tenant), holder_of(self.id)
        job = None if held_by is None else name_of(held_by)
        return None if tenant is None or job is None else Holder(tenant, HolderKind.JOB, job)


def placed(tenant: str, id: str) -> Placed:
    """The blob of a tenant with this id, which was checked."""
    return Placed(segment(tenant), id)


def shard_of(id: str) -> str:
    """The part of the bucket in which a blob is."""
    return id.partition("-")[2][:2]


def shard(number: int) -> str:
    return f"{number:02x}"


def placed_at(path: str) -> Placed | None:
    """The blob that a path of any kind is about; None for a path that this code did not make."""
    parts = path.split("/")
    if len(parts) < 4 or len(parts) > 5:
        return None
    found = Placed(parts[2], parts[3])
    return found if path.startswith((found.path, found.held, found.dying)) else None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Holder)


def note_text(holder: Holder) -> bytes:
    return _encoder.encode(holder)


def read_note(text: bytes) -> Holder | None:
    """What a note says; None if it cannot be read."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def holder_at(path: str) -> Holder | None:
    """The holder that the path of a note names, if no segment of it is a hash."""
    parts = path.split("/")
    if len(parts) != 5:
        return None
    kind, _, part = parts[4].partition(".")
    tenant, name = name_of(parts[2]), name_of(part)
    if tenant is None or name is None or kind not in tuple(HolderKind):
        return None
    return Holder(tenant, HolderKind(kind), name)


def not_found(id: str) -> BlobNotFound:
    """The same answer for a blob that is gone and for one of another tenant (P7)."""
    return BlobNotFound(id=id)
