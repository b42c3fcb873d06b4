"""HTTP by aiohttp: the connections of each event loop, and one try over them.

Connections belong to the loop that made them, so each loop has its own, which are closed with it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context as Variables

import aiohttp
from yarl import URL

from holdfast.core.edge_bounds import OUTBOUND_ANSWER_MAX
from holdfast.core.errors import OutboundRefused
from holdfast.outbound.answer import Answer
from holdfast.outbound.request import Request
from holdfast.outbound.tries import NoAnswer, NotSent
from holdfast.stores import forks

KEEP_S = 15.0
"""How long an idle connection is kept."""
CONNECT_S = 5.0
CHUNK = 64 * 1024


class HttpTransport:
    """Sends requests. Redirects are not followed: they are answers."""

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._links: dict[asyncio.AbstractEventLoop, _Link] = {}
        forks.keep(self)

    async def send(self, request: Request, timeout_s: float) -> Answer:
        return await exchange(self._link().session, request, timeout_s, _read)

    def _link(self) -> _Link:
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            with self._lock:
                for old in [old for old in self._links if old.is_closed()]:
                    del self._links[old]
                link = self._links[loop] = _Link(self._connections)
        return link


Read = Callable[[Request, aiohttp.ClientResponse], Awaitable[Answer]]


async def exchange(
    session: aiohttp.ClientSession, request: Request, timeout_s: float, read: Read
) -> Answer:
    """One request and its answer. Raises NotSent, NoAnswer or OutboundRefused."""
    connect_s = min(CONNECT_S, timeout_s)
    timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=connect_s)
    try:
        async with session.request(
            request.method,
            URL(request.url, encoded=True),
            data=request.body,
            headers=request.headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            return await read(request, response)
    except aiohttp.ClientSSLError as error:
        why = f"its certificate does not hold, or it speaks no TLS ({type(error).__name__})"
        raise _refused(request, why) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise NotSent("connecting took too long") from error
    except aiohttp.ClientConnectorError as error:
        raise NotSent(str(error.os_error or type(error).__name__)) from error
    except TimeoutError as error:
        raise NoAnswer(f"not within {timeout_s:.1f} s") from error
    except RuntimeError as error:
        if not session.closed:
            raise
        raise NotSent("its event loop is ending") from error
    except (aiohttp.ClientError, OSError) as error:
        # Only the kind: texts of these errors may quote the URL or a header.
        raise NoAnswer(type(error).__name__) from error


class _Link:
    """The connections of one event loop."""

    def __init__(self, connections: int) -> None:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=KEEP_S),
            # Compressed answers could grow beyond any bound, so none are asked for.
            headers={"accept-encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # Ends with the loop: asyncio.run cancels what is left, and that closes the connections.
        self._keeper = asyncio.get_running_loop().create_task(
            self._keep(), name="holdfast-outbound", context=Variables()
        )

    async def _keep(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.session.close()


async def _read(request: Request, response: aiohttp.ClientResponse) -> Answer:
    """The answer, read up to its limit."""
    parts, size = [], 0
    async for part in response.content.iter_chunked(CHUNK):
        size += len(part)
        if size > OUTBOUND_ANSWER_MAX:
            response.close()
            raise _refused(request, f"its answer is larger than {OUTBOUND_ANSWER_MAX} bytes")
        parts.append(part)
    return answer_of(request, response, b"".join(parts))


def answer_of(request: Request, response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """The answer with this body."""
    return Answer(
        status=response.status,
        headers={name.lower(): value for name, value in response.headers.items()},
        body=body,
        method=request.method,
        place=request.place,
    )


def _refused(request: Request, why: str) -> OutboundRefused:
    return OutboundRefused(method=request.method, place=request.place, why=why, status=0)
