"""Mode none: every caller has every right. For one machine, or behind an authenticating proxy."""

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
    """Mode `none`. With `local_only` only this machine may use the service."""

    def __init__(self, *, local_only: bool = False) -> None:
        self._local_only = local_only

    async def caller(self, request: Request) -> Caller:
        if self._local_only:
            check_local(request)
        return ANYBODY


def check_local(request: Request) -> None:
    """Refuses requests that a browser sends for a page of another site.

    Loopback keeps other machines out, but not a browser on this one. A page whose name resolves to
    this machine (DNS rebinding) is detected by its Host, any other page by its Origin.
    """
    for name, value in request.scope["headers"]:
        if name == b"host" and _name(b"//" + value) not in LOCAL_NAMES:
            raise Forbidden(
                why="Host: without authentication only names of this machine are accepted"
            )
        if name == b"origin" and _name(value) not in LOCAL_NAMES:
            raise Forbidden(why="Origin: without authentication pages of other sites are refused")


@lru_cache(1000)
def _name(address: bytes) -> str | None:
    """The host in an address; None if there is none."""
    try:
        parts = urlsplit(address.decode("latin-1"))
        parts.port  # noqa: B018 - Reading the port validates it.
    except ValueError:
        return None
    return None if parts.path or parts.username is not None else parts.hostname
