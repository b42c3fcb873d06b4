"""What the dashboard is given: a store, and who can tell who looks. It knows no service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import msgspec
from starlette.requests import Request

from holdfast.codec import Codecs
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.store_clock import StoreClock

READ, OPERATE, PRODUCE, PLATFORM = "read", "operate", "produce", "platform"


class NotAllowed(HoldfastError):
    """The viewer may look, and not do this."""

    code = "FORBIDDEN"
    text = "{why}"


class TooManyReaders(HoldfastError):
    """More live pages than one process feeds."""

    code = "OVERLOADED"
    text = "{readers} pages are fed already; try again in {retry_after_s} s"


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks."""

    name: str
    tenant: str | None
    """None sees every tenant."""
    rights: frozenset[str]
    queues: tuple[str, ...] | None = None
    """None is every queue."""

    @property
    def operates(self) -> bool:
        return OPERATE in self.rights

    @property
    def platform(self) -> bool:
        """Whether its acts are the platform's, which a tenant may not undo."""
        return self.tenant is None and PLATFORM in self.rights

    @property
    def cancels(self) -> bool:
        return self.operates or PRODUCE in self.rights

    def may_queue(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def check(self, may: bool, deed: str) -> None:
        if not may:
            raise NotAllowed(why=f"this token has no right to {deed}")

    def check_tenant(self, tenant: str) -> str:
        """The tenant, if it is the viewer's."""
        if self.tenant is not None and tenant != self.tenant:
            raise NotAllowed(why="this token is for another tenant")
        return tenant

    def check_queue(self, queue: str) -> str:
        if not self.may_queue(queue):
            raise NotAllowed(why=f"this token is not for queue {queue!r}")
        return queue


Who = Callable[[Request, str | None], Awaitable[Viewer]]
"""Tells who sent the request, with the token of its cookie; raises an error of ours."""


Standing = Callable[[Request, str | None, Viewer], Callable[[], Awaitable[bool]]]
"""Gives what a live page asks now and then: whether its viewer may still look."""


async def always() -> bool:
    return True


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Everything from outside."""

    store: Store
    clock: StoreClock
    codecs: Codecs
    who: Who
    status_of: Callable[[HoldfastError], int]
    closing: Callable[[], bool]
    """True once the process goes down: live pages are let go."""
    request_s: float = 60.0
    endless: Callable[[], None] = lambda: None
    """Told of a request that may take as long as its reader stays."""
    standing: Standing = lambda _, __, ___: always
    stream: Callable[[Request, Viewer], None] = lambda request, viewer: None
    """Takes a place among those who follow, until the request ends; raises an error of ours."""
    turn: Callable[[Viewer], AbstractAsyncContextManager[None]] = lambda viewer: nullcontext()
    """Waits until this viewer may read one more page."""

    def status(self, error: HoldfastError) -> int:
        if isinstance(error, NotAllowed):
            return 403
        return 503 if isinstance(error, TooManyReaders) else self.status_of(error)
