"""Sends one delivery over a connection of its own, to addresses that were checked before.

The host is looked up once. The connection goes to the addresses of that answer, which were all
checked, and the certificate is that of the host: a name that changes between the check and the
connection changes nothing. Redirects are answers, and the body of an answer is not read.
"""

from __future__ import annotations

import asyncio
import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.core.errors import InvalidInput, OutboundRefused
from holdfast.outbound.answer import Answer
from holdfast.outbound.http import answer_of, exchange
from holdfast.outbound.request import Request
from holdfast.outbound.tries import NotSent
from holdfast.webhooks.lookup import Lookup
from holdfast.webhooks.networks import Allowed, Target, check_addresses, refused, target_of

HEADER_BYTES_MAX = 16 * 1024
"""Bytes of one header of an answer."""


class Sender:
    """The transport of the deliveries of one tenant."""

    def __init__(self, tenant: str, allow: Allowed, lookup: Lookup) -> None:
        self._tenant = tenant
        self._allow = allow
        self._lookup = lookup

    async def send(self, request: Request, timeout_s: float) -> Answer:
        """The answer, without its body. OutboundRefused for a URL that may not be called."""
        try:
            target = target_of(request.url, self._allow)
            if not _same_place(request.url, target):
                raise refused("can be read in two ways; write it more plainly")
            found = [target.literal] if target.literal else await self._looked_up(target, timeout_s)
            addresses = check_addresses(target, found, self._allow)
        except InvalidInput as error:
            why = str(error.why)
            raise OutboundRefused(
                method=request.method, place=request.place, why=why, status=0
            ) from error
        async with _session(target, addresses) as session:
            return await exchange(session, request, timeout_s, _without_body)

    async def _looked_up(self, target: Target, timeout_s: float) -> list[str]:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._lookup.addresses(self._tenant, target.host, target.port)
        except TimeoutError as error:
            raise NotSent("looking up its name took too long") from error


def _session(target: Target, addresses: list[str]) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=_Checked(target, addresses), use_dns_cache=False, force_close=True
        ),
        headers={"accept-encoding": "identity"},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,  # A proxy would look the name up again.
        max_line_size=HEADER_BYTES_MAX,
        max_field_size=HEADER_BYTES_MAX,
    )


class _Checked(AbstractResolver):
    """Knows one host, by the addresses that were checked."""

    def __init__(self, target: Target, addresses: list[str]) -> None:
        self._target = target
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.lower().removesuffix(".") != self._target.host:
            raise OSError(None, "it is not the host that was checked")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None: ...


async def _without_body(request: Request, response: aiohttp.ClientResponse) -> Answer:
    """The answer. Closing the connection ends a body of whatever length."""
    answer = answer_of(request, response, b"")
    response.close()
    return answer


def _same_place(url: str, target: Target) -> bool:
    """Whether the client's parser finds the same host in a URL as the one that checked it."""
    found = URL(url, encoded=True)
    host = (found.raw_host or "").lower().removesuffix(".")
    return (host, found.port) == (target.host, target.port)
