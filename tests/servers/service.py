"""Services in this process, for tests of the remote store: called without a socket, or with one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import uvicorn

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import Clock
from holdfast.core.job import Event
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.run import listen
from holdfast.service.service import Auth, Service
from holdfast.stores import open_store
from holdfast.stores.remote.client import Sent
from holdfast.stores.remote.errors import Answer, NotSent
from holdfast.stores.remote.options import Options
from holdfast.stores.remote.store import RemoteStore
from holdfast.stores.remote.wire import MEDIA

BOUND_S = 60.0
T = TypeVar("T")


class Host:
    """An event loop in a thread of its own, as a server has it, and the services that it runs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="service", daemon=True)
        self._thread.start()
        self._places: dict[str, Place] = {}

    def place(
        self,
        name: str,
        clock: Clock | None = None,
        *,
        store: str = "memory://",
        auth: Auth | None = None,
    ) -> Place:
        """The service of this name: made when first asked for, with this clock."""
        if name not in self._places:
            self._places[name] = Place(self, store, clock, auth or NoAuth())
        return self._places[name]

    def clear(self) -> None:
        """Ends all services."""
        places, self._places = self._places, {}
        for place in places.values():
            place.stop()

    def close(self) -> None:
        self.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND_S)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result(BOUND_S)


class Place:
    """One service over one store."""

    def __init__(self, host: Host, store: str, clock: Clock | None, auth: Auth) -> None:
        self.host = host
        self.store = open_store(store, clock)
        self.service = host.run(self._make(auth))
        self.app = application(self.service, owns_store=False)
        self._server: uvicorn.Server | None = None
        self._serving: Future[None] | None = None
        self._url = ""

    async def _make(self, auth: Auth) -> Service:
        await self.store.open()
        return Service(self.store, auth)

    def remote(self, **options: Any) -> RemoteStore:
        """A store that calls the application itself."""
        return RemoteStore(Options(base="http://inside", **options), lambda of: Inside(self, of))

    async def events_behind(self) -> list[Event]:
        """All that the store behind has noted."""
        page = await asyncio.wrap_future(self.host.start(self.store.events(None, 0, PAGE_MAX)))
        return list(page.events)

    @property
    def url(self) -> str:
        """Where it is served over a socket, from the first time that somebody asks."""
        if not self._url:
            self._url = f"http://127.0.0.1:{self.serve()}"
        return self._url

    def serve(self, **tls: Any) -> int:
        """Serves it over a socket, and gives the port."""
        bound = listen("127.0.0.1", 0)
        config = uvicorn.Config(
            self.app, http="httptools", lifespan="off", log_config=None, access_log=False, **tls
        )
        server = self._server = uvicorn.Server(config)
        # Signals are the test run's, not the server's: its loop is not the main thread's.
        self._serving = self.host.start(server._serve([bound]))
        port: int = bound.getsockname()[1]
        return port

    def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            self._serving.result(BOUND_S)
        self.host.run(self._end())

    async def _end(self) -> None:
        self.service.close()
        await self.store.close()


class Inside:
    """A transport without a socket: each call is a request to the application, on its own loop."""

    def __init__(self, place: Place, options: Options) -> None:
        self._place = place
        self._options = options
        self._closed = False

    async def send(self, sent: Sent) -> Answer:
        if self._closed:
            raise NotSent("it is not open")
        left = asyncio.Event()
        work = self._place.host.start(self._call(sent, left))
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            with suppress(RuntimeError):
                self._place.host._loop.call_soon_threadsafe(left.set)
            raise

    async def close(self) -> None:
        self._closed = True

    async def _call(self, sent: Sent, left: asyncio.Event) -> Answer:
        messages: list[dict[str, Any]] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": sent.body or b"", "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        await self._place.app(self._scope(sent), receive, send)
        start, *parts = messages
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        after = headers.get("retry-after")
        return Answer(
            status=start["status"],
            media=headers.get("content-type", "").partition(";")[0],
            body=b"".join(part.get("body", b"") for part in parts),
            retry_after_s=None if after is None else float(after),
        )

    def _scope(self, sent: Sent) -> dict[str, Any]:
        headers = {"content-type": MEDIA, "content-length": str(len(sent.body or b""))}
        if self._options.token is not None:
            headers["authorization"] = f"Bearer {self._options.token}"
        if self._options.tenant is not None:
            headers["holdfast-tenant"] = self._options.tenant
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET" if sent.body is None else "POST",
            "scheme": "http",
            "path": sent.path,
            "raw_path": sent.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
