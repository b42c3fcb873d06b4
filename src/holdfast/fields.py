"""The fields of a job as clients write them in JSON, with their bounds. The shapes of the service
and of flows in JSON are made of them.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.core.bounds import (
    GROUP_MAX,
    ID_MAX,
    KEY_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    QUEUE_MAX,
    TAG_MAX,
    TAGS_MAX,
    TYPE_MAX,
)
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.retry import RetryPolicy

TypeName = Annotated[str, Meta(min_length=1, max_length=TYPE_MAX)]
QueueName = Annotated[str, Meta(min_length=1, max_length=QUEUE_MAX)]
GroupName = Annotated[str, Meta(min_length=1, max_length=GROUP_MAX)]
JobId = Annotated[str, Meta(min_length=1, max_length=ID_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_MAX)]
Tag = Annotated[str, Meta(min_length=1, max_length=TAG_MAX)]
Seconds = Annotated[float, Meta(ge=0)]


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request shapes: an unknown field is an error."""


class TypeFields(Strict, kw_only=True):
    """The options that a job type has as well. Durations are in seconds."""

    queue: QueueName | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    retry: str | RetryPolicy | UnsetType = UNSET
    timeout: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    keep: Seconds | UnsetType = UNSET
    keep_failed: Seconds | UnsetType = UNSET


class LaterFields(TypeFields, kw_only=True):
    """The options of a job that is made later."""

    group: GroupName | UnsetType = UNSET
    ttl: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    tags: Annotated[tuple[Tag, ...], Meta(max_length=TAGS_MAX)] | UnsetType = UNSET


class EnqueueFields(LaterFields, kw_only=True):
    """The options of an enqueue, but for the id."""

    delay: Seconds | UnsetType = UNSET
    run_at: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET
    key: Key | UnsetType = UNSET
    key_for: Seconds | UnsetType = UNSET


def given(values: msgspec.Struct, *without: str) -> dict[str, Any]:
    """The fields that were set, by name."""
    found = {
        name: value
        for name in values.__struct_fields__
        if (value := getattr(values, name)) is not UNSET
    }
    for name in without:
        found.pop(name, None)
    return found


_PLACE = re.compile(r"at `(?:key in )?\$(.*?)`")
_FIELD = re.compile(r"(?:required|unknown) field `(.*?)`")


def unfit(error: msgspec.ValidationError, kind: Any) -> InvalidInput:
    """The invalid field, and why it is invalid."""
    text = str(error)
    place, named = _PLACE.search(text), _FIELD.search(text)
    field = (place[1] if place else "").strip(".")
    why, hint = text.partition(" - at ")[0], ""
    if named is not None:
        field = f"{field}.{named[1]}".strip(".")
        if "unknown" in text and hasattr(kind, "__struct_fields__"):
            hint = did_you_mean(named[1], kind.__struct_fields__)
        why = "is missing" if "missing" in text else f"there is no such field.{hint}"
    return InvalidInput(field=field or "body", why=why)
