"""Payloads that are handed over as they are: how large they are, and whether runs may share one."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from holdfast.job import NewJob

PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""What nobody can change in place."""


def fixed(body: Any) -> bool:
    """Whether nothing of the payload can be changed in place, so that it needs no copy."""
    kind = type(body)
    if kind in PLAIN:
        return True
    if not isinstance(body, msgspec.Struct):
        return False
    return kind.__struct_config__.frozen and all(
        type(getattr(body, field)) in PLAIN for field in kind.__struct_fields__
    )


def copied(body: Any) -> Any:
    """A copy that shares nothing that can be changed, where the payload can be copied at all."""
    try:
        return copy.deepcopy(body)
    except Exception:  # An open file, a lock: whoever puts it into a payload means this very one.
        return body


def size_of(body: Any) -> int:
    """The bytes of a payload: as JSON, if it is an object."""
    if isinstance(body, bytes):
        return len(body)
    try:
        return len(msgspec.json.encode(body, enc_hook=repr))
    except Exception:
        return len(repr(body))


def own(job: NewJob) -> NewJob:
    """The job with a payload that its sender cannot change any more."""
    envelope = job.envelope
    if fixed(envelope.body):
        return job
    mine = msgspec.structs.replace(envelope, body=copied(envelope.body))
    return msgspec.structs.replace(job, envelope=mine)
