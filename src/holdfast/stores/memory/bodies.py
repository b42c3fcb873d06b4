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
    if not isinstance(body, msgspec.Struct):
        return _plain(body)
    kind = type(body)
    return kind.__struct_config__.frozen and all(
        _plain(getattr(body, field)) for field in kind.__struct_fields__
    )


def _plain(value: Any) -> bool:
    return type(value) in PLAIN or (type(value) is tuple and all(map(_plain, value)))


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
