"""What the dashboard needs from its host: a store and authentication."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import msgspec
from starlette.requests import Request

from holdfast.core.bounds import TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.codec import Codecs
from holdfast.core.errors import HoldfastError
from holdfast.core.scope import PLATFORM as PLATFORM_SCOPE
from holdfast.core.scope import Scope, ScopeKind
from holdfast.explain import Reader
from holdfast.store import Store
from holdfast.store_clock import StoreClock

READ, OPERATE, PRODUCE, PLATFORM = "read", "operate", "produce", "platform"


class NotAllowed(HoldfastError):
    """The viewer has no right to this action."""

    code = "FORBIDDEN"
    text = "{why}"


class TooManyReaders(HoldfastError):
    """There are more live pages than one process updates."""

    code = "OVERLOADED"
    text = "{readers} live pages are open already; try again in {retry_after_s} s"


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """The signed-in viewer of a page."""

    name: str
    tenant: str | None
    """None: every tenant."""
    rights: frozenset[str]
    queues: tuple[str, ...] | None = None
    """None: every queue."""
    types: tuple[str, ...] | None = None
    """None: every job type."""

    @property
    def operates(self) -> bool:
        return OPERATE in self.rights

    @property
    def platform(self) -> bool:
        """Whether it acts for the platform; a tenant cannot undo such actions."""
        return self.tenant is None and PLATFORM in self.rights

    @property
    def cancels(self) -> bool:
        return self.operates or PRODUCE in self.rights

    def signals(self, type: str | None = None) -> bool:
        """Whether it may send values to jobs, of this type, as it may enqueue them."""
        mine = type is None or self.types is None or type in self.types
        return PRODUCE in self.rights and mine

    def may_over_all(self, scope: Scope) -> bool:
        """Whether it may see this scope of the platform."""
        if scope.kind is ScopeKind.TYPE and self.types is not None and scope.part not in self.types:
            return False
        mine = self.queues is None or (scope.kind is ScopeKind.QUEUE and self.may_queue(scope.part))
        return self.platform and mine

    @property
    def whole_platform(self) -> bool:
        """Whether it may see what limits all tenants in all queues."""
        return self.may_over_all(PLATFORM_SCOPE)

    @property
    def reader(self) -> Reader:
        """What it may see of an explanation."""
        return Reader(
            own=self.tenant is not None,
            platform=self.platform,
            all_queues=self.queues is None,
        )

    def may_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    @property
    def all_jobs(self) -> bool:
        """Whether it may see jobs of every queue and type, as a source may make them."""
        return self.queues is None and self.types is None

    def check(self, may: bool, deed: str) -> None:
        if not may:
            raise NotAllowed(why=f"this token has no right to {deed}")

    def check_tenant(self, tenant: str) -> str:
        """The tenant. Raises NotAllowed if the viewer may not see it, and InvalidInput if it is no
        name: an empty one would be the platform's.
        """
        check_name("tenant", tenant, TENANT_MAX)
        if self.tenant is not None and tenant != self.tenant:
            raise NotAllowed(why="this token is for another tenant")
        return tenant

    def check_queue(self, queue: str) -> str:
        if not self.may_queue(queue):
            raise NotAllowed(why=f"this token is not for queue {queue!r}")
        return queue


Who = Callable[[Request, str | None], Awaitable[Viewer]]
"""Identifies the viewer by the token in the cookie. Raises a HoldfastError if it cannot."""


Standing = Callable[[Request, str | None, Viewer], Callable[[], Awaitable[bool]]]
"""Returns a check, which a live page repeats: whether its viewer is still allowed."""


async def always() -> bool:
    return True


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the host provides."""

    store: Store
    clock: StoreClock
    codecs: Codecs
    who: Who
    status_of: Callable[[HoldfastError], int]
    closing: Callable[[], bool]
    """True when the process is stopping; live pages then end."""
    request_s: float = 60.0
    endless: Callable[[], None] = lambda: None
    """Called for a request that lasts as long as its reader is connected."""
    standing: Standing = lambda _, __, ___: always
    stream: Callable[[Request, Viewer], None] = lambda request, viewer: None
    """Takes a place among the live pages until the request ends. Raises if there is none."""
    turn: Callable[[Viewer], AbstractAsyncContextManager[None]] = lambda viewer: nullcontext()
    """Waits until this viewer may read another page."""

    def status(self, error: HoldfastError) -> int:
        if isinstance(error, NotAllowed):
            return 403
        return 503 if isinstance(error, TooManyReaders) else self.status_of(error)
