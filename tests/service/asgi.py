"""Calls an ASGI application as a client would, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import ASGIApp, Message


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


class Client:
    """`await client.post("/v1/jobs", {...})`; headers given here go with every call."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.headers = dict(headers or {})

    def with_headers(self, **headers: str) -> Client:
        """The same with more headers; underscores stand for dashes."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return Client(self.app, {**self.headers, **more})

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, None, **headers)

    async def delete(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("DELETE", path, body, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("POST", path, body, **headers)

    async def put(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("PUT", path, body, **headers)

    async def patch(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.call("PATCH", path, body, **headers)

    async def call(self, method: str, path: str, body: Any, **headers: str) -> Answer:
        """The body is JSON unless it is bytes, which go as they are."""
        async with self.open(method, path, body, **headers) as talk:
            return await talk.answer()

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> AsyncIterator[Talk]:
        """A call under way; leaving the block is the client's leaving."""
        talk = Talk(self.app, method, path, body, {**self.headers, **headers})
        try:
            yield talk
        finally:
            await talk.leave()


class Talk:
    """One request and what has come of it so far."""

    def __init__(
        self, app: ASGIApp, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> None:
        raw, _, query = path.partition("?")
        sent = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        if sent is not None:
            named.setdefault("content-type", "application/json")
            named.setdefault("content-length", str(len(sent)))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote_to_bytes(raw).decode("utf-8", "replace"),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(n.encode("latin-1"), v.encode("utf-8")) for n, v in named.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._sent = sent or b""
        self._asked = False
        self._left = asyncio.Event()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.ensure_future(app(scope, self._receive, self._messages.put))
        self._task.add_done_callback(lambda _: self._messages.put_nowait({"type": "end"}))

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._sent, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def start(self) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        message = await self._next()
        assert message["type"] == "http.response.start", message
        return message["status"], {
            name.decode().lower(): value.decode() for name, value in message["headers"]
        }

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        while True:
            message = await self._next()
            if message["type"] == "end":
                return
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return

    async def answer(self) -> Answer:
        status, headers = await self.start()
        return Answer(status, headers, b"".join([part async for part in self.parts()]))

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait({self._task}, timeout=5)
        assert self._task.done(), "the application goes on although its client has left"
        self._task.result()

    async def _next(self) -> Message:
        async with asyncio.timeout(40):
            message = await self._messages.get()
        if message["type"] == "end" and self._task.exception() is not None:
            raise self._task.exception() or AssertionError
        return message
