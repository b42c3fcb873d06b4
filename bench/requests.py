"""A client that costs little: fixed requests over kept connections, answers counted and timed.

A library's client takes as long for a request as the service does; this one takes a tenth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec


class Sent(msgspec.Struct):
    """What became of a round of requests."""

    answers: int = 0
    errors: int = 0
    seconds: float = 0.0
    waits_ms: list[float] = []

    @property
    def per_s(self) -> float:
        return self.answers / self.seconds if self.seconds else 0.0


def request(
    method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> bytes:
    """One request as it goes over the wire."""
    named = {"host": "127.0.0.1", "content-type": "application/json", **(headers or {})}
    named["content-length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connection(asyncio.Protocol):
    """One kept connection; a request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lowered = head.lower()
        start = lowered.find(b"content-length: ") + 16
        length = int(lowered[start:].split(b"\r\n", 1)[0])
        if len(rest) >= length and self._answer is not None:
            self._buffer = b""
            self._answer.set_result((int(head[9:12]), rest))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the service hung up"))

    async def ask(self, sent: bytes) -> tuple[int, bytes]:
        """Status and body."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(sent)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def connect(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(Connection, "127.0.0.1", port)
    return made


async def hammer(port: int, connections: int, number: int, make: Callable[[int], bytes]) -> Sent:
    """So many requests over so many connections, as fast as they are answered."""
    found, numbers = Sent(), iter(range(number))
    started = time.perf_counter()

    async def one() -> None:
        connection = await connect(port)
        try:
            for each in numbers:
                begun = time.perf_counter()
                status, _ = await connection.ask(make(each))
                found.waits_ms.append((time.perf_counter() - begun) * 1e3)
                found.answers += 1
                found.errors += status >= 400
        finally:
            connection.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    found.seconds = time.perf_counter() - started
    return found
