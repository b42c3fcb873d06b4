"""A way to a PostgreSQL server that is cut at a commit: before the server has it, or after it has
done it and before anybody is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

COMMIT = b"COMMIT"


class Cut:
    """Cuts one connection at its first commit, `early` or late, and counts what it cut."""

    def __init__(self, dsn: str, early: bool) -> None:
        parts = urlsplit(dsn)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 5432
        self._parts, self._early = parts, early
        self.number = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        """The way, as the server's URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}").geturl()
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        answers = asyncio.create_task(self._pass_on(there, writer))
        try:
            while data := await reader.read(65536):
                if COMMIT in data and self.number == 0:
                    self.number += 1
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    if not self._early:
                        back.write(data)
                        await there.read(65536)  # It is done now.
                    return
                back.write(data)
        finally:
            answers.cancel()
            for each in (writer, back):
                each.transport.abort()

    async def _pass_on(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await there.read(65536):
                writer.write(data)
        writer.close()
