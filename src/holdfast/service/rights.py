"""Who may do what: the rights of a token, and the caller they were given to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from holdfast.errors import HoldfastError


class Right(StrEnum):
    """What a route asks for. Admin includes all others; operate includes read."""

    PRODUCE = "produce"
    WORK = "work"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


_INCLUDED = {
    Right.ADMIN: frozenset(Right),
    Right.OPERATE: frozenset({Right.OPERATE, Right.READ}),
}


def rights(names: Iterable[Right]) -> frozenset[Right]:
    """These, and what they include."""
    found: set[Right] = set()
    for name in names:
        found |= _INCLUDED.get(name, frozenset({name}))
    return frozenset(found)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls. Made by `auth`, asked by every handler."""

    name: str
    """For logs and as the author of changes; never the token itself."""
    tenant: str | None
    """None may act for any tenant and names one by header."""
    rights: frozenset[Right]
    queues: tuple[str, ...] | None = None
    """None is every queue."""
    types: tuple[str, ...] | None = None
    until: float | None = None
    """When its token ends, in seconds since 1970: a stream does not outlive it. None is never."""

    @property
    def over(self) -> bool:
        """Whether its token has ended meanwhile."""
        return self.until is not None and time.time() >= self.until

    @property
    def key(self) -> str:
        """What rate limits count by."""
        return f"{self.name}/{self.tenant or ''}"

    def may_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def may_type(self, type: str) -> bool:
        return self.types is None or type in self.types

    def check_queue(self, queue: str) -> None:
        if not self.may_queue(queue):
            raise Forbidden(why=f"this token is not for queue {queue!r}")

    def check_type(self, type: str) -> None:
        if not self.may_type(type):
            raise Forbidden(why=f"this token is not for jobs of type {type!r}")

    def queues_of(self, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The queues asked for, or all that it may; Forbidden for one that it may not."""
        if self.queues is None:
            return asked
        for queue in asked or ():
            self.check_queue(queue)
        return asked or self.queues


class Unauthenticated(HoldfastError):
    """No token, or one that does not hold."""

    code = "UNAUTHENTICATED"
    text = "{why}"


class Forbidden(HoldfastError):
    """The token holds, and does not allow this."""

    code = "FORBIDDEN"
    text = "{why}"
