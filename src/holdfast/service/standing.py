"""Repeated checks of long requests: removing a key ends the requests that it started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from holdfast.core.errors import HoldfastError
from holdfast.service.rights import Caller, Unauthenticated

if TYPE_CHECKING:
    from holdfast.service.service import Service

RECHECK_S = 10.0
"""How often a stream, a live page or a long poll authenticates again."""


class Standing:
    """The check of one long request. It authenticates again only when the interval has passed."""

    def __init__(self, service: Service, request: Request, same: Callable[[Caller], bool]) -> None:
        """`same` says whether a caller is still the one that started the request."""
        self._service = service
        self._request = request
        self._same = same
        self._asked = service.clock()

    async def holds(self) -> bool:
        """False if the token is no longer valid or its rights have changed."""
        now = self._service.clock()
        if now - self._asked < RECHECK_S:
            return True
        try:
            caller = await self._service.known(self._request)
        except HoldfastError:
            return False
        self._asked = now
        return not caller.over and self._same(caller)

    async def check(self) -> None:
        """Raises Unauthenticated instead of returning False."""
        if not await self.holds():
            raise Unauthenticated(why="the token is no longer valid, or its rights have changed")
