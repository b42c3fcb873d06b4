"""No authentication: everybody may everything. For one machine, or behind something that knows."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.service.rights import Caller, Forbidden, Right

if TYPE_CHECKING:
    from starlette.requests import Request

ANYBODY = Caller(name="anybody", tenant=None, rights=frozenset(Right))
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class NoAuth:
    """Mode `none`. `local_only` is for a service that only this machine shall use."""

    def __init__(self, *, local_only: bool = False) -> None:
        self._local_only = local_only

    async def caller(self, request: Request) -> Caller:
        if self._local_only:
            check_local(request)
        return ANYBODY


def check_local(request: Request) -> None:
    """Refuses what a browser sends for a page of another site.

    Loopback keeps other machines out, and not a browser on this one. A page whose name was made to
    point here (DNS rebinding) betrays itself by the Host, any other page by the Origin.
    """
    for name, value in request.scope["headers"]:
        if name == b"host" and _name(b"//" + value) not in LOCAL_NAMES:
            raise Forbidden(why="Host: without authentication only this machine's names are served")
        if name == b"origin" and _name(value) not in LOCAL_NAMES:
            raise Forbidden(why="Origin: without authentication no other site's pages are served")


@lru_cache(1000)
def _name(address: bytes) -> str | None:
    """The host that an address names; None if it names none."""
    try:
        parts = urlsplit(address.decode("latin-1"))
        parts.port  # noqa: B018 - Looked at because it is only checked then.
    except ValueError:
        return None
    return None if parts.path or parts.username is not None else parts.hostname
