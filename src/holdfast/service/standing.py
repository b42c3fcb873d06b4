"""Whether who stays may still stay: a key that was removed ends what it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from holdfast.errors import HoldfastError
from holdfast.service.rights import Caller, Unauthenticated

if TYPE_CHECKING:
    from holdfast.service.service import Service

RECHECK_S = 10.0
"""How often a stream, a live page or a long poll asks again who calls."""


class Standing:
    """Of one request that lasts. Asks by the service's clock, and only when it is time."""

    def __init__(self, service: Service, request: Request, same: Callable[[Caller], bool]) -> None:
        """`same` tells whether a caller is still the one who began."""
        self._service = service
        self._request = request
        self._same = same
        self._asked = service.clock()

    async def holds(self) -> bool:
        """False once the token does not hold any more, or grants something else."""
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
        """Unauthenticated instead of False."""
        if not await self.holds():
            raise Unauthenticated(why="the token does not hold any more, or grants something else")
