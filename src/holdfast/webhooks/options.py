"""The arguments of a webhook's `set`, checked and made into fields of its definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypedDict, TypeVar

import msgspec

from holdfast.core.check import check_seconds
from holdfast.core.clock import micros
from holdfast.core.edge_bounds import (
    WEBHOOK_HEADERS_BYTES_MAX,
    WEBHOOK_HEADERS_MAX,
    WEBHOOK_PAUSE_S_MAX,
)
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.job import EventKind
from holdfast.outbound.request import checked_headers
from holdfast.webhooks.definition import Include, Key, Secrets
from holdfast.webhooks.signing import check_secret, new_secret

NOT_OWN = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "user-agent", "keep-alive"}
)
"""Headers that a webhook cannot set: they belong to the request, or to the connection."""

W = TypeVar("W", bound=StrEnum)


class WebhookOptions(TypedDict, total=False):
    """The arguments of `set`. What is not named stays."""

    url: str
    kinds: Iterable[EventKind | str]
    types: Iterable[str]
    queues: Iterable[str]
    include: Iterable[Include | str]
    headers: Mapping[str, str]
    attempts: int
    pause_after: float
    """In seconds."""
    secret: str


class Wanted(msgspec.Struct, frozen=True):
    """What a call of `set` wants."""

    fields: dict[str, object]
    """Of the definition."""
    headers: dict[str, str] | None
    """None: as they are."""
    secret: str | None
    """None: as it is, or a random one for a new webhook."""

    def __repr__(self) -> str:
        return "Wanted(<redacted>)"

    def secrets(self, kept: Secrets | None) -> tuple[Secrets, str | None]:
        """What is stored of the secrets, and the secret if it is a new one."""
        headers = self.headers
        if headers is None:
            headers = {} if kept is None else kept.headers
        if kept is not None and self.secret in (None, kept.keys[0].secret):
            return Secrets(kept.keys, headers), None
        new = self.secret or new_secret()
        return Secrets((Key(new),), headers).checked(), new


def wanted_of(given: WebhookOptions) -> Wanted:
    """What these arguments want. Raises InvalidInput, which names the wrong argument."""
    known = WebhookOptions.__annotations__
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidInput(field=name, why=f"there is no such argument.{hint}")
    fields = _fields(given)
    headers = None if "headers" not in given else _headers(given["headers"])
    if headers is not None:
        fields["headers"] = tuple(sorted(headers))
    secret = None if "secret" not in given else check_secret(given["secret"])
    return Wanted(fields, headers, secret)


def _fields(given: WebhookOptions) -> dict[str, object]:
    """The fields of the definition that are named."""
    found: dict[str, object] = {}
    if "url" in given:
        found["url"] = given["url"]
    if "kinds" in given:
        found["kinds"] = _words("kinds", EventKind, given["kinds"])
    if "include" in given:
        found["include"] = _words("include", Include, given["include"])
    for field in ("types", "queues"):
        if field in given:
            found[field] = tuple(dict.fromkeys(_several(field, given[field])))
    if "attempts" in given:
        found["attempts"] = given["attempts"]
    if "pause_after" in given:
        length_s = check_seconds("pause_after", given["pause_after"], 60.0, WEBHOOK_PAUSE_S_MAX)
        found["pause_after_us"] = micros(length_s)
    return found


def _several(field: str, given: Iterable[str]) -> list[str]:
    if isinstance(given, str):
        raise InvalidInput(field=field, why="must be a list")
    return list(given)


def _words(field: str, kind: type[W], given: Iterable[W | str]) -> tuple[W, ...]:
    found: dict[W, None] = {}
    for word in _several(field, given):
        try:
            found[kind(word)] = None
        except ValueError:
            hint = did_you_mean(str(word), kind)
            raise InvalidInput(field=field, why=f"there is no {word!r}.{hint}") from None
    return tuple(found)


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    """The webhook's own headers. Errors show no value."""
    if len(given) > WEBHOOK_HEADERS_MAX:
        why = f"has {len(given)}, at most {WEBHOOK_HEADERS_MAX}"
        raise InvalidInput(field="headers", why=why)
    headers = checked_headers(given)
    for name in headers:
        if name in NOT_OWN or name.startswith(("holdfast-", "proxy-", "accept-encoding")):
            raise InvalidInput(field="headers", why=f"{name} cannot be set")
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > WEBHOOK_HEADERS_BYTES_MAX:
        why = f"have {size} characters, at most {WEBHOOK_HEADERS_BYTES_MAX}"
        raise InvalidInput(field="headers", why=why)
    if not all(value.isascii() for value in headers.values()):
        raise InvalidInput(field="headers", why="must have values in ASCII")
    return headers
