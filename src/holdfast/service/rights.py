"""Rights of tokens, and the caller who has them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.scope import Scope, ScopeKind


class Right(StrEnum):
    """What a route requires. Admin includes all others; platform includes operate, operate read.

    Platform is a right over all tenants: a token of one tenant never has it (`Caller`).
    """

    PRODUCE = "produce"
    WORK = "work"
    READ = "read"
    OPERATE = "operate"
    PLATFORM = "platform"
    ADMIN = "admin"


_INCLUDED = {
    Right.ADMIN: frozenset(Right),
    Right.PLATFORM: frozenset({Right.PLATFORM, Right.OPERATE, Right.READ}),
    Right.OPERATE: frozenset({Right.OPERATE, Right.READ}),
}


def rights(names: Iterable[Right], tenant: str | None = None) -> frozenset[Right]:
    """These rights and those that they include. For one tenant, without platform and what only
    platform includes.
    """
    found: set[Right] = set()
    for name in names:
        if tenant is None or name is not Right.PLATFORM:
            found |= _INCLUDED.get(name, frozenset({name}))
    return frozenset(found if tenant is None else found - {Right.PLATFORM})


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request. `auth` creates it, every handler checks it."""

    name: str
    """The name for logs and as the author of changes; never the token itself."""
    tenant: str | None
    """None: it may act for any tenant and names one by header."""
    rights: frozenset[Right]
    queues: tuple[str, ...] | None = None
    """None: every queue."""
    types: tuple[str, ...] | None = None
    until: float | None = None
    """When its token expires, in seconds since 1970; streams end then too. None: never."""

    @property
    def over(self) -> bool:
        """Whether its token has expired."""
        return self.until is not None and time.time() >= self.until

    @property
    def key(self) -> str:
        """The key for rate limits."""
        return f"{self.name}/{self.tenant or ''}"

    @property
    def platform(self) -> bool:
        """Whether it acts for the platform, which may set what a tenant may not change."""
        return self.tenant is None and Right.PLATFORM in self.rights

    def may_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def may_type(self, type: str) -> bool:
        return self.types is None or type in self.types

    def check_queue(self, queue: str) -> None:
        if not self.may_queue(queue):
            raise Forbidden(why=f"this token is not for queue {queue!r}")

    def may_scope(self, scope: Scope) -> bool:
        """Whether it may act on a scope: change it, hold its slots, count it.

        A token for some queues may act only on the scopes of these queues, because a tenant and a
        group include other queues. The scopes of the platform need the right platform.
        """
        if scope.of_platform and not self.may_over_all(scope):
            return False
        if self.tenant is not None and scope.tenant != self.tenant:
            return False
        return self.queues is None or (scope.kind is ScopeKind.QUEUE and self.may_queue(scope.part))

    def may_over_all(self, scope: Scope) -> bool:
        """Whether its right and its types include this scope of the platform."""
        return self.platform and (scope.kind is not ScopeKind.TYPE or self.may_type(scope.part))

    def may_look(self, scope: Scope) -> bool:
        """Whether it may read the limits and the pause of a scope. It may read those of its tenant
        and of groups, because they limit its own jobs, but not those of the platform.
        """
        if self.may_scope(scope):
            return True
        if scope.of_platform or scope.kind is ScopeKind.QUEUE:
            return False
        return self.tenant in (None, scope.tenant)

    def check_scope(self, scope: Scope) -> None:
        """Raises Forbidden unless it may act on the scope. All routes use this rule."""
        if self.tenant is not None and scope.tenant != self.tenant:
            raise Forbidden(why="this token is for another tenant")
        if scope.of_platform:
            self.check_platform()
            if scope.kind is ScopeKind.TYPE:
                self.check_type(scope.part)
        if scope.kind is ScopeKind.QUEUE:
            self.check_queue(scope.part)
        elif not self.may_scope(scope):
            raise Forbidden(why="this token is for some queues and may act only on those")

    def check_platform(self) -> None:
        """Raises Forbidden unless it acts for the platform."""
        if not self.platform:
            raise Forbidden(why="only a token for every tenant with the right platform may do this")

    def check_type(self, type: str) -> None:
        if not self.may_type(type):
            raise Forbidden(why=f"this token is not for jobs of type {type!r}")

    def queues_of(self, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The requested queues, or all of its own. Raises Forbidden for a queue of others."""
        if self.queues is None:
            return asked
        for queue in asked or ():
            self.check_queue(queue)
        return asked or self.queues


class Unauthenticated(HoldfastError):
    """No token, or an invalid one."""

    code = "UNAUTHENTICATED"
    text = "{why}"


class Forbidden(HoldfastError):
    """The token is valid, but does not allow the call."""

    code = "FORBIDDEN"
    text = "{why}"
